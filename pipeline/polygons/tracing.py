"""Trace the regions of a raster part by part, and join what crosses the borders of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orograph.arguments.cells import whole_labels
from orograph.engines.sweep_problems import Table
from orograph.kernels.label.union_find import rem_components
from orograph.kernels.polygons.rings import (
    compile_kernels,
    join_walks,
    match_runs,
    number_regions,
    split_rings,
    trace_boundaries,
)
from orograph.polygons.job import TracingProblem
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells

SIDES = ("south", "north", "east", "west")
WALKS = ("corners", "starts", "first", "onward", "region")
BANDS = ", or draw bands of values with isochrones and levels"
"""Advice for values that are not labels."""


class Rings(NamedTuple):
    """Rings of all regions of a grid, region by region, the outer one of each first."""

    corners: Integers
    """Corners of the cells at which rings turn, row-major; a row has one more than the grid."""
    ends: Integers
    """Index in ``corners`` after the last corner of each ring."""
    region: Integers
    """Region of each ring, numbered as a scan meets their first cells."""
    labels: Array
    """Label of each region."""
    area: Integers | None = None
    """Number of the area to which each region belongs, where the grid wraps; None: its own."""


@dataclass(frozen=True)
class Tracing(TracingProblem):
    """Boundaries of the regions of a raster, as a problem whose parts need a cell around them."""

    shape: tuple[int, int]
    nodata: float | int | None
    backend: str = "numba"

    name = "polygonize"
    stage = "trace_boundaries"
    halo = 1

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk of a run, with a corner of a polygon to ten cells."""
        # labels of floats become whole numbers
        whole = 8 if cells.dtypes[0].kind == "f" else 0
        corners = round(cells.grid * 0.1)
        return Bytes(cells.itemsize + 30 + whole, checkpoints=corners * 16, table=corners * 200)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels for labels of a dtype; floats become int64."""
        (dtype,) = dtypes
        compile_kernels(np.dtype(np.int64) if dtype.kind == "f" else dtype)

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> Table:
        """Return the walks along boundaries in a part, its labels, and what lies at its border."""
        (given,) = cells
        ring = window.grow(1)
        inside = frame.within(ring)
        valid = valid_cells(given, self.nodata)
        if given.dtype.kind == "f":
            given = whole_labels(given, valid, frame, "labels", BANDS)
        padded, there = np.zeros(ring.shape, given.dtype), np.zeros(ring.shape, np.bool_)
        padded[inside], there[inside] = given, valid
        inner = np.ascontiguousarray(padded[1:-1, 1:-1])
        numbers, first = np.empty(window.shape, np.int64), np.empty(window.size, np.int64)
        count = number_regions(inner, np.ascontiguousarray(there[1:-1, 1:-1]), numbers, first)
        rows, columns = self.shape
        walks = trace_boundaries(padded, there, window.y, window.x, columns, numbers)
        # First cells in the grid, by which regions are numbered whatever the parts.
        y, x = np.divmod(first[:count], window.width)
        table = dict(zip(WALKS, walks, strict=True))
        table["labels"] = inner.reshape(-1)[first[:count]]
        table["cell"] = (y + window.y) * columns + x + window.x
        # Runs on the north and west sides are named by their own cells, those on the south and east
        # by the cells across: so the runs of two parts that meet have the same numbers. Along
        # columns cells are numbered column by column, so that a run is a range there too.
        along_row = window.y * columns + window.x + np.arange(window.width)
        along_column = window.x * rows + window.y + np.arange(window.height)
        table["north"] = _runs(numbers[0], along_row)
        table["south"] = _runs(numbers[-1], along_row + window.height * columns)
        table["west"] = _runs(numbers[:, 0], along_column)
        table["east"] = _runs(numbers[:, -1], along_column + window.width * rows)
        return table


def _runs(numbers: Integers, places: Integers) -> Integers:
    """Return the runs of cells of one region along a side, shape (n, 3): first, last, region.

    ``places`` are those of the cells across the side, or of the cells themselves, in a row or
    column of the grid.
    """
    # A run ends where the region changes; runs of nodata (-1) are dropped.
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    first, last = np.append(0, cuts), np.append(cuts, numbers.size) - 1
    kept = numbers[first] >= 0
    first, last = first[kept], last[kept]
    return np.stack([places[first], places[last], numbers[first]], axis=1)


def join_tables(tables: Sequence[Table], shape: tuple[int, int], wraps: bool = False) -> Rings:
    """Return the rings of all regions, given the walks in the parts of a grid.

    Regions on both sides of the seam of a grid that ``wraps`` stay two, of one area.
    """
    counts = np.array([table["labels"].size for table in tables])
    before = np.cumsum(counts) - counts
    whole = {name: np.concatenate([t[name] for t in tables]) for name in ("labels", "cell")}
    root = _join_regions(tables, before, whole["labels"])
    first, onward, corners = (
        np.concatenate([t[name] for t in tables]) for name in ("first", "onward", "corners")
    )
    region = np.concatenate([t["region"] + b for t, b in zip(tables, before, strict=True)])
    sizes = np.concatenate([np.diff(t["starts"]) for t in tables])
    starts = np.append(0, np.cumsum(sizes))
    # in the order of the sides, so that nothing depends on the parts
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    # Each walk goes on with the one whose first side is the side on which it ends.
    onward = order[np.searchsorted(first[order], onward)]
    joined, ends = np.empty_like(corners), np.empty((first.size, 2), np.int64)
    count, _ = join_walks(corners, starts, onward, joined, ends)
    # A ring turns at four corners at least.
    rings, found = np.empty_like(corners), np.empty((corners.size // 4, 3), np.int64)
    number = split_rings(joined, ends[:count], shape[1], rings, found)
    end, walk, area = found[:number].T
    of_ring = root[region[ends[walk, 1]]]
    # Regions are numbered by their first cells, as a scan of the whole raster would meet them.
    roots, rank = np.unique(root, return_inverse=True)
    least = np.full(roots.size, np.iinfo(np.int64).max)
    np.minimum.at(least, rank, whole["cell"])
    names = np.empty(roots.size, np.int64)
    names[np.argsort(least)] = np.arange(roots.size)
    labels = np.empty(roots.size, whole["labels"].dtype)
    labels[names[rank]] = whole["labels"]
    of_ring = names[np.searchsorted(roots, of_ring)]
    begin = np.append(0, end)[:-1]
    # Region by region, the outer ring, which has a positive area, before the holes; these by their
    # first corners.
    order = np.lexsort((rings[begin], area < 0, of_ring))
    area = None
    if wraps:
        # of each region of a part the region of the grid
        of_part = names[rank]
        one, other = (of_part[cells] for cells in _across(tables, before, shape, whole["labels"]))
        area = rem_components(roots.size, one, other)
    return Rings(*_take_rings(rings, begin, end, order), of_ring[order], labels, area)


def _take_rings(
    rings: Integers, begin: Integers, end: Integers, order: Integers
) -> tuple[Integers, Integers]:
    """Return the corners of rings in another order, and where each ring ends in them."""
    sizes = (end - begin)[order]
    ends = np.cumsum(sizes)
    # Of each corner in the new order its place in the old one.
    places = np.arange(rings.size) - np.repeat(ends - sizes - begin[order], sizes)
    return rings[places], ends


def _across(
    tables: Sequence[Table], before: Integers, shape: tuple[int, int], labels: Array
) -> tuple[Integers, Integers]:
    """Return pairs of regions of parts, of one label, that meet at the seam of the grid."""
    last = shape[0] * shape[1]
    east, west = (
        np.concatenate([t[name] + [0, 0, b] for t, b in zip(tables, before, strict=True)])
        for name in ("east", "west")
    )
    # Runs along columns are ranges of cells numbered column by column, in the east of those across.
    east = east[east[:, 0] >= last] - [last, last, 0]
    west = west[west[:, 0] < shape[0]]
    east, west = (runs[np.argsort(runs[:, 0])] for runs in (east, west))
    sides = (np.ascontiguousarray(side) for side in (*east[:, :2].T, *west[:, :2].T))
    of_east, of_west = match_runs(*sides).T
    first, second = east[of_east, 2], west[of_west, 2]
    same = labels[first] == labels[second]
    return first[same], second[same]


def _join_regions(tables: Sequence[Table], before: Integers, labels: Array) -> Integers:
    """Return for each region of each part the first of those that are one with it."""
    sides = {}
    for name in SIDES:
        runs = [t[name] + [0, 0, b] for t, b in zip(tables, before, strict=True)]
        joined = np.concatenate(runs)
        sides[name] = joined[np.argsort(joined[:, 0])]
    pairs = []
    for one, other in (("south", "north"), ("east", "west")):
        a, b = sides[one], sides[other]
        of_a, of_b = match_runs(*(np.ascontiguousarray(r) for r in (*a[:, :2].T, *b[:, :2].T))).T
        pairs.append(np.stack([a[of_a, 2], b[of_b, 2]]))
    first, second = np.concatenate(pairs, axis=1)
    # Only runs of one label that overlap across a border belong to one region.
    same = labels[first] == labels[second]
    found: Integers = rem_components(labels.size, first[same], second[same])
    return found
