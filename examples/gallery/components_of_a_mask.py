"""
Components of a mask
====================

A mask of cells above a height falls into parts. How many are there, how large, and how do they join
as the height falls? Labels are those of a scan of the whole raster, whatever the tiles.
"""

import matplotlib.pyplot as plt
import numpy as np

import orograph as og
from orograph.cli.demo import jacksboro_fault

elevation = jacksboro_fault()

# %%
# The parts of one mask
# ---------------------

outputs = ("labels", "component_size")
land = og.connected_components(elevation > 600, tile=64, outputs=outputs)
sizes = land["component_size"].values
print(f"{len(sizes)} parts; the largest has {sizes.max()} of {sizes.sum()} cells")

axes = og.plot(land)
axes.set_title("Parts above 600 m")

# %%
# The tiling does not matter
# --------------------------

other = og.connected_components(elevation > 600, tile=1000)
assert np.array_equal(land["labels"], other["labels"])

# %%
# Sizes, and how the parts join
# -----------------------------
# Their number grows, then falls when parts join to one.

levels = range(300, 1000, 50)
found = [
    og.connected_components(elevation > level, outputs=outputs)["component_size"].values
    for level in levels
]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.hist(sizes, bins=np.geomspace(1, sizes.max() + 1, 25), color="#1f6f5c")
left.set(xscale="log", yscale="log", xlabel="cells of a part", ylabel="parts", title="Above 600 m")
right.plot(levels, [len(part) for part in found], "o-", label="parts")
share = [part.max() / part.sum() if len(part) else 0 for part in found]
right.set(xlabel="above, m", ylabel="parts", title="Parts, and the share of the largest")
beside = right.twinx()
beside.plot(levels, share, "s--", color="#c05621")
beside.set_ylabel("share of the largest", color="#c05621")
