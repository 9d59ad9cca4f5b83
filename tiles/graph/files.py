"""Graphs in text files: DIMACS (.gr, .co), PACE (.gr), Matrix Market (.mtx); plain, .gz or .xz.

Errors name the file, the line and the value.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import InputError

Array = npt.NDArray[Any]
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True)
class EdgeList:
    """What a file says: the ends and weights of edges; vertices count from 0."""

    n: int
    tail: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    weight: Array
    directed: bool
    first_id: int


def suffix_of(path: Path) -> str:
    """Return the suffix of a file without that of its compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, plain or compressed."""
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8") as file:
            text: str = file.read()
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path}: its compressed data end too early or are damaged ({error}); get it again"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is no text; is it compressed?") from None
    return text.splitlines()


def read_dimacs(path: Path) -> EdgeList:
    """Return the edges of a DIMACS graph (``p sp n m``, ``a u v w``) or a PACE one (``p tw n m``).

    DIMACS arcs are directed; PACE edges are not, and weigh 1.
    """
    lines = read_lines(path)
    head = next((i for i, line in enumerate(lines) if line.startswith("p")), None)
    if head is None:
        raise InputError(f"{path}: no line begins with 'p'; a .gr file has one, 'p sp n m'")
    words = lines[head].split()
    if len(words) != 4 or words[1] not in ("sp", "tw") or not all(map(str.isdigit, words[2:])):
        raise InputError(
            f"{path}, line {head + 1}: {lines[head]!r}; it must be 'p sp n m' or 'p tw n m' with "
            "the numbers of vertices and edges"
        )
    n, m = int(words[2]), int(words[3])
    weighted = words[1] == "sp"
    where = [
        i
        for i, line in enumerate(lines)
        if line and line[0] != "c" and i != head and not line.isspace()
    ]
    skipped = 1 if weighted else 0
    if weighted:
        odd = next((i for i in where if lines[i][0] != "a"), None)
        if odd is not None:
            raise InputError(
                f"{path}, line {odd + 1}: {lines[odd]!r}; lines begin with 'a', 'c' or 'p'"
            )
    table = _numbers(path, lines, where, skipped, ["u", "v", "w"][: 2 + weighted])
    _check_count(path, head, m, where, "edges")
    ends = _vertices(path, where, table, n)
    weight = table[:, 2] if weighted else np.ones(m, np.int32)
    return EdgeList(n, *ends, weight, weighted, 1)


def read_coordinates(path: Path, n: int) -> tuple[Array, Array]:
    """Return x and y of the n vertices, from a DIMACS file of coordinates (``v id x y``)."""
    lines = read_lines(path)
    where = [i for i, line in enumerate(lines) if line.startswith("v")]
    table = _numbers(path, lines, where, 1, ["id", "x", "y"])
    ids = table[:, 0].astype(np.int64)
    if not np.array_equal(np.sort(ids), np.arange(1, n + 1)):
        missing = np.setdiff1d(np.arange(1, n + 1), ids)
        what = f"vertex {missing[0]} has none" if missing.size else "some vertex has two"
        raise InputError(f"{path}: {ids.size} lines of coordinates for {n} vertices; {what}")
    order = np.argsort(ids)
    return table[order, 1].astype(np.float64), table[order, 2].astype(np.float64)


def read_matrix_market(path: Path) -> EdgeList:
    """Return the entries of a square matrix as edges from row to column.

    A symmetric matrix is an undirected graph, a general one a directed graph; entries of a pattern
    weigh 1.
    """
    lines = read_lines(path)
    head = lines[0].lower().split() if lines else []
    if len(head) != 5 or head[:3] != ["%%matrixmarket", "matrix", "coordinate"]:
        raise InputError(
            f"{path}, line 1: {lines[0] if lines else ''!r}; a Matrix Market file of a graph "
            "begins with '%%MatrixMarket matrix coordinate'; read a bare list of edges into a "
            "table (pandas) first"
        )
    if head[3] not in ("real", "integer", "pattern") or head[4] not in ("general", "symmetric"):
        raise InputError(
            f"{path}, line 1: {head[3]} {head[4]}; it must be real, integer or pattern, and "
            "general or symmetric"
        )
    where = [i for i, line in enumerate(lines) if line.strip() and line[0] != "%"]
    size = (
        [int(word) if word.isdigit() else -1 for word in lines[where[0]].split()] if where else []
    )
    if len(size) != 3 or size[0] != size[1] or min(size) < 0:
        said = f"line {where[0] + 1}: {lines[where[0]]!r}" if where else "no line of sizes"
        raise InputError(f"{path}, {said}; a graph has 'n n m': a square matrix with m entries")
    n, m = size[0], size[2]
    weighted = head[3] != "pattern"
    table = _numbers(path, lines, where[1:], 0, ["row", "column", "value"][: 2 + weighted])
    _check_count(path, where[0], m, where[1:], "entries")
    ends = _vertices(path, where[1:], table, n)
    weight = table[:, 2] if weighted else np.ones(m, np.int32)
    if head[3] == "integer":
        weight = weight.astype(np.int64)
    return EdgeList(n, *ends, weight, head[4] == "general", 1)


def _numbers(
    path: Path, lines: list[str], where: list[int], skipped: int, columns: Sequence[str]
) -> Array:
    """Return the numbers in some lines, int64 if all are whole, else float64."""
    rows = [lines[i][skipped:] for i in where]
    if not rows:
        return np.empty((0, len(columns)), np.int64)
    for dtype in (np.int64, np.float64):
        try:
            table: Array = np.loadtxt(rows, dtype, comments=None, ndmin=2)
        except (ValueError, OverflowError):
            continue
        if table.shape == (len(rows), len(columns)):
            return table
    for i, row in zip(where, rows, strict=True):
        words = row.split()
        if len(words) != len(columns) or not all(map(_is_number, words)):
            raise InputError(
                f"{path}, line {i + 1}: {lines[i]!r}; it must have {len(columns)} numbers, "
                f"{', '.join(columns)}" + ("; is the file cut short?" if i == where[-1] else "")
            )
    raise InputError(f"{path}: its numbers cannot be read")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _check_count(path: Path, head: int, expected: int, where: list[int], what: str) -> None:
    if len(where) != expected:
        short = "; it is cut short" if len(where) < expected else ""
        raise InputError(
            f"{path}: line {head + 1} says {expected} {what}, and there are {len(where)}{short}"
        )


def _vertices(path: Path, where: list[int], table: Array, n: int) -> tuple[Array, Array]:
    """Return the two ends of each edge, counted from 0."""
    ends = table[:, :2]
    wrong = np.flatnonzero(((ends < 1) | (ends > n) | (ends != np.floor(ends))).any(axis=1))
    if wrong.size:
        row = int(wrong[0])
        u, v = ends[row]
        bad = u if not (1 <= u <= n and u == int(u)) else v
        raise InputError(
            f"{path}, line {where[row] + 1}: {bad:.17g} is no vertex; they are 1 to {n}"
        )
    tail, head = (ends - 1).astype(np.int64).T
    return tail, head
