"""
Around the globe
================

On a global grid the last column lies beside the first. A made-up planet shows land, sea routes and
rivers that go on from one to the other. Raise ``COLUMNS`` to 21600 for cells of one arc minute.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import rioxarray  # noqa: F401  (registers `.rio`)
import xarray as xr

import orograph as og

COLUMNS = 720
ROWS = COLUMNS // 2

# %%
# A planet
# --------
# Heights are a sum of waves in the space around the sphere, so they are continuous over the date
# line and at the poles. Three tenths of the cells are land.

random = np.random.default_rng(3)
longest, shortest, count = 3, 60, 80
frequencies = np.geomspace(longest, shortest, count)
waves = random.normal(size=(3, count))
waves *= frequencies / np.linalg.norm(waves, axis=0)
phases, strengths = random.uniform(0, 2 * np.pi, count), frequencies**-0.9

longitude = -180 + (np.arange(COLUMNS) + 0.5) * 360 / COLUMNS
latitude = 90 - (np.arange(ROWS) + 0.5) * 180 / ROWS
around = np.stack([np.cos(np.radians(longitude)), np.sin(np.radians(longitude))], 1) @ waves[:2]
values = np.empty((ROWS, COLUMNS), np.float32)
for row, angle in enumerate(np.radians(latitude)):
    values[row] = np.cos(around * np.cos(angle) + waves[2] * np.sin(angle) + phases) @ strengths
values = 2000 * (values - np.quantile(values[:: ROWS // 180], 0.7))
coordinates = {"lat": latitude, "lon": longitude}
heights = xr.DataArray(values, coordinates, ("lat", "lon"), "heights", {"units": "m"})
heights = heights.rio.write_crs("EPSG:4326")
land = heights > 0

# %%
# Continents
# ----------
# With ``wrap=True`` land on both sides of the date line is one component.

for wrap in (False, True):
    parts = og.connected_components(land, wrap=wrap, outputs=("labels", "component_size"))
    print(f"wrap={wrap}: {parts.attrs['component_count']} continents and islands")
table = og.component_table(parts).sort_values("area", ascending=False)
print(table[["cells", "area", "x", "y"]].head())
figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
og.plot(parts["labels"], ax=axes)
axes.set_title("Continents and islands")

# %%
# Over the sea
# ------------
# Distances from one harbour by sea, and the routes of ships to three others. Bands and routes that
# cross the date line are cut there. With ``poles=True`` a route may lead over a pole too.

sea = xr.ones_like(heights).where(~land).rename("friction").rio.write_crs("EPSG:4326")
harbour, others = [(-172, 8)], [(165, -25), (100, 30), (-60, -20)]
outputs = ("cost", "back_direction")
around_all = {"wrap": True, "poles": True}
cost = og.cost_distance(sea, harbour, outputs=outputs, connectivity=16, snap=COLUMNS, **around_all)
routes = og.least_cost_path(cost, others, snap=COLUMNS)
for route in routes:
    print(f"{route.length / 1e3:.0f} km, a {route.geometry.geom_type}")
lines = og.isochrones(cost["cost"], np.arange(2e6, 3e7, 2e6), polygons=False)
figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
og.plot(cost, sources=harbour, ax=axes)
lines.to_geodataframe().plot(ax=axes, color="white", linewidth=0.6)
og.plot(routes, ax=axes)
axes.set_title("Distance from a harbour, every 2000 km, and three routes")

# %%
# A route as a line goes on beyond 180 degrees, for maps with another centre.

centred = land.assign_coords(lon=land.lon % 360).sortby("lon")
figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
axes.imshow(centred, cmap="Greys", extent=(0, 360, -90, 90), alpha=0.4)
for route in routes:
    x, y = route.line.T
    axes.plot(x + 360 * (x[-1] < 0), y)
axes.set(title="The same routes, around the date line", xlabel="degrees east")

# %%
# Rivers
# ------
# Water flows over the date line too. Depressions are filled; what reaches the sea leaves the land.

ground = heights.where(land).rio.write_crs("EPSG:4326")
flow = og.flow_direction(ground, depressions="fill", flats="gradient", wrap=True)
upstream = og.flow_accumulation(flow, weights="area")["accumulation"]
basins = og.watersheds(flow)
warnings.filterwarnings("ignore", message=".* have no line")  # rivers of a single cell
rivers = og.stream_lines(og.streams(flow, upstream, 2e11))
largest = float(upstream.max()) / 1e12
print(f"{basins.attrs['watershed_count']} basins, the largest of {largest:.1f} million km²")
figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
og.plot(basins["watershed"], ax=axes)
rivers.to_geodataframe().plot(ax=axes, color="black", linewidth=0.8)
axes.set_title("Basins, and rivers with more than 200,000 km² above them")
