"""
Hiking times
============

How long does it take to walk from one valley to everywhere, and back again? Tobler's hiking
function gives the time of a step from its slope, and going up takes longer than going down.

The elevation model is that of the Jacksboro fault in Tennessee, which ships with matplotlib. Its
coordinates are longitude and latitude; lengths are taken along the ellipsoid, row by row.
"""

import matplotlib.pyplot as plt
import numpy as np

import orograph as og
from orograph.cli.demo import jacksboro_fault

elevation = jacksboro_fault()
valley = (-84.17, 36.305)

# %%
# There and back
# --------------
# ``travel="from"`` is the time from the source to each cell, ``"to"`` that from each cell to it.

there = og.walking_time(elevation, [valley], outputs=("time", "back_direction"))
back = og.walking_time(elevation, [valley], travel="to")

hours = og.convert_units(there["time"], "h")
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
hours.plot.contourf(
    ax=axes, levels=range(9), cmap="magma_r", cbar_kwargs={"label": "hours from the valley"}
)
axes.plot(*valley, "*", color="white", markeredgecolor="black", markersize=16)
axes.set_title("Walking times")

# %%
# Where the way there takes longer than the way back
# --------------------------------------------------
# On the ridges it is more than on the plain, as one might think.

minutes = og.convert_units(there["time"] - back["time"], "min")
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
minutes.plot(ax=axes, cmap="RdBu_r", center=0, cbar_kwargs={"label": "minutes longer than back"})
axes.set_title("There, less back again")

# %%
# Ways to some summits, with their profiles
# -----------------------------------------

summits = [(-84.40, 36.43), (-84.38, 36.22), (-84.28, 36.18)]
paths = og.least_cost_path(there, summits)
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
heights = elevation.values
for path in paths:
    along = path.cells[::-1]  # from the valley up
    seconds = there["time"].values[tuple(along.T)]
    axes.plot(seconds / 3600, heights[tuple(along.T)], label=f"{path.cost / 3600:.1f} h")
axes.set(xlabel="hours", ylabel="height, m", title="Profiles over time")
axes.legend()
assert all(np.isfinite(path.cost) for path in paths)
