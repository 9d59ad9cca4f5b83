"""Readings of the terrain on one core, beside a peer, in one run.

    python benchmarks/terrain_run.py --side 2048
    pip install pyflwdir cripser higra xarray-spatial
    python benchmarks/terrain_run.py --operations fill peaks
    python benchmarks/terrain_run.py --store 8192 --workers 2      # filling from Zarr to Zarr

The peers of filling are scikit-image's `reconstruction` by erosion, and if they are installed
pyflwdir's `fill_depressions` and xarray-spatial's `fill`; those of peaks are cripser and the
dynamics of Higra. Passes of 256 points stand beside our own minimum spanning forest. All hold the
raster in memory; ours runs in tiles of 1024 by one thread. Calls are interleaved after a rehearsal,
answers compared, but for Higra's, which are of another kind; figures are medians of the processor's
time. From Zarr to Zarr, filling stands beside our own forest, by the time on the clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from record import Record, add_option
from skimage.morphology import reconstruction
from terrain import Heights, fractal, mirrored_store, noise

import orograph as og

Call = Callable[[Heights], Any]
TILE = 1024
SURFACES = {"terrain": fractal, "noise": noise}


def fill(heights: Heights) -> Heights:
    """Filled by orograph."""
    filled: Heights = og.fill_depressions(heights, tile=TILE)["filled"].values
    return filled


def reconstruct(heights: Heights) -> Heights:
    """Filled by scikit-image."""
    seed = np.full_like(heights, heights.max())
    seed[[0, -1]], seed[:, [0, -1]] = heights[[0, -1]], heights[:, [0, -1]]
    filled: Heights = reconstruction(seed, heights, method="erosion", footprint=np.ones((3, 3)))
    return filled


def find_peaks(heights: Heights) -> Heights:
    """Heights of the peaks and of their cols by orograph, by 4 neighbours, sorted."""
    found = og.peaks(heights, connectivity=4, tile=TILE)
    found = found.isel(peak=found["parent"].values >= 0)
    return _sorted_pairs(found["elevation"].values, found["col_elevation"].values)


def _sorted_pairs(peak: Any, col: Any) -> Heights:
    return np.stack([peak, col])[:, np.lexsort((col, peak))].astype(np.float32)


def find_passes(heights: Heights) -> None:
    """Make the passes between 256 points."""
    cells = np.random.default_rng(0).integers(0, min(heights.shape), (256, 2))
    og.pass_elevation(heights, cells, tile=TILE)


def span(heights: Heights) -> None:
    """Make the minimum spanning forest."""
    og.minimum_spanning_forest(heights, tile=TILE)


def _installed(name: str) -> Any:
    """Return a module, or None after a word on how to compare with it."""
    try:
        return import_module(name)
    except ImportError:
        print(f"{name} is not installed: `pip install` it to compare", flush=True)
        return None


def peers() -> dict[str, dict[str, Call]]:
    """For each operation, ours and those of others that are installed."""
    filling: dict[str, Call] = {"orograph": fill, "scikit-image": reconstruct}
    peaks: dict[str, Call] = {"orograph": find_peaks}
    if pyflwdir := _installed("pyflwdir.dem"):
        filling["pyflwdir"] = lambda heights: pyflwdir.fill_depressions(heights, nodata=-9999.0)[0]
    if xrspatial := _installed("xrspatial.hydro"):
        filling["xrspatial"] = lambda heights: xrspatial.fill(xr.DataArray(heights)).values
    if cripser := _installed("cripser"):
        compute = getattr(cripser, "compute_ph", None) or cripser.computePH

        def pairs(heights: Heights) -> Heights:
            found = compute(-heights.astype(np.float64), maxdim=0)
            found = found[(found[:, 1] < found[:, 2]) & (found[:, 2] < 1e30)]
            return _sorted_pairs(-found[:, 1], -found[:, 2])

        peaks["cripser"] = pairs
    if higra := _installed("higra"):

        def dynamics(heights: Heights) -> None:
            graph = higra.get_4_adjacency_graph(heights.shape)
            tree, altitudes = higra.component_tree_max_tree(graph, heights)
            higra.attribute_dynamics(tree, altitudes)

        peaks["higra"] = dynamics
    passes: dict[str, Call] = {"orograph": find_passes, "our forest": span}
    return {"fill": filling, "peaks": peaks, "passes": passes}


def stored(options: argparse.Namespace, record: Record) -> None:
    """Fill depressions, and make the forest, from Zarr to Zarr on a cluster."""
    side, out = options.store, options.folder / "orograph-terrain-out.zarr"
    operations = {"filling": og.fill_depressions, "our forest": og.minimum_spanning_forest}
    with og.cluster(n_workers=options.workers, dashboard_address=None):
        for surface in options.surfaces:
            store = options.folder / f"orograph-{surface}-{side}x{side}-{TILE}.zarr"
            mirrored_store(store, SURFACES[surface](min(side, 4096)), side, TILE)
            speeds: dict[str, list[float]] = {who: [] for who in operations}
            for turn in range(options.repeat + 1):
                for who, operation in operations.items():
                    start = time.perf_counter()
                    operation(store, out=out, overwrite=True)
                    if turn:
                        speeds[who].append(side**2 / (time.perf_counter() - start) / 1e6)
            for who, each in speeds.items():
                what = f"{who}, {surface} {side}², Zarr to Zarr"
                record.add(what, f"orograph, {options.workers} workers", "Mcell/s", each)
                shown = ", ".join(f"{speed:.1f}" for speed in sorted(each))
                median = statistics.median(each)
                print(f"{what}, {options.workers} workers: {median:.1f} Mcell/s ({shown})")


def main() -> None:
    calls = peers()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--operations", nargs="+", choices=calls, default=list(calls))
    parser.add_argument("--surfaces", nargs="+", choices=SURFACES, default=list(SURFACES))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--store", type=int, default=0, help="side of runs from Zarr to Zarr")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    og.config.set(threads=1)
    if options.store:
        stored(options, record)
        record.write()
        return
    for surface in options.surfaces:
        heights = SURFACES[surface](options.side)
        for operation in options.operations:
            spent: dict[str, list[float]] = {who: [] for who in calls[operation]}
            for turn in range(options.repeat + 1):
                answers = []
                for who, call in calls[operation].items():
                    start = time.process_time()
                    answers.append(call(heights))
                    if turn:
                        spent[who].append(time.process_time() - start)
                for answer in (given for given in answers[1:] if given is not None):
                    # pyflwdir adds differences to heights, which rounds
                    np.testing.assert_allclose(answers[0], answer, rtol=1e-6)
            ours = statistics.median(spent["orograph"])
            for who, times in spent.items():
                speeds = [heights.size / took / 1e6 for took in times]
                what = f"{operation}, {surface} {options.side}²"
                record.add(what, who, "Mcell/s", speeds, peer=who != "orograph")
                took = statistics.median(times)
                print(
                    f"{operation} {surface} {options.side}^2, {who:12s}"
                    f"{heights.size / took / 1e6:8.1f} Mcell/s, orograph {took / ours:.1f} times",
                    flush=True,
                )
    record.write()


if __name__ == "__main__":
    main()
