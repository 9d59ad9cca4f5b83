"""The least-cost network between habitat cores: all pairs of them, and their minimum spanning tree.

    python examples/habitat_network.py resistances.tif cores.shp core_id network.gpkg network.png

Cores are areas in any CRS, with a column of labels. Distances are those between a point inside
each, in cells times resistance. The index is made once; the table of all pairs and the paths of the
network come from it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import geopandas
import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree

import orograph as og


def main() -> None:
    """Compute, write and draw the network."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("resistances", type=Path)
    parser.add_argument("cores", type=Path)
    parser.add_argument("label", help="column that names the cores")
    parser.add_argument("network", type=Path, help="vector file to write")
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    cores = geopandas.read_file(options.cores)
    names = cores[options.label].tolist()
    points = cores.set_geometry(cores.representative_point())

    with tempfile.TemporaryDirectory() as folder:
        index = og.DistanceIndex.build(options.resistances, Path(folder, "index.zarr"), cell_size=1)
        table = index.distance_matrix(points, snap=True).values
        # SciPy takes 0 for no edge: nothing is lost, as no two cores share a point
        tree = minimum_spanning_tree(np.where(np.isfinite(table), table, 0)).tocoo()
        links = sorted(zip(tree.data.tolist(), tree.row.tolist(), tree.col.tolist(), strict=True))
        paths = og.LeastCostPaths(
            index.path(points[a : a + 1], points[b : b + 1], snap=True) for _, a, b in links
        )
    for cost, a, b in links:
        print(f"core {names[a]} to core {names[b]}: {cost:.0f}")
    paths.to_file(options.network, overwrite=True)

    axes = og.plot(options.resistances)
    for layer in (cores, paths):
        og.plot(layer, ax=axes)
    axes.set_title("Least-cost network of the cores")
    axes.figure.savefig(options.picture, dpi=120)
    print(f"{len(names)} cores, {len(links)} links, in {options.network} and {options.picture}")


if __name__ == "__main__":
    main()
