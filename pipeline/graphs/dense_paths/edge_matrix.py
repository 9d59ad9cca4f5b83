"""Read edge lengths block by block from any kind of matrix that users pass.

A block comes in the dtype in which distances are computed, with infinity (int64: ``BARRIER``)
where there is no edge and 0 on the diagonal, unless a loop is negative.
"""

from __future__ import annotations

import math
import os
import sys
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import product, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil

from orograph.arguments.settings import thread_count
from orograph.kernels.minplus.lanes import BARRIER
from orograph.tiles.arguments import as_plain, check_path, is_number, shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import refuse_large_graph
from orograph.tiles.graph.sparse import entries_of, is_sparse
from orograph.tiles.raster.array import is_cupy

if TYPE_CHECKING:
    from scipy import sparse

DTYPES = ("float64", "float32", "int64")
SCAN = 256
"""Least number of rows and columns that are scanned together; four times it for arrays in
memory."""


class EdgeStatistics(NamedTuple):
    """Number of edges of a graph, shortest and greatest length, and a checksum."""

    edges: int
    least: float
    """Length of the shortest edge, 0 if there is none."""
    greatest: float
    """Greatest absolute value of a length."""
    checksum: int


@dataclass(frozen=True)
class EdgeMatrix:
    """A square matrix of edge lengths, from row to column."""

    values: Any
    """Edge lengths, as an object that has a shape and can be sliced, or a CSR array."""
    n: int
    dtype: np.dtype[Any]
    no_edge: float | None

    def block(self, rows: slice, columns: slice) -> Array:
        """Return the edge lengths between a range of tails and a range of heads."""
        if is_sparse(self.values):
            part = self.values[rows, columns].tocoo()
            lengths = self._lengths(part.data, rows, columns)
            block = self._none((rows.stop - rows.start, columns.stop - columns.start))
            block[part.row, part.col] = lengths
        else:
            block = self._lengths(np.asarray(self.values[rows, columns]), rows, columns)
        # The diagonal, where it crosses the block: a path without edges has length 0, a loop counts
        # only if it is negative.
        for v in range(max(rows.start, columns.start), min(rows.stop, columns.stop)):
            at = v - rows.start, v - columns.start
            block[at] = min(block[at], 0)
        return block

    def _none(self, shape: tuple[int, int]) -> Array:
        return np.full(shape, BARRIER if self.dtype.kind == "i" else np.inf, self.dtype)

    def _lengths(self, values: Array, rows: slice, columns: slice) -> Array:
        """Convert matrix values to lengths in a new array; refuse unusable values."""
        gone = np.zeros(values.shape, bool)
        if self.no_edge is not None:
            gone = values == self.no_edge
        if values.dtype.kind == "f":
            gone |= np.isnan(values) | (values == np.inf)
            if (values == -np.inf).any():
                where = f"rows {rows.start} to {rows.stop}, columns {columns.start} to "
                raise InputError(
                    f"graph: an edge in {where}{columns.stop} has length -inf; lengths are finite"
                )
        if self.dtype.kind != "i":
            with np.errstate(over="ignore"):
                lengths = np.array(values, self.dtype)
            lengths[gone] = np.inf
            # The dtype was too small for a length that is finite.
            if np.count_nonzero(np.isinf(lengths)) > np.count_nonzero(gone):
                wrong = values[np.isinf(lengths) & ~gone][0]
                raise InputError(
                    f"graph: an edge has length {wrong}, beyond {np.finfo(self.dtype).max:g}, the "
                    f"largest {self.dtype}; pass dtype='float64', or lengths in a larger unit"
                )
            return lengths
        # NaN and infinity have no integer, so entries without an edge are 0 until the end.
        kept = np.where(gone, 0, values)
        lengths = kept.astype(np.int64)
        if (lengths != kept).any():
            wrong = kept[lengths != kept][0]
            raise InputError(
                f"graph: an edge has length {wrong}, no whole number; pass dtype='float64'"
            )
        if lengths.size and max(-int(lengths.min()), int(lengths.max())) >= BARRIER // 2:
            raise InputError(
                f"graph: lengths go from {lengths.min()} to {lengths.max()}; with dtype='int64' "
                f"they lie between -2**59 and 2**59: pass dtype='float64'"
            )
        lengths[gone] = BARRIER
        return lengths

    def reach(self, block: Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the entries of a block that hold an edge or a path."""
        there: npt.NDArray[np.bool_] = block < (BARRIER if self.dtype.kind == "i" else np.inf)
        return there

    @cached_property
    def statistics(self) -> EdgeStatistics:
        """Statistics of all edges, read once."""
        if is_sparse(self.values):
            return self._sparse_statistics()
        here = isinstance(self.values, np.ndarray)
        # whole chunks of what is stored, so that each is decoded once
        high, wide = (
            -(-SCAN // chunk) * chunk if isinstance(chunk, int) and chunk else SCAN << 2 * here
            for chunk in getattr(self.values, "chunks", None) or (0, 0)
        )
        spans = [
            [slice(begin, min(begin + side, self.n)) for begin in range(0, self.n, side)]
            for side in (high, wide)
        ]
        parts: Iterable[EdgeStatistics]
        if here:
            with ThreadPoolExecutor(thread_count()) as threads:
                parts = list(threads.map(self._block_statistics, *zip(*product(*spans))))
        else:
            parts = starmap(self._block_statistics, product(*spans))
        edges, least, greatest, checksum = 0, 0.0, 0.0, 0
        for part in parts:
            edges += part.edges
            least, greatest = min(least, part.least), max(greatest, part.greatest)
            checksum = zlib.crc32(part.checksum.to_bytes(4, "little"), checksum)
        return EdgeStatistics(edges, least, greatest, checksum)

    def _block_statistics(self, rows: slice, columns: slice) -> EdgeStatistics:
        block = self.block(rows, columns)
        there = block[self.reach(block)]
        # Every cell of the diagonal counts as reached, and none is an edge.
        loops = max(0, min(rows.stop, columns.stop) - max(rows.start, columns.start))
        least = float(there.min(initial=0))
        greatest = max(-least, float(there.max(initial=0)))
        return EdgeStatistics(there.size - loops, least, greatest, zlib.crc32(block.tobytes()))

    def _sparse_statistics(self) -> EdgeStatistics:
        coo = self.values.tocoo()
        lengths = self._lengths(coo.data, slice(0, self.n), slice(0, self.n))
        there = self.reach(lengths)
        loops = coo.row == coo.col
        there &= ~loops | (lengths < 0)  # others are not edges
        rows, columns, lengths = coo.row[there], coo.col[there], lengths[there]
        checksum = 0
        for part in (rows.astype(np.int64), columns.astype(np.int64), lengths):
            checksum = zlib.crc32(part.tobytes(), checksum)
        least = min(0.0, float(lengths.min(initial=0)))
        greatest = max(-least, float(lengths.max(initial=0)))
        return EdgeStatistics(int((rows != columns).sum()), least, greatest, checksum)

    def as_sparse(self) -> sparse.csr_array:
        """Return the edges as a CSR array, without loops, including edges of length 0."""
        if not is_sparse(self.values):
            needed = self.n**2 * (2 * self.dtype.itemsize + 2)
            free = psutil.virtual_memory().available
            if needed > free:
                raise InputError(
                    f"graph: to search a dense matrix of {self.n} x {self.n} lengths from single "
                    f"vertices takes {needed} bytes, and {free} are free; pass its edges as a "
                    "SciPy sparse array, or use method='floyd-warshall' with out="
                )
            block = self.block(slice(0, self.n), slice(0, self.n))
            rows, columns = np.nonzero(self.reach(block) & ~np.eye(self.n, dtype=bool))
            data = block[rows, columns]
        else:
            coo = self.values.tocoo()
            whole = slice(0, self.n)
            data = self._lengths(coo.data, whole, whole)
            keep = self.reach(data) & (coo.row != coo.col)
            rows, columns, data = coo.row[keep], coo.col[keep], data[keep]
        from scipy import sparse  # slow to import

        entries = data.astype(np.float64), (rows, columns)
        return sparse.csr_array(entries, shape=(self.n, self.n))


def open_edges(graph: Any, dtype: str, no_edge: float) -> EdgeMatrix:
    """Open an array, a sparse array or a stored Zarr array as a matrix of edge lengths.

    In a dense one ``no_edge`` means that there is none; a sparse one may store zeros as edges.

    Raises
    ------
    InputError
        If it is not a square matrix of numbers.
    """
    no_edge = as_plain(no_edge)
    if not is_number(no_edge) or sys.float_info.max < abs(no_edge) < math.inf:  # an int may be
        raise InputError(
            f"no_edge: {shown(no_edge)}; it must be a number, such as 0, or inf to make zeros edges"
        )
    values = graph
    if hasattr(values, "to_numpy") and not hasattr(values, "dtype"):
        values = values.to_numpy()  # pandas
    if isinstance(values, (str, os.PathLike)):
        values = _open_array(values)
    if is_sparse(values):
        if len(values.shape) == 2:
            refuse_large_graph(max(values.shape), values.nnz, "graph")
            values = _shortest_of_parallel(values)
    else:
        values = getattr(values, "data", values) if hasattr(values, "dims") else values
        if is_cupy(values):
            raise InputError(
                "graph: an array of CuPy, which all_pairs does not read; pass graph.get(), and "
                "backend='cuda' to work on the GPU"
            )
        values = values if hasattr(values, "shape") else _as_array(values)
    if len(values.shape) != 2 or values.shape[0] != values.shape[1] or values.shape[0] == 0:
        raise InputError(
            f"graph: shape {tuple(values.shape)}; a matrix of lengths from each vertex to each is "
            "square, with a row and a column for every vertex"
        )
    if values.dtype.kind not in "iufb":
        raise InputError(f"graph: {values.dtype} are no lengths; use floats or integers")
    none = None if is_sparse(values) and no_edge == 0 else no_edge
    return EdgeMatrix(values, int(values.shape[0]), np.dtype(dtype), none)


def _as_array(values: Any) -> Array:
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"graph: {shown(values)}: {error}; give a square matrix") from None


def _open_array(path: str | os.PathLike[str]) -> Any:
    import zarr

    text = check_path("graph", path)
    try:
        found = zarr.open(text, mode="r")
    except Exception as error:  # stores and codecs raise exceptions of their own
        raise InputError(
            f"graph: {shown(text)} cannot be opened as a Zarr array ({error}); is the path right?"
        ) from None
    if isinstance(found, zarr.Array):
        return found
    arrays = [array for _, array in found.arrays() if len(array.shape) == 2]
    if len(arrays) != 1:
        raise InputError(
            f"graph: {path} has {len(arrays)} arrays of two dimensions; open the one that is meant"
        )
    return arrays[0]


def _shortest_of_parallel(graph: Any) -> sparse.csr_array:
    """Return a CSR array that keeps the least of duplicate entries."""
    from scipy import sparse  # slow to import

    coo = entries_of(graph, "graph")
    # Entries of one place stand together, the least first.
    order = np.lexsort((coo.data, coo.col, coo.row))
    rows, columns, data = coo.row[order], coo.col[order], coo.data[order]
    first = np.ones(data.size, bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    return sparse.csr_array((data[first], (rows[first], columns[first])), shape=graph.shape)
