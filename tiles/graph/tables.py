"""Read edges from memory: sparse matrices, data frames, networkx graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import refuse_large_graph
from orograph.tiles.graph.sparse import entries_of

END_NAMES = (("source", "target"), ("from", "to"), ("u", "v"))
WEIGHT_NAMES = ("weight", "length", "cost")


class SparseMatrix(Protocol):
    """A sparse array or matrix of SciPy."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    @property
    def nnz(self) -> int:
        """Number of stored entries."""

    @property
    def format(self) -> str:
        """Name of the format, such as ``"csr"``."""

    def tocoo(self) -> Any:
        """Return the matrix as rows, columns and values."""


class Table(Protocol):
    """A data frame of pandas or another library."""

    @property
    def columns(self) -> Iterable[Hashable]:
        """Names of the columns."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, name: str, /) -> Any:
        """Return a column."""

    def to_numpy(self) -> Array:
        """Return all values."""


class NetworkXGraph(Protocol):
    """A graph of networkx or OSMnx."""

    @property
    def nodes(self) -> Callable[..., Any]:
        """The nodes and their attributes."""

    @property
    def edges(self) -> Callable[..., Any]:
        """The edges and their attributes."""

    def adjacency(self) -> Iterator[Any]:
        """Yield the neighbours of each node."""

    def is_directed(self) -> bool:
        """Return whether edges lead one way."""


class Edges(NamedTuple):
    """Edges as vertex indices and weights, with ids and, if known, coordinates of vertices."""

    tail: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    weight: Array
    ids: Array
    directed: bool | None
    coordinates: tuple[Array, Array] | None = None


def from_sparse(matrix: SparseMatrix) -> Edges:
    """Return the stored entries of a square sparse matrix as edges from row to column."""
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"source: shape {matrix.shape}; a matrix of weights has a row and a column a vertex"
        )
    refuse_large_graph(matrix.shape[0], matrix.nnz)
    entries = entries_of(matrix, "source")
    tail, head = (np.asarray(axis, np.int64) for axis in (entries.row, entries.col))
    return Edges(tail, head, entries.data, np.arange(matrix.shape[0]), None)


def from_table(table: Table) -> Edges:
    """Return the rows of a data frame as edges; vertex ids are its sorted end values."""
    columns = list(table.columns)
    pair = next((pair for pair in END_NAMES if set(pair) <= set(columns)), None)
    if pair is None:
        raise InputError(
            f"source: a table with columns {', '.join(map(str, columns))}; name those of the ends "
            "'source' and 'target', and that of the weight 'weight'"
        )
    weights = [name for name in WEIGHT_NAMES if name in columns]
    # pandas allows several columns of one name, and gives a table for it.
    twice = next((name for name in (*pair, *weights[:1]) if columns.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"source: {columns.count(twice)} columns are called {twice!r}; leave one of them"
        )
    if not len(table):
        raise InputError("source: the table has no rows; a graph has one vertex at least")
    labels = [np.asarray(table[name]) for name in pair]
    for name, column in zip(pair, labels, strict=True):
        # NaN is the value that is not equal to itself.
        missing = np.flatnonzero([value is None or value != value for value in column.tolist()])
        if missing.size or column.dtype.kind == "f":
            row = int(missing[0]) if missing.size else 0
            raise InputError(
                f"source: row {row}: {name} is {column[row]}; vertices are integers or strings"
            )
    try:
        ids, ends = np.unique(_joined(labels), return_inverse=True)
    except TypeError:
        raise InputError(
            f"source: {pair[0]} and {pair[1]} hold values that cannot be ordered, such as strings "
            "and numbers; make them one type"
        ) from None
    tail, head = np.split(ends.astype(np.int64), 2)
    weight = np.asarray(table[weights[0]]) if weights else np.ones(tail.size, np.int32)
    return Edges(tail, head, weight, ids, None)


def _joined(labels: list[Array]) -> Array:
    """Concatenate two columns of labels without rounding integers to float64.

    NumPy makes float64 of int64 and uint64 together, in which large ids become equal.
    """
    kinds = {column.dtype.kind for column in labels}
    if kinds == {"i", "u"}:
        return _as_integers([label for column in labels for label in column.tolist()])
    return np.concatenate(labels)


def _as_integers(labels: list[int]) -> Array:
    """Return integer labels as int64 or uint64, or as objects if neither fits."""
    least, greatest = min(labels), max(labels)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= least and greatest <= np.iinfo(dtype).max:
            return np.array(labels, dtype)
    return np.array(labels, object)


def from_networkx(graph: NetworkXGraph) -> Edges:
    """Return the edges of a networkx graph, with its node labels and their order."""
    nodes = dict(graph.nodes(data=True))
    places = {label: place for place, label in enumerate(nodes)}
    edges = list(graph.edges(data=True))
    name = next((name for name in WEIGHT_NAMES if any(name in data for *_, data in edges)), None)
    weights = []
    for u, v, data in edges:
        if name is not None and name not in data:
            raise InputError(
                f"source: edge {u} to {v} has no {name!r}, and others have one; give it one"
            )
        weights.append(1 if name is None else data[name])
    # From labels that are tuples `np.array` would make a table.
    ids = np.empty(len(nodes), object)
    ids[:] = list(nodes)
    if nodes and all(isinstance(label, int) for label in nodes):
        ids = _as_integers(list(nodes))
    tail, head = (np.array([places[edge[i]] for edge in edges], np.int64) for i in (0, 1))
    coordinates = None
    if nodes and all("x" in data and "y" in data for data in nodes.values()):
        x, y = (np.array([data[axis] for data in nodes.values()], np.float64) for axis in "xy")
        coordinates = x, y
    weight = np.array(weights) if weights else np.empty(0, np.int32)
    # NumPy has converted all weights to float64 if one is a float.
    if weight.dtype.kind == "f":
        for (u, v, _), given in zip(edges, weights, strict=True):
            if isinstance(given, Integral) and float(given) != given:
                raise InputError(
                    f"source: edge {u} to {v} has weight {given}, which would be rounded to "
                    "float64, since other weights are not whole; give whole numbers alone, or "
                    "weights up to 2**53"
                )
    return Edges(tail, head, weight, ids, bool(graph.is_directed()), coordinates)
