"""
An index asked many times
=========================

A table of the distances between many places, the nearest of some for each, and what changes when a
road is closed: an index is built once and answers them all.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import orograph as og
from orograph.cli.demo import jacksboro_fault, steepness

elevation = jacksboro_fault()
friction = steepness(elevation)
rng = np.random.default_rng(3)
houses = np.column_stack([rng.uniform(-84.40, -84.10, 60), rng.uniform(36.20, 36.45, 60)])
clinics = [(-84.35, 36.25), (-84.15, 36.40), (-84.14, 36.23)]

# %%
# One build, many questions
# -------------------------

begin = time.perf_counter()
index = og.DistanceIndex.build(friction, "clinics-index.zarr", overwrite=True)
built = time.perf_counter()
table = index.distance_matrix(houses, clinics)
asked = time.perf_counter()
print(f"built in {built - begin:.1f} s, {table.size} distances in {asked - built:.2f} s")
print(index)

# %%
# The nearest clinic of each house
# --------------------------------

nearest = index.nearest(houses, k=1, targets=clinics)["target"].values[:, 0]
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
elevation.plot(ax=axes, cmap="Greys", add_colorbar=False)
axes.scatter(*houses.T, c=nearest, cmap="Set1", vmin=0, vmax=8, edgecolor="black")
for house, clinic in list(zip(houses, nearest))[:20]:
    axes.plot(*index.path(house, clinics[clinic]).coordinates.T, color="black", linewidth=0.8)
axes.scatter(*np.transpose(clinics), c=range(3), cmap="Set1", vmin=0, vmax=8, marker="P", s=200)
axes.set_title("The nearest clinic of each house, and some of the ways")

# %%
# A change
# --------
# A part of the surface becomes five times as slow. Only the blocks that it meets are made anew, and
# the table is then the one that an index of the changed surface would give.

window = (140, 180, 40, 40)  # first row, first column, rows, columns
rows, columns = slice(140, 180), slice(180, 220)
slower = friction.copy()
slower.values[rows, columns] *= 5
print(index.update(window, slower.values[rows, columns]), "blocks made anew")
after = index.distance_matrix(houses, clinics)
fresh = og.DistanceIndex.build(slower, "clinics-fresh.zarr", overwrite=True)
assert np.array_equal(after, fresh.distance_matrix(houses, clinics))

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.hist(((after - table) / table).values.ravel() * 100, bins=30, color="#1f6f5c")
axes.set(xlabel="% dearer than before", ylabel="pairs", title="What the change costs")
