"""The least-cost network between habitat cores: all pairs of them, and their minimum spanning tree.

    python examples/habitat_network.py resistances.tif cores.tif network.png

``cores.tif`` has a number in the cells of each core and 0 or nodata elsewhere. Distances are those
between the middle cells of the cores, in cells times resistance. The index is made once; the table
of all pairs and the paths of the network come from it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

import orograph as og
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster


def middle_cells(cores: np.ndarray) -> dict[int, tuple[int, int]]:
    """For each core the one of its cells (row, column) that is nearest to its centroid."""
    middles = {}
    for core in np.unique(cores[cores > 0]).tolist():
        cells = np.argwhere(cores == core)
        middles[core] = tuple(cells[((cells - cells.mean(0)) ** 2).sum(1).argmin()].tolist())
    return middles


def main() -> None:
    """Compute and draw the network."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("resistances", type=Path)
    parser.add_argument("cores", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    resistance, cores = (open_raster(path) for path in (options.resistances, options.cores))
    whole = Window(0, 0, *resistance.shape)
    middles = middle_cells(np.nan_to_num(cores.read(whole)).astype(int))
    place = resistance.georeference.coords()
    x, y = place[resistance.georeference.x_name], place[resistance.georeference.y_name]
    points = [(float(x[column]), float(y[row])) for row, column in middles.values()]

    with tempfile.TemporaryDirectory() as folder:
        index = og.DistanceIndex.build(resistance, Path(folder, "index.zarr"), cell_size=1)
        table = index.distance_matrix(points).values
        # SciPy takes 0 for no edge: nothing is lost, as no two cores share their middle
        tree = minimum_spanning_tree(np.where(np.isfinite(table), table, 0)).tocoo()
        names = list(middles)
        links = sorted(zip(tree.data.tolist(), tree.row.tolist(), tree.col.tolist(), strict=True))
        paths = [index.path(points[a], points[b]) for _, a, b in links]
    for cost, a, b in links:
        print(f"core {names[a]} to core {names[b]}: {cost:.0f}")
    draw(options.picture, resistance.read(whole), resistance.nodata, x, y, points, paths)
    print(f"{len(points)} cores, {len(links)} links, drawn in {options.picture}")


def draw(picture, resistance, nodata, x, y, points, paths) -> None:
    """The links over the resistance surface."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    known = np.ma.masked_equal(resistance, nodata) if nodata is not None else resistance
    figure, axes = plt.subplots(figsize=(8, 8), layout="constrained")
    extent = (float(x[0]), float(x[-1]), float(y[-1]), float(y[0]))
    shown = axes.imshow(np.log10(np.maximum(known, 1)), extent=extent, cmap="YlGnBu_r")
    figure.colorbar(shown, ax=axes, shrink=0.7, label="resistance, powers of ten")
    for path in paths:
        axes.plot(*path.coordinates.T, color="crimson", linewidth=1.5)
    axes.plot(*np.array(points).T, "o", color="white", markeredgecolor="black")
    axes.set_axis_off()
    figure.savefig(picture, dpi=120)


if __name__ == "__main__":
    main()
