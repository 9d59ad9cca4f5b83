"""Prominences of peaks as Higra and cripser have them, as they are recorded.

    pip install higra cripser numpy rasterio
    python tests/peaks_of_peers.py ../shared/data

Needs nothing of orograph. The rasters are integers, so nothing depends on how numbers are rounded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

RECORD = Path(__file__).with_suffix(".npz")
REAL = {"fortbragg": "nc_fortbragg_2016.tif", "bigtujunga": "srtm_bigtujunga30m_utm11.tif"}
SIDE = 240  # of the part in the middle of a real raster that is compared

Heights = npt.NDArray[np.int64]


def distinct_heights() -> Heights:
    """Return terrain whose heights all differ, shape (90, 70)."""
    rng = np.random.default_rng(7)
    heights = np.zeros((90, 70), np.int64)
    for size in (2, 4, 8, 16, 32):
        coarse = rng.integers(0, 20 * size, (90 // size + 1, 70 // size + 1))
        heights += np.kron(coarse, np.ones((size, size), np.int64))[:90, :70]
    return heights * heights.size + rng.permutation(heights.size).reshape(heights.shape)


def real_heights(path: Path) -> Heights:
    """Return the middle of a raster in thousandths of its unit."""
    import rasterio

    with rasterio.open(path) as source:
        window = tuple(((n - SIDE) // 2, (n + SIDE) // 2) for n in source.shape)
        part = source.read(1, window=window).astype(np.float64)
        assert source.dataset_mask(window=window).all()
    assert np.isfinite(part).all()
    return np.rint(part * 1000).astype(np.int64)


def dynamics(heights: Heights, connectivity: int) -> Heights:
    """Return the dynamics of the maximum that each cell belongs to, by Higra; 0 on slopes."""
    import higra

    graph = getattr(higra, f"get_{connectivity}_adjacency_graph")(heights.shape)
    tree, altitudes = higra.component_tree_max_tree(graph, heights.astype(np.float64))
    of_nodes = higra.attribute_dynamics(tree, altitudes)
    extrema = higra.attribute_extrema(tree, altitudes)[tree.parents()[: heights.size]]
    found = np.where(extrema, of_nodes[: heights.size], 0).reshape(heights.shape)
    return found.astype(np.int64)


def persistence(heights: Heights) -> Heights:
    """Return (height of a peak, height of its col), sorted, by cripser and 4 neighbours."""
    import cripser

    compute = getattr(cripser, "compute_ph", None) or cripser.computePH
    found = compute(-heights.astype(np.float64), maxdim=0)
    pairs = -found[(found[:, 1] < found[:, 2]) & (found[:, 2] < 1e300)][:, 1:3]
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int64)


def main(folder: Path) -> None:
    """Write the record."""
    record = {}
    rasters = {name: real_heights(folder / "dem" / file) for name, file in REAL.items()}
    rasters["distinct"] = distinct_heights()
    for name, heights in rasters.items():
        record[f"{name} cripser"] = persistence(heights)
        for connectivity in (4, 8):
            found = dynamics(heights, connectivity)
            if name != "distinct":  # the cells of a flat top all have its dynamics
                found = np.unique(found[found > 0])
            record[f"{name} higra {connectivity}"] = found
    np.savez_compressed(RECORD, **record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
