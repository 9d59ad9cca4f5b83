"""The label kernel beside SciPy and scikit-image, and Rem's algorithm beside hook and compress.

    python benchmarks/label_kernel.py --size 4096 --repeat 5 --graphs ../shared/data/graphs

One core. Runs are interleaved; figures are medians, with the fastest and slowest run. SciPy labels
one class a call, so on terrain classes it is called once a class. Our time includes each
component's size, bounding box and first cell, the others' does not. The graphs are those of the
folder, if there is one (DIMACS, PACE, Matrix Market or edge lists, xz or not), and a random half of
a grid's edges, in the order of the rows and shuffled.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from forest_kernel import report, time_interleaved
from papers.hook import METHODS, components
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from skimage import measure
from terrain import fractal

from orograph.kernels.label.tile import label_tile

EIGHT = np.ones((3, 3), bool)
GRAPHS = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "graphs"


def rasters(side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Masks and classes, uint8."""
    rng = np.random.default_rng(0)
    yield "noise 60 %", (rng.random((side, side)) < 0.6).astype(np.uint8)
    waves = ndimage.gaussian_filter(rng.standard_normal((side, side)).astype(np.float32), 8)
    yield "blobs", (waves > 0).astype(np.uint8)
    heights = fractal(side)
    bounds = np.quantile(heights, np.linspace(0, 1, 9)[1:-1])
    yield "terrain, 8 classes", (np.digitize(heights, bounds) + 1).astype(np.uint8)
    yield "noise of 4 classes", rng.integers(0, 5, (side, side)).astype(np.uint8)


def scipy_by_class(classes: np.ndarray) -> int:
    """Number of components by a call a class."""
    values = np.unique(classes)
    return sum(ndimage.label(classes == v, EIGHT)[1] for v in values[values > 0])


def compare_rasters(side: int, repeat: int) -> None:
    """Print million cells a second."""
    for name, classes in rasters(side):
        mask = int(classes.max()) == 1
        scipy = partial(ndimage.label, classes, EIGHT) if mask else partial(scipy_by_class, classes)
        calls: dict[str, Callable[[], object]] = {
            "orograph": partial(label_tile, classes, None),
            "scipy.ndimage.label": scipy,
            "skimage.measure.label": partial(measure.label, classes, connectivity=2),
        }
        count = label_tile(classes, None).first.size
        assert count == scipy_by_class(classes) == measure.label(classes, connectivity=2).max()
        spent = time_interleaved(calls, repeat)
        for what, seconds in spent.items():
            report(f"{name}, {what}", classes.size, seconds)
        ratio = spent["scipy.ndimage.label"][0] / spent["orograph"][0]
        print(f"{name}: {count} components, {ratio:.1f} times as fast as SciPy", flush=True)
        grids = {dtype: classes.astype(dtype) for dtype in ("int16", "float32", "float64")}
        more = {f"orograph {d}": partial(label_tile, grid, None) for d, grid in grids.items()}
        more["orograph, 4 neighbours"] = partial(label_tile, classes, None, 4)
        for what, seconds in time_interleaved(more, repeat).items():
            report(f"{name}, {what}", classes.size, seconds)


def read_graph(path: Path) -> tuple[int, np.ndarray, np.ndarray]:
    """Number of vertices, and the ends of the edges."""
    data = path.read_bytes()
    data = lzma.decompress(data) if path.suffix == ".xz" else data
    lines = [line.split() for line in data.decode().splitlines()]
    edges = [line[1:3] if line[0] == "a" else line[:2] for line in lines if line[0] not in "cp%"]
    a, b = np.array(edges, np.uint32).T
    return int(max(a.max(), b.max())) + 1, a.copy(), b.copy()


def graphs(folder: Path) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """Names, numbers of vertices and ends of edges."""
    if not folder.is_dir():
        print(f"no {folder}: graphs of files are left out; pass --graphs")
    for path in sorted(folder.glob("*.*")):
        yield path.name.split(".")[0], *read_graph(path)
    side = 2048
    cell = np.arange(side * side, dtype=np.uint32).reshape(side, side)
    a = np.concatenate([cell[:, :-1].ravel(), cell[:-1].ravel()])
    b = np.concatenate([cell[:, 1:].ravel(), cell[1:].ravel()])
    rng = np.random.default_rng(0)
    half = np.flatnonzero(rng.random(a.size) < 0.5)
    yield "half a grid", cell.size, a[half], b[half]
    rng.shuffle(half)
    yield "half a grid, shuffled", cell.size, a[half], b[half]


def compare_graphs(folder: Path, repeat: int) -> None:
    """Print milliseconds: the comparison of Hellås (Bergen 2018), section 6.3, on one core."""
    columns = [*METHODS, "scipy"]
    print(f"{'milliseconds':24s}{'vertices':>10s}{'edges':>10s}", end="")
    print("".join(f"{column:>12s}" for column in columns), "  hook / rem")
    for name, n, a, b in graphs(folder):
        graph = coo_array((np.ones(a.size, np.int8), (a, b)), shape=(n, n)).tocsr()
        calls: dict[str, Callable[[], object]] = {
            method: partial(components, n, a, b, method) for method in METHODS
        }
        calls["scipy"] = partial(connected_components, graph, directed=False)
        roots = [components(n, a, b, method) for method in METHODS]
        assert all(np.array_equal(roots[0], other) for other in roots[1:])
        assert np.unique(roots[0]).size == connected_components(graph, directed=False)[0]
        spent = {what: s[0] for what, s in time_interleaved(calls, repeat).items()}
        print(f"{name:24s}{n:10d}{a.size:10d}", end="")
        print("".join(f"{spent[column] * 1e3:12.2f}" for column in columns), end="")
        print(f"{spent['hook'] / spent['rem']:12.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--graphs", type=Path, default=GRAPHS)
    options = parser.parse_args()
    compare_rasters(options.size, options.repeat)
    compare_graphs(options.graphs, 2 * options.repeat + 1)


if __name__ == "__main__":
    main()
