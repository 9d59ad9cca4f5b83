"""Compute parts of an index's blocks with NumPy and SciPy, for plans that must not compile.

Blosc compresses a record in pieces of about 100 KiB, each by itself. So a piece, of which all rows
of the matrix are made, takes what it would within its record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.index.format import Form, encode_record
from orograph.kernels.boundary.dissection import border_cells
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.propagate import MOVES, unreached
from orograph.kernels.relax.models import (
    ABSOLUTE_DIFFERENCE,
    DIAGONAL,
    EAST_WEST,
    FRICTION,
    MODELS,
    NORTH_SOUTH,
    Rules,
)

Array = npt.NDArray[Any]


class Piece(NamedTuple):
    """Range of a block's numbers that Blosc compresses as one piece."""

    start: int
    end: int


def piece_at(form: Form, height: int, width: int, position: float) -> Piece:
    """Return the piece of a block at a relative ``position``, from 0 to 1."""
    frame = encode_record(np.zeros(form.record, form.dtype))
    size = int.from_bytes(frame[8:12], "little") // np.dtype(form.dtype).itemsize
    start = int(position * form.numbers(height, width)) // size * size
    return Piece(start, min(start + size, form.record))


def rows_of(form: Form, cells: int, piece: Piece) -> range:
    """Return the range of matrix rows that have entries in a piece."""
    first, last = (
        (int((8 * entry + 1) ** 0.5) - 1) // 2 if form.symmetric else entry // cells
        for entry in (piece.start, piece.end - 1)
    )
    return range(min(first, cells), min(last + 1, cells))


def numbers_of(form: Form, costs: BlockCosts, piece: Piece) -> Array:
    """Compute the numbers of a piece, equal to those of a build up to rounding.

    They differ in the last bits, as sums along paths are made in another order.
    """
    steps = step_costs(costs)
    border = border_cells(*costs.shape)
    found = _distances(steps, border, rows_of(form, len(border), piece))
    leaving = np.where(leaves(*costs.shape), steps[:, *border.T], unreached(form.dtype))
    return _lay_out(form, piece, found.astype(form.dtype), leaving)


def ways_in(form: Form, passable: Array, height: int, width: int, piece: Piece) -> int:
    """Return how many numbers of a piece can be finite, as no end is a barrier.

    ``passable``: of the border cells those that are passable.
    """
    rows = rows_of(form, passable.size, piece)
    matrix = passable[rows.start : rows.stop, None] & passable
    return int(_lay_out(form, piece, matrix, leaves(height, width) & passable).sum())


def leaves(height: int, width: int) -> Any:
    """Return a mask (8, n): whether each of `MOVES` from each border cell leaves the block."""
    end = np.array(MOVES)[:, None] + border_cells(height, width)
    return ((end < 0) | (end >= (height, width))).any(axis=2)


def _lay_out(form: Form, piece: Piece, matrix: Array, leaving: Array) -> Array:
    """Return the numbers of a piece, given the matrix rows in it and the steps out."""
    count = leaving.shape[1]
    rows = rows_of(form, count, piece)
    begin = form.entries(rows.start) if form.symmetric else rows.start * count
    if form.symmetric:
        matrix = matrix[np.tri(len(rows), count, rows.start, dtype=bool)]
    numbers = np.concatenate((matrix.reshape(-1), leaving.reshape(-1)))
    # steps come after the last row: none are in the piece if it ends before
    numbers = numbers[piece.start - begin : piece.end - begin]
    out = np.zeros(piece.end - piece.start, matrix.dtype)
    out[: numbers.size] = numbers
    return out


def _distances(steps: Array, border: Array, rows: range) -> Array:
    """Return least costs from some border cells of a block to all, by SciPy's Dijkstra."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    none = unreached(steps.dtype)
    height, width = steps.shape[1:]
    number = np.arange(height * width).reshape(height, width)
    tails, heads, weights = [], [], []
    for (dy, dx), cost in zip(MOVES, steps, strict=True):
        inside = (
            slice(max(0, -dy), height - max(0, dy)),
            slice(max(0, -dx), width - max(0, dx)),
        )
        there = cost[inside] < none
        tails.append(number[inside][there])
        heads.append(tails[-1] + dy * width + dx)
        weights.append(cost[inside][there])
    entries = (np.concatenate(part) for part in (tails, heads))
    graph = coo_array(  # in compressed rows edges of cost 0 are kept
        (np.concatenate(weights).astype(np.float64), tuple(entries)), shape=(number.size,) * 2
    ).tocsr()
    ends = number[tuple(border.T)]
    found: Array = dijkstra(graph, indices=ends[rows.start : rows.stop])[:, ends]
    return np.where(found < none, found, none)


def step_costs(costs: BlockCosts) -> Array:
    """Return the cost of each of the eight `MOVES` from each cell, shape (8, h, w).

    Formulas are those of `orograph.kernels.relax.edge_costs.edge`; an exponential may differ in its
    last bits.
    """
    height, width = costs.shape
    rules = costs.rules
    out = np.full((len(MOVES), height, width), unreached(costs.dtype), costs.dtype)
    for (dy, dx), cost in zip(MOVES, out, strict=True):
        if rules.steps == 1 and dy and dx:
            continue
        ends = [
            [raster[1 + y : 1 + y + height, 1 + x : 1 + x + width] for y, x in ((0, 0), (dy, dx))]
            if raster.size
            else None
            for raster in (costs.friction, costs.elevation)
        ]
        kind = EAST_WEST if dy == 0 else NORTH_SOUTH if dx == 0 else DIAGONAL
        lengths = rules.factors[kind, 1 + max(dy, 0) : 1 + max(dy, 0) + height, None]
        with np.errstate(invalid="ignore", over="ignore"):
            found = _step_cost(rules, lengths, *ends)
        np.copyto(cost, found, where=found < rules.unreached, casting="unsafe")
    return out


def _step_cost(rules: Rules, length: Array, friction: Any, elevation: Any) -> Any:
    """Return the costs of steps between pairs of start and end cells.

    Integers: ``BARRIER`` or more where a step is barred.
    """
    p = rules.coefficients
    if rules.model == FRICTION:
        total = friction[0] + friction[1]
        barred = total >= rules.barrier if rules.integer else False
        return np.where(barred, rules.unreached, total * length)
    if rules.model == ABSOLUTE_DIFFERENCE:
        barred = np.maximum(*elevation) >= rules.barrier if rules.integer else False
        return np.where(barred, rules.unreached, abs(elevation[1] - elevation[0]))
    mean = (friction[0] + friction[1]).astype(np.float64) * 0.5 if rules.has_friction else 1.0
    rise = elevation[1].astype(np.float64) - elevation[0]
    rise = -rise if rules.reverse else rise
    length = length.astype(np.float64)
    slope = rise / length
    name, row = list(MODELS.items())[rules.model]
    if name == "tobler":
        return length * p[0] * np.exp(3.5 * abs(slope + 0.05)) * mean
    if name == "walk":
        along = np.where(slope >= 0, p[1], np.where(slope < p[4], p[3], p[2]))
        return rise * along + length * p[0] + p[5] * mean * length
    formula = np.vectorize(row.formula.py_func, [np.float64], excluded={3})
    return formula(rise, length, mean, p)
