"""
Streams, watersheds and a flood
===============================

Where does water go? From a terrain to directions of flow, streams with their orders, the watersheds
of gauges as polygons, and the ground that a stream floods first.
"""

import matplotlib.pyplot as plt
from matplotlib.colors import LightSource, LogNorm

import orograph as og
from orograph.cli.demo import jacksboro_fault

elevation = jacksboro_fault()
shade = LightSource(azdeg=315).hillshade(elevation.values, vert_exag=3, dx=90, dy=90)
west, east = elevation.x.values[[0, -1]]
north, south = elevation.y.values[[0, -1]]
extent = (west, east, south, north)


def relief(axes: plt.Axes) -> None:
    """Draw the terrain as shades of grey."""
    axes.imshow(shade, cmap="Greys_r", extent=extent, alpha=0.7)
    axes.set(xlabel="degrees east", ylabel="degrees north", xlim=(west, east), ylim=(south, north))


# %%
# Directions
# ----------
# Depressions of an elevation model are mostly errors. Breaching digs a trench from each pit to
# lower ground, and fills what no trench drains; so the heights change in fewer places than by
# filling alone.

flow = og.flow_direction(elevation, depressions="breach", flats="gradient")
kept = og.flow_direction(elevation, depressions="keep")
filled = og.fill_depressions(elevation)["filled"]
breached = og.breach_depressions(elevation)["breached"]
print(f"{kept.attrs['sink_count']} pits; water ends in {flow.attrs['sink_count']} of them now")
print(f"filling raises {int((filled > elevation).sum())} cells")
print(f"breaching lowers {int((breached < elevation).sum())}")

# %%
# Streams
# -------
# Streams are where enough flows together. Links between confluences have orders, lengths and drops.

upstream = og.flow_accumulation(flow, weights="area")["accumulation"]
network = og.streams(flow, upstream, 2e6, elevation=elevation)
lines = og.stream_lines(network).to_geodataframe()
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
relief(axes)
lines.plot(
    ax=axes, column="strahler", cmap="winter_r", linewidth=lines["strahler"], categorical=True,
    legend=True, legend_kwds={"title": "Strahler order", "loc": "lower right"},
)  # fmt: skip
axes.set_title("Streams with more than 2 km² above them")
print(lines.groupby("strahler")["length"].agg(["count", "sum"]).round(-1))

# %%
# Watersheds of gauges
# --------------------
# Gauges are moved to the largest stream near; each has the ground that drains to it before any
# other gauge. As polygons they go to a GIS.

gauges = [(-84.35, 36.29), (-84.30, 36.24), (-84.2, 36.36)]
sheds = og.watersheds(flow, gauges, snap=20, accumulation=upstream)
areas = og.polygonize(sheds["watershed"], nodata=-1).to_geodataframe()
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
relief(axes)
areas.plot(ax=axes, column="label", cmap="Set2", alpha=0.5, edgecolor="black")
axes.plot(sheds["outlet_x"], sheds["outlet_y"], "k^")
axes.set_title("Watersheds of three gauges")

# %%
# A flood
# -------
# The ground that lies less than 20 m above the stream into which it drains.

streams = network["link"] > 0
above = og.height_above_drainage(breached, flow, streams)["height"]
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
relief(axes)
low = axes.imshow(above.where(above < 20), cmap="Blues_r", extent=extent, vmin=0, vmax=20)
figure.colorbar(low, ax=axes, label="m above the stream")
axes.set_title("Ground that streams flood first")

# %%
# Water that spreads
# ------------------
# On slopes water does not keep to one neighbour: D-infinity shares it between two, multiple flow
# directions between all lower ones.

figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for place, method in zip(axes, ("d8", "dinf", "mfd"), strict=True):
    sums = og.flow_accumulation(elevation, method=method)["accumulation"][100:180, 100:200]
    shown = place.imshow(sums, cmap="Blues", norm=LogNorm(1, 3000))
    place.set(title=method, xticks=[], yticks=[])
figure.colorbar(shown, ax=axes, label="cells upstream")
