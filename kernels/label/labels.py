"""Provisional labels of a tile, stored by runs, by cells, or by cells as a GPU encodes them.

All forms offer the same functions, and write labels by a look-up in a table of the final
numbers: once a run, or once a cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from orograph.kernels.label.renumber import renumber
from orograph.kernels.label.runs import find_cells, read_labels, write_runs
from orograph.tiles.arrays import Indices, empty
from orograph.tiles.format.codec import decompress

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class RunLabels:
    """Labels of a tile stored by runs: see tile.py."""

    width: int
    """Columns of the tile."""
    starts: npt.NDArray[np.uint64]
    """(h, words): bits of cells where a run starts."""
    edges: npt.NDArray[np.uint64]
    """(h, words): bits of cells where the value changes."""
    base: Indices
    """(h + 1,): number of runs before each row."""
    component: npt.NDArray[np.uint32]
    """(runs,): label of each run, from 1."""

    def first_cells(self, first: Integers) -> Indices:
        """Return the row-major indices of the first cells of some runs, in ascending order."""
        cells = np.empty(first.size, np.int64)
        find_cells(self.starts, self.base, self.width, first, cells)
        return cells

    def at(self, cells: Indices) -> Indices:
        """Return the labels of cells, given by their row-major indices."""
        labels = np.empty(cells.size, np.int64)
        runs = self.starts, self.edges, self.base, self.component
        read_labels(*runs, self.width, cells, labels)
        return labels

    def saved(self) -> RunLabels:
        """Return the labels as they are saved: themselves."""
        return self

    def write(self, table: Indices, out: Integers) -> None:
        """Write ``table[label]`` of each cell to ``out``, (h, w), rows contiguous."""
        runs = self.starts, self.edges, self.base, self.component
        write_runs(*runs, self.width, table, *as_line(out))


@dataclass(frozen=True)
class CellLabels:
    """Labels of a tile stored by cells, as computed by a GPU."""

    labels: npt.NDArray[np.int32] | npt.NDArray[np.uint16]
    """(h, w): 0 for background and nodata."""

    def first_cells(self, first: Integers) -> Indices:
        """Return the row-major indices of some first cells, which they are."""
        return first.astype(np.int64)

    def at(self, cells: Indices) -> Indices:
        """Return the labels of cells, given by their row-major indices."""
        return self.labels.ravel()[cells].astype(np.int64)

    def saved(self) -> CellLabels:
        """Return the labels as they are saved: themselves."""
        return self

    def write(self, table: Indices, out: Integers) -> None:
        """Write ``table[label]`` of each cell to ``out``, (h, w), rows contiguous."""
        renumber(self.labels, table, *as_line(out))


@dataclass(frozen=True)
class EncodedLabels:
    """Labels of a tile stored by cells, as a Blosc frame that a GPU has made and can decode."""

    frame: npt.NDArray[np.uint8]
    """Blosc frame of a square tile, whose cells beyond the labels are 0."""
    side: int
    """Cells a side of that square."""
    shape: tuple[int, int]
    """Rows and columns of the labels."""
    width: int
    """Bytes of a label: 2 if they are uint16, 4 if they are int32."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the labels."""
        return np.dtype(np.uint16 if self.width == 2 else np.int32)

    def write(self, table: Indices, out: Integers) -> None:
        """Write ``table[label]`` of each cell to ``out``, (h, w), rows contiguous."""
        cells = np.empty((self.side, self.side), self.dtype)
        decompress(self.frame, cells)
        rows, columns = self.shape
        CellLabels(np.ascontiguousarray(cells[:rows, :columns])).write(table, out)


Labels = RunLabels | CellLabels | EncodedLabels
"""Labels of a tile as they are saved."""


def write_labels(
    labels: Labels, table: Indices, shape: tuple[int, int], dtype: npt.DTypeLike
) -> Integers:
    """Return ``table[label]`` of each cell of a tile, in the memory of the backend."""
    out: Integers = empty(shape, dtype)
    labels.write(table, out)
    return out


def as_line(out: Integers) -> tuple[Integers, int]:
    """Return a view in one dimension from the first cell to the last, and the cells a row takes.

    Compiled functions write contiguous arrays by whole vectors, which a window is not.
    """
    h, w = out.shape
    pitch = out.strides[0] // out.itemsize
    if out.strides[1] != out.itemsize or pitch < w:
        raise ValueError(f"out: strides {out.strides} are not those of contiguous rows")
    # To the last cell of the last row: the rest of its pitch may lie beyond the memory.
    return as_strided(out, ((h - 1) * pitch + w,), (out.itemsize,)), pitch
