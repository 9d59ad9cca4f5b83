"""
A habitat network
=================

Which links between habitat patches are the cheapest to keep open? Patches are found in a mask, the
costs between them by an index, the network as the spanning tree of the table, and the room around
a link as a corridor.

The habitat is generated: a smooth random field stands for the quality of land, its best parts are
habitat, and the worse the land, the more it resists.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.sparse.csgraph import minimum_spanning_tree

import orograph as og

rng = np.random.default_rng(7)
quality = gaussian_filter(rng.standard_normal((300, 400)), 9)
quality = (quality - quality.min()) / np.ptp(quality)
resistance = 1 + 60 * (1 - quality) ** 3

# %%
# Patches
# -------
# The components of good land of at least 250 cells, each represented by its middle cell.

patches = og.connected_components(quality > 0.72, min_size=250)
labels = patches["labels"].values
places = []
for number in range(1, labels.max() + 1):
    cells = np.argwhere(labels == number)
    row, column = cells[((cells - cells.mean(0)) ** 2).sum(1).argmin()]
    places.append((float(column), float(row)))
print(len(places), "patches")

# %%
# The network
# -----------
# An index of the resistance answers all pairs at once. The spanning tree of its table joins all
# patches at the least cost.

index = og.DistanceIndex.build(resistance, "habitat-index.zarr", overwrite=True)
table = index.distance_matrix(places)
tree = minimum_spanning_tree(table.values).tocoo()
links = [index.path(places[a], places[b]) for a, b in zip(tree.row, tree.col)]
print("costs of the links:", np.sort(tree.data).round().astype(int))

figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
shown = axes.imshow(resistance, cmap="YlGn_r", vmax=40)
figure.colorbar(shown, ax=axes, label="resistance")
axes.contour(labels > 0, levels=[0.5], colors="black", linewidths=0.8)
for path in links:
    axes.plot(*path.coordinates.T, color="crimson", linewidth=2)
axes.set(title="Patches and the cheapest network between them", xticks=[], yticks=[])

# %%
# Room around the dearest link
# ----------------------------
# The corridor holds for each cell the cost of the best way between two patches through it.

dearest = int(tree.data.argmax())
ends = [places[tree.row[dearest]], places[tree.col[dearest]]]
through = og.corridor(*(og.cost_distance(resistance, [end]) for end in ends)).values
more = 100 * (through / through.min() - 1)
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
axes.imshow(quality, cmap="Greys_r", alpha=0.5)
shown = axes.imshow(np.where(more < 15, more, np.nan), cmap="viridis_r")
figure.colorbar(shown, ax=axes, label="% above the least cost")
axes.plot(*links[dearest].coordinates.T, color="crimson", linewidth=2)
axes.set(title="The corridor of the dearest link", xticks=[], yticks=[])
