"""Pieces of streams in a tile, and the links and orders of the network that the pieces make.

A link of a network begins at a head, where no stream cell flows in, or at a confluence, where two
or more do, and goes down to the next confluence or to its end. A tile cuts links into pieces where
they enter it. Each piece is followed once, cell by cell, so the work is that of the cells; orders
come in one pass over the links, each after those that flow into it.

Sources: A. N. Strahler, "Quantitative analysis of watershed geomorphology",
doi:10.1029/TR038i006p00913; R. L. Shreve, "Statistical law of stream numbers",
doi:10.1086/627137.

All indices are int64. Nothing depends on the order of links or pieces but their numbers.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.flow.codes import MISSING, SINK, Codes, leave_at_border, steps_in_rows
from orograph.kernels.flow.route import compile_kernels as compile_paths
from orograph.tiles.arrays import Array, Integers

NONE = -1
_RING = 255


@compiled
def _trace(numbers, streams, steps, width, inflows, entered, cells, pieces, onward, starts):
    """Follow all pieces; return how many there are, of how many cells."""
    for i in range(numbers.size):
        if streams[i] and numbers[i] < SINK and streams[i + steps[numbers[i]]]:
            below = i + steps[numbers[i]]
            entered[below] = entered[below] or inflows[i] == _RING
            # Cells of the ring keep their mark, by which pieces end there.
            if inflows[below] != _RING:
                inflows[below] += 1
    count = done = 0
    for first in range(numbers.size):
        if not streams[first] or inflows[first] == _RING:
            continue
        # In the midst of a piece: one cell flows in, and it lies in the tile.
        if inflows[first] == 1 and not entered[first]:
            continue
        # What begins at a cell with one inflow goes on from beyond the tile.
        pieces[count], starts[count] = done, inflows[first] != 1
        i = first
        while True:
            cells[done] = i
            done += 1
            below = i + steps[numbers[i]] if numbers[i] < SINK else i
            if below == i or not streams[below]:
                onward[count] = NONE
                break
            # At a confluence, or beyond the tile.
            if inflows[below] != 1:
                onward[count] = below
                break
            i = below
        count += 1
    pieces[count] = done
    return count, done


def trace_pieces(numbers: Codes, streams: Array) -> tuple[Integers, Integers, Integers, Array]:
    """Return the pieces of streams in a tile with a ring of cells around it.

    Parameters
    ----------
    numbers : (h + 2, w + 2) uint8
        As `orograph.kernels.flow.codes` has them.
    streams : (h + 2, w + 2) bool
        The stream cells, with and without a step.

    Returns
    -------
    cells : (n,) int64
        The cells of all pieces, one piece after the other from its first cell down, row-major with
        the ring. Without the cells of circles.
    pieces : (p + 1,) int64
        Where each piece begins in ``cells``, in the order of the first cells, and n.
    onward : (p,) int64
        The cell to which each piece flows, -1 where a stream ends.
    starts : (p,) bool
        Whether a piece begins a link; others go on from beyond the tile.
    """
    width = numbers.shape[1]
    inflows = np.full(numbers.shape, _RING, np.uint8)
    inflows[1:-1, 1:-1] = 0
    most = int(np.count_nonzero(streams[1:-1, 1:-1]))
    cells, onward = np.empty((2, most), np.int64)
    pieces, starts = np.zeros(most + 1, np.int64), np.empty(most, np.bool_)
    count, done = _trace(
        leave_at_border(numbers).reshape(-1),
        np.ascontiguousarray(streams).reshape(-1),
        steps_in_rows(width),
        width,
        inflows.reshape(-1),
        np.zeros(numbers.size, np.bool_),
        cells,
        pieces,
        onward,
        starts,
    )
    return cells[:done], pieces[: count + 1], onward[:count], starts[:count]


@compiled
def join_pieces(
    onward: Integers,
    starts: Array,
    sizes: Integers,
    link: Integers,
    position: Integers,
    last: Integers,
) -> int:
    """Number the links of pieces; return how many pieces belong to links, less than all on circles.

    onward : the piece to which each flows, or -1.
    starts : whether a piece begins a link; links are numbered in the order of these.
    sizes : cells of each piece.
    link : becomes the link of each piece, counted from 0.
    position : becomes the number of cells of the link before the piece.
    last : has room for a piece of each link; becomes its last one.
    """
    links = done = 0
    for first in range(onward.size):
        if not starts[first]:
            continue
        i, before = first, 0
        while True:
            link[i], position[i] = links, before
            before += sizes[i]
            done += 1
            # Up to the end of the stream, or to the piece that begins the next link.
            if onward[i] < 0 or starts[onward[i]]:
                break
            i = onward[i]
        last[links] = i
        links += 1
    return done


@compiled
def order_links(
    downstream: Integers,
    amounts: Array,
    order: Integers,
    strahler: Integers,
    shreve: Integers,
    upstream: Integers,
) -> int:
    """Find the orders of links; return how many were done, less than all if there are circles.

    downstream : the link to which each flows, or -1.
    amounts : what flows at the end of each link.
    order : the links, the first of equals first.
    strahler, shreve : become the orders. Those of links on circles, and below them, mean nothing.
    upstream : becomes the link of the greatest amount that flows into each, the first of equals, or
        -1.
    """
    waiting = np.zeros(downstream.size, np.int64)
    of_most = np.zeros(downstream.size, np.int64)
    strahler[:] = 0
    shreve[:] = 0
    upstream[:] = NONE
    for i in order:
        below = downstream[i]
        if below >= 0:
            waiting[below] += 1
            if upstream[below] < 0 or amounts[i] > amounts[upstream[below]]:
                upstream[below] = i
    done = 0
    for first in range(downstream.size):
        i = first
        while i >= 0 and waiting[i] == 0:
            waiting[i] = -1
            done += 1
            # A head has order 1. Elsewhere all that flows in is known: Strahler's order is the
            # greatest of it, one more if it comes twice; Shreve's magnitude is the sum.
            shreve[i] = max(shreve[i], 1)
            strahler[i] = max(strahler[i] + (of_most[i] > 1), 1)
            below = downstream[i]
            if below >= 0:
                shreve[below] += shreve[i]
                if strahler[i] > strahler[below]:
                    strahler[below], of_most[below] = strahler[i], 1
                elif strahler[i] == strahler[below]:
                    of_most[below] += 1
                waiting[below] -= 1
            i = below
    for i in range(downstream.size):
        if waiting[i] > 0:
            strahler[i] = 0
    return done


def compile_kernels() -> None:
    """Compile, or load from the cache, the functions for tiles and the network."""
    compile_paths()
    numbers = np.full((3, 3), MISSING, np.uint8)
    trace_pieces(numbers, numbers == 0)
    one = np.zeros(1, np.int64)
    join_pieces(one - 1, one == 0, one, one.copy(), one.copy(), one.copy())
    order_links(one - 1, np.zeros(1), one, one.copy(), one.copy(), one.copy())
