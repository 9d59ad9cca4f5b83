"""
Who lives an hour from a clinic?
================================

On foot to the road, by car along it, and on foot again: times over terrain and roads together, the
areas within a quarter of an hour, half an hour and an hour, and how many people live in each.
"""

import geopandas
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import LightSource
from shapely import LineString, points

import orograph as og
from orograph.cli.demo import jacksboro_fault

elevation = jacksboro_fault()
shade = LightSource(azdeg=315).hillshade(elevation.values, vert_exag=3, dx=90, dy=90)
west, east = elevation.x.values[[0, -1]]
north, south = elevation.y.values[[0, -1]]

# %%
# A river, roads and a bridge
# ---------------------------
# The river cannot be waded. One road crosses it on a bridge, which is left at its ends alone.
# Speeds follow from the classes of the roads.

river = LineString([(-84.42, 36.30), (-84.31, 36.33), (-84.22, 36.27), (-84.10, 36.30)])
ground = elevation.where(og.rasterize(river, like=elevation) < 0)

crossing = (-84.30, 36.312), (-84.295, 36.342)
roads = geopandas.GeoDataFrame(
    {
        "highway": ["primary", "primary", "secondary", "residential"],
        "bridge": [None, "yes", None, None],
    },
    geometry=[
        LineString([(-84.40, 36.22), (-84.33, 36.27), crossing[0]]),
        LineString(crossing),
        LineString([crossing[1], (-84.26, 36.38), (-84.14, 36.44)]),
        LineString([crossing[1], (-84.36, 36.38), (-84.38, 36.44)]),
    ],
    crs="EPSG:4326",
)
links = og.roads(roads, like=ground)
print(links)

# %%
# Times
# -----
# ``travel="to"``: the time from each place to the nearest clinic, uphill and down, in seconds.

clinics = [(-84.33, 36.27), (-84.16, 36.43)]
given = {"travel": "to", "snap": True}
times = {
    "on foot": og.walking_time(ground, clinics, **given)["time"],
    "by road": og.walking_time(ground, clinics, links=links, **given)["time"],
}

# %%
# Isochrones
# ----------
# Bands between levels of time are polygons, which do not overlap and leave no gaps.

levels = np.array([15, 30, 60]) * 60
bands = {name: og.isochrones(time, levels).to_geodataframe() for name, time in times.items()}

figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
for place, (name, areas) in zip(axes, bands.items(), strict=True):
    place.imshow(shade, cmap="Greys_r", extent=(west, east, south, north))
    areas.assign(minutes=(areas["upper"] / 60).astype(int)).plot(
        ax=place, column="minutes", categorical=True, cmap="viridis_r", alpha=0.6, legend=True,
        legend_kwds={"title": "minutes", "loc": "lower right"},
    )  # fmt: skip
    place.plot(*river.xy, color="royalblue", linewidth=3)
    place.plot(*np.transpose(clinics), "P", color="crimson", markersize=10)
    place.set(title=name, xlim=(west, east), ylim=(south, north), aspect=1.2)
roads.plot(ax=axes[1], color="black", linewidth=1.2)

# %%
# People
# ------
# Houses with their people, as a census gives them; here they are drawn by lot.

rng = np.random.default_rng(5)
where = points(rng.uniform((west, south), (east, north), (2000, 2)))
houses = geopandas.GeoDataFrame({"people": rng.integers(1, 9, 2000)}, geometry=where, crs=4326)
table = pd.DataFrame(
    {
        name: houses.sjoin(areas).groupby("upper")["people"].sum().reindex(levels).cumsum()
        for name, areas in bands.items()
    }
)
table.index = pd.Index((levels / 60).astype(int), name="within minutes")
print(table.fillna(0).astype(int))
