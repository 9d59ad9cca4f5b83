"""
Floods and passes
=================

How does a flood rise through a terrain, which lakes would stand behind its ridges, and over which
passes do its valleys meet? All of it is read from paths whose highest cell is as low as possible.
"""

import matplotlib.pyplot as plt
import numpy as np

import orograph as og
from orograph.cli.demo import TRAILHEAD, jacksboro_fault

elevation = jacksboro_fault()

# %%
# A flood rises
# -------------
# The level at which water from the lowest valley reaches each cell. Cells that are as low but lie
# behind a ridge are reached later.

level = og.flood_level(elevation, [(-84.15, 36.18)])["level"]
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for place, water in zip(axes, (300, 340, 420)):
    place.imshow(elevation, cmap="Greys")
    place.imshow(np.where(level <= water, 1, np.nan), cmap="cool", vmin=0.4, vmax=1.6)
    dry = (elevation <= water) & (level > water)
    place.imshow(np.where(dry, 1, np.nan), cmap="autumn", vmin=0.4, vmax=1.6)
    place.set(title=f"{water} m: {int(dry.sum())} low cells stay dry", xticks=[], yticks=[])

# %%
# Depressions
# -----------
# Where rain would stand before it spills over the lowest point of its rim.

filled = og.fill_depressions(elevation, outputs=("filled", "depth"))
depth = filled["depth"]
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
elevation.plot(ax=axes, cmap="Greys", add_colorbar=False)
depth.where(depth > 0).plot(ax=axes, cmap="viridis", cbar_kwargs={"label": "m of water"})
axes.set_title("Depressions and their depths")

# %%
# Which depression holds which, where each spills, and how much it holds, is in a table. The raster
# is in degrees, so each row of cells has the area that it has on the ellipsoid.

table = og.depressions(elevation, min_depth=10)
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
elevation.plot(ax=axes, cmap="Greys", add_colorbar=False)
og.plot(table, ax=axes)
largest = table.isel(depression=int(table["volume"].argmax("depression")))
print(f"{float(largest['area']) / 1e4:.1f} ha, {float(largest['volume']) / 1e6:.2f} million m³")

# %%
# Peaks and key cols
# ------------------
# A peak of high prominence stands apart: one must go down far to come to a higher one, and the
# lowest cell of the best such way is its key col.

peaks = og.peaks(elevation, min_prominence=120)
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
elevation.plot(ax=axes, cmap="gist_earth", cbar_kwargs={"label": "m"})
og.plot(peaks, ax=axes)

# %%
# Passes between valleys
# ----------------------
# The pass between two places is where a way between them is highest, of the way whose highest cell
# is lowest. So it is the level at which a flood from one reaches the other.

valleys = [TRAILHEAD, (-84.40, 36.36), (-84.24, 36.35), (-84.30, 36.20)]
passes = og.pass_elevation(elevation, valleys, paths=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
elevation.plot(ax=left, cmap="gist_earth", cbar_kwargs={"label": "m"})
og.plot(passes, ax=left)
left.set_title("Places, the passes between each two of them, and paths over these")
shown = right.imshow(passes["elevation"], cmap="gist_earth")
figure.colorbar(shown, ax=right, label="m")
right.set(title="How high the passes are", xticks=range(4), yticks=range(4))

flood = og.flood_level(elevation, valleys[:1])["level"]
reached = flood.sel(x=passes["target_x"], y=passes["target_y"], method="nearest")
assert np.array_equal(reached, passes["elevation"][0])
