"""Read graphs from text files: DIMACS, PACE and Matrix Market, plain or compressed.

Errors name the file, the line and the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.graph.graph import refuse_large_graph
from orograph.tiles.graph.lines import (
    PACKED,
    Numbers,
    is_count,
    read_blocks,
    read_numbers,
    split_first,
)


@dataclass(frozen=True)
class EdgeList:
    """Edges read from a file: ends, counted from 0, and weights."""

    n: int
    tail: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    weight: Array
    directed: bool
    first_id: int


def suffix_of(path: Path) -> str:
    """Return the lower-case suffix of a file, ignoring that of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_dimacs(path: Path) -> EdgeList:
    """Read the edges of a DIMACS (``p sp n m``) or PACE (``p tw n m``) graph file.

    DIMACS arcs are directed; PACE edges are not, and weigh 1.
    """
    head, blocks = split_first(read_blocks(path), _is_edge)
    if head is None or not head.text.startswith("p"):
        before = "" if head is None else f" before line {head.number}, {head.text!r}"
        raise InputError(
            f"{path}: no line begins with 'p'{before}; a .gr file has one first, 'p sp n m'"
        )
    words = head.text.split()
    if len(words) != 4 or words[1] not in ("sp", "tw") or not all(map(is_count, words[2:])):
        raise InputError(
            f"{path}, line {head.number}: {head.text!r}; it must be 'p sp n m' or 'p tw n m' with "
            "the numbers of vertices and edges"
        )
    n, m = int(words[2]), int(words[3])
    refuse_large_graph(n, m, str(path))
    weighted = words[1] == "sp"
    letter, columns = ("a", ["u", "v", "w"]) if weighted else ("", ["u", "v"])
    found = read_numbers(path, blocks, _is_edge, letter, columns, m)
    _check_count(path, head.number, m, found, "edges")
    ends = _vertices(path, found, n)
    weight = found.table[:, 2] if weighted else np.ones(m, np.int32)
    return EdgeList(n, *ends, weight, weighted, 1)


def _is_edge(text: str) -> bool:
    """Return whether a line of a .gr file is neither empty nor a comment."""
    return bool(text) and text[0] != "c" and not text.isspace()


def read_coordinates(path: Path, n: int) -> tuple[Array, Array]:
    """Read x and y of n vertices from a DIMACS file of coordinates (``v id x y``)."""
    columns = ["id", "x", "y"]
    table = read_numbers(path, read_blocks(path), _is_place, "v", columns, n).table
    ids = table[:, 0].astype(np.int64)
    if not np.array_equal(np.sort(ids), np.arange(1, n + 1)):
        missing = np.setdiff1d(np.arange(1, n + 1), ids)
        what = f"vertex {missing[0]} has none" if missing.size else "some vertex has two"
        raise InputError(f"{path}: {ids.size} lines of coordinates for {n} vertices; {what}")
    order = np.argsort(ids)
    return table[order, 1].astype(np.float64), table[order, 2].astype(np.float64)


def _is_place(text: str) -> bool:
    """Return whether a line of a .co file holds coordinates of a vertex."""
    return text.startswith("v")


def read_matrix_market(path: Path) -> EdgeList:
    """Read a square Matrix Market matrix as edges from row to column.

    A symmetric matrix is an undirected graph, a general one a directed graph; entries of a pattern
    weigh 1.
    """
    # The first line states the kind of matrix, though it begins with % as a comment does.
    first, blocks = split_first(read_blocks(path), lambda text: True)
    head = [] if first is None else first.text.lower().split()
    if len(head) != 5 or head[:3] != ["%%matrixmarket", "matrix", "coordinate"]:
        raise InputError(
            f"{path}, line 1: {first.text if first else ''!r}; a Matrix Market file of a graph "
            "begins with '%%MatrixMarket matrix coordinate'; read a bare list of edges into a "
            "table (pandas) first"
        )
    if head[3] not in ("real", "integer", "pattern") or head[4] not in ("general", "symmetric"):
        raise InputError(
            f"{path}, line 1: {head[3]} {head[4]}; it must be real, integer or pattern, and "
            "general or symmetric"
        )
    sizes, blocks = split_first(blocks, _is_entry)
    words = [] if sizes is None else sizes.text.split()
    size = [int(word) if is_count(word) else -1 for word in words]
    if sizes is None or len(size) != 3 or size[0] != size[1] or min(size) < 0:
        said = "no line of sizes" if sizes is None else f"line {sizes.number}: {sizes.text!r}"
        raise InputError(f"{path}, {said}; a graph has 'n n m': a square matrix with m entries")
    n, m = size[0], size[2]
    refuse_large_graph(n, m, str(path))
    weighted = head[3] != "pattern"
    columns = ["row", "column", "value"][: 2 + weighted]
    found = read_numbers(path, blocks, _is_entry, "", columns, m)
    _check_count(path, sizes.number, m, found, "entries")
    ends = _vertices(path, found, n)
    weight = found.table[:, 2] if weighted else np.ones(m, np.int32)
    if head[3] == "integer" and weight.dtype.kind == "f":
        weight = _integers(path, found, weight)
    return EdgeList(n, *ends, weight, head[4] == "general", 1)


def _is_entry(text: str) -> bool:
    """Return whether a line of a .mtx file is neither empty nor a comment."""
    return bool(text.strip()) and text[0] != "%"


def _integers(path: Path, found: Numbers, weight: Array) -> npt.NDArray[np.int64]:
    """Convert weights to integers, as the file declares them; refuse other values."""
    wrong = np.flatnonzero(~(weight == np.floor(weight)) | (abs(weight) >= 2**63))
    if wrong.size:
        row = int(wrong[0])
        raise InputError(
            f"{path}, line {found.lines[row]}: {weight[row]:.17g} is not an integer of 64 bits, "
            "and line 1 says 'integer'; write 'real' there"
        )
    return weight.astype(np.int64)


def _check_count(path: Path, head: int, expected: int, found: Numbers, what: str) -> None:
    count = found.lines.size
    if count > expected:
        raise InputError(
            f"{path}: line {head} says {expected} {what}, and line {found.lines[expected]} is one "
            "more; is the number right?"
        )
    if count < expected:
        raise InputError(
            f"{path}: line {head} says {expected} {what}, and there are {count}; it is cut short"
        )


def _vertices(path: Path, found: Numbers, n: int) -> tuple[Array, Array]:
    """Return tails and heads of edges, counted from 0; refuse numbers out of range."""
    ends = found.table[:, :2]
    # Numbers of vertices are floats if a weight of the file is one.
    wrong = np.flatnonzero(((ends < 1) | (ends > n) | (ends != np.floor(ends))).any(axis=1))
    if wrong.size:
        row = int(wrong[0])
        u, v = ends[row]
        bad = u if not (1 <= u <= n and u == int(u)) else v
        raise InputError(
            f"{path}, line {found.lines[row]}: {bad:.17g} is not a vertex; they are 1 to {n}"
        )
    tail, head = (ends - 1).astype(np.int64).T
    return tail, head
