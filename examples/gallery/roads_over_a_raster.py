"""
Roads over a raster
===================

Who reaches the hospital in an hour? Off the roads one walks, on a road one drives, and a bridge is
the only way over the river. The land is a raster, the roads are a graph, and ``links=`` joins the
two: costs are the least over all ways that use either.

Land, river and roads are generated: the river is a barrier in the raster, and roads are edges
between cells of it, with the minutes that a car takes.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from scipy.ndimage import gaussian_filter
from scipy.spatial import Delaunay

import orograph as og

rng = np.random.default_rng(12)
rows, columns = 260, 360  # cells of 100 m
rough = gaussian_filter(rng.standard_normal((rows, columns)), 12)
minutes = 1.2 + 1.5 * (rough - rough.min()) / np.ptp(rough)  # to walk over a cell
river = (columns * 0.52 + 22 * np.sin(np.arange(rows) / 35)).astype(int)
for row, column in enumerate(river):
    minutes[row, column - 2 : column + 3] = np.nan

# %%
# A road network
# --------------
# Towns are joined with their neighbours on the same side of the river, and two bridges join the
# sides.

towns = np.column_stack([rng.uniform(8, columns - 8, 40), rng.uniform(8, rows - 8, 40)]).round()
west = towns[:, 0] < river[towns[:, 1].astype(int)]
dry = ~np.isnan(minutes[towns[:, 1].astype(int), towns[:, 0].astype(int)])
towns, west = towns[dry], west[dry]
ends = Delaunay(towns).simplices[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
ends = np.unique(np.sort(ends), axis=0)
length = np.hypot(*(towns[ends[:, 0]] - towns[ends[:, 1]]).T)
across = west[ends[:, 0]] != west[ends[:, 1]]
bridges = np.flatnonzero(across)[np.argsort(length[across])[:2]]
kept = ~across & (length < 70)
kept[bridges] = True
ends, length, across = ends[kept], length[kept], across[kept]

drive = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1], "weight": length * 0.1})
used = np.unique(ends)  # a graph has the towns that a road leads to
roads = og.read_graph(drive, coordinates=towns[used], directed=False)
print(roads)

# %%
# With the roads, and without
# ---------------------------
# Without them no path crosses the river: what lies behind it is unreached.

hospital = towns[used[0]]
outputs = ("cost", "back_direction")
on_foot = og.cost_distance(minutes, [hospital], cell_size=1)
by_road = og.cost_distance(minutes, [hospital], cell_size=1, links=roads, outputs=outputs)
print("reached on foot:", on_foot.attrs["reached_cells"], "cells of", minutes.size)
print("reached by road:", by_road.attrs["reached_cells"])
within = [int((result["cost"] <= 60).sum()) for result in (on_foot, by_road)]
print("in an hour:", within[0], "on foot,", within[1], "by road")
assert within[1] > within[0]

figure, places = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
for axes, result, title in zip(places, (on_foot, by_road), ("On foot", "With roads and bridges")):
    shown = axes.imshow(result["cost"] / 60, cmap="magma_r", vmax=6)
    axes.contour(result["cost"], levels=[60], colors="deepskyblue")
    axes.plot(*hospital, "P", color="white", markeredgecolor="black", markersize=12)
    axes.set(title=title, xticks=[], yticks=[])
places[1].add_collection(LineCollection(towns[ends], colors="dimgrey", linewidths=0.8))
figure.colorbar(shown, ax=places, label="hours; the line is one hour")

# %%
# Ways
# ----
# A way is traced over cells and roads alike. Between two cells that do not touch it follows a road.

farms = [(20.0, 30.0), (columns - 15.0, rows - 20.0), (columns - 30.0, 40.0)]
paths = og.least_cost_path(by_road, farms, snap=True)
figure, axes = plt.subplots(figsize=(8, 5.6), layout="constrained")
axes.imshow(minutes, cmap="YlGn_r", alpha=0.7)
axes.add_collection(LineCollection(towns[ends], colors="dimgrey", linewidths=1))
for path in paths:
    steps = np.abs(np.diff(path.cells, axis=0)).max(axis=1)
    print(f"{path.cost:.0f} minutes, {int((steps > 1).sum())} roads")
    axes.plot(*path.coordinates.T, color="crimson", linewidth=2)
axes.plot(*np.transpose(farms), "o", color="white", markeredgecolor="black")
axes.plot(*hospital, "P", color="white", markeredgecolor="black", markersize=12)
axes.set(title="The quickest ways from three farms", xticks=[], yticks=[])
