"""Least crossings between allocation zones, and the tree that joins the zones.

A *crossing* is a step between two cells that are allocated to different sources. A path over it
costs the distance of one cell, the step, and the distance of the other. Of each two labels the
crossing of least cost is kept, by (cost, cell of the smaller label, cell of the greater one), so
that neither tiles nor their order change which one it is. The two distances and the step are added
in that order, from the cell of the smaller label, each sum rounded to the dtype of distances.

Rows are searched by chunks; those in a single zone, with the cells before them, are passed over.
The crossings of a row are listed, then taken into a table of pairs. The pair that a cell crosses is
as a rule the one found last in its column; else it is looked up by an open hash table with linear
probing, doubled when it is half full. Parts are put together by
sorting the pairs. An edge belongs to the cell in its later row, or later in its row: each is seen
in one tile. The edge costs are those of `orograph.kernels.relax.tile`. Serial.

The tree is Kruskal's, over crossings in the order of (cost, smaller label, greater label). It
weighs as much as the minimum spanning tree of the distances between all pairs of sources: Mehlhorn,
"A faster approximation algorithm for the Steiner problem in graphs",
doi:10.1016/0020-0190(88)90066-X.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import unite
from orograph.kernels.relax.models import DIAGONAL, EAST_WEST, NORTH_SOUTH, TWO_COLUMNS, TWO_ROWS
from orograph.kernels.relax.row_costs import ROW_SCRATCH, weigh_edges
from orograph.kernels.relax.tile import TileState
from orograph.kernels.vectors.lanes import STEP_DX, STEP_DY, borrowed, lanes
from orograph.tiles.arrays import Array, Integers

CHUNK = 32  # cells of a row, which are often of one zone
# of an edge to the west, and of those to the rows before: a row of the length table
_KIND = np.array(
    [EAST_WEST, NORTH_SOUTH, DIAGONAL, DIAGONAL, TWO_COLUMNS, TWO_COLUMNS, TWO_ROWS, TWO_ROWS]
)
_FIRST, _SECOND, _SHIFT = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(29),
)


class Crossings(NamedTuple):
    """Crossings between pairs of labels."""

    labels: Integers
    """(n, 2): the smaller label first."""
    cost: Array
    """(n,), in the dtype of distances."""
    cells: Integers
    """(n, 2): numbers of the two cells."""


@compiled
def _slot_of(slots, labels, one, other):
    """Return the slot of a pair, or the free one where it belongs."""
    # Odd constants mix both labels into the high bits, which the shift brings down to the mask.
    mixed = (np.uint64(one) * _FIRST) ^ (np.uint64(other) * _SECOND)
    mixed ^= mixed >> _SHIFT
    mask = slots.size - 1
    slot = np.int64(mixed & np.uint64(mask))
    while slots[slot] >= 0:
        entry = slots[slot]
        if labels[entry, 0] == one and labels[entry, 1] == other:
            break
        slot = (slot + 1) & mask
    return slot


@compiled
def _grown(array):
    """Return a copy of an array with room for twice as many rows."""
    larger = np.empty((2 * array.shape[0], array.shape[1]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@compiled
def _is_even(zone, start, count, stride, rows):
    """Return whether ``count`` cells and all from which a step comes to them have one label.

    ``rows``: how many rows and columns the longest step crosses.
    """
    label = zone[start]
    differs = False
    for row in range(rows + 1):
        # A step comes from as many columns on either side, hence the wider window.
        for cell in lanes(zone, start - rows - row * stride, count + 2 * rows):
            differs |= cell != label
    return not differs


@compiled
def _candidates(v, u, unassigned, places):
    """Put the places where two rows have different labels into ``places``; return how many."""
    count = 0
    differs = False
    for x in range(v.size):
        differs |= v[x] != u[x]
    if not differs:
        return 0
    for x in range(v.size):
        # Written always; the number grows without a branch.
        places[count] = x
        count += 1 if (v[x] != u[x]) & (v[x] != unassigned) & (u[x] != unassigned) else 0
    return count


@compiled
def _is_less(total, here, there, cost, one, other):
    """Return whether a crossing comes before another one, given costs and cells of both."""
    if total != cost:
        return total < cost
    return here < one or (here == one and there < other)


@compiled
def _list_row(y, tile, labels, rules, unassigned, first, buffers, listed):
    """List the crossings into the cells of a row; return how many there are.

    ``first`` is the number of the row's first cell, what the number grows by from row to row, and
    from cell to cell, and the cell's column in the grid.
    ``buffers`` hold a chunk's steps, lengths, places and scratch.
    """
    dist, friction, elevation, labels, rules = borrowed((*tile, labels, rules))
    steps, lengths, places, scratch = borrowed(buffers)
    pairs, cells, cost, column = borrowed(listed)
    stride = dist.shape[1]
    reach = rules.reach
    columns = stride - 2 * reach
    f, z, d, zone = friction.reshape(-1), elevation.reshape(-1), dist.reshape(-1), labels
    found = 0
    for left in range(0, columns, CHUNK):
        count = min(CHUNK, columns - left)
        v = y * stride + reach + left
        if _is_even(zone, v, count, stride, reach):
            continue
        step, length = lanes(steps, 0, count), lanes(lengths, 0, count)
        for edge in range(rules.steps + 1):
            # to the cell itself (v) from one to the west, or in a row before (u)
            dy = STEP_DY[edge - 1] if edge else 0
            dx = STEP_DX[edge - 1] if edge else -1
            u = v - dy * stride + dx
            crossed = _candidates(lanes(zone, v, count), lanes(zone, u, count), unassigned, places)
            if crossed == 0:
                continue
            length[:] = rules.factors[_KIND[edge], y]
            weigh_edges(
                *(step, step, f, v, z, v, d.size + v, d.size),
                *(stride, dy, dx, length, scratch, rules, rules.by_step, rules.by_row),
            )
            for place in range(crossed):
                x = places[place]
                one, other = zone[v + x], zone[u + x]
                here = first[0] + (left + x) * first[2]
                there = here - dy * first[1] + dx * first[2]
                # Beyond the grid's columns it lies at the other end of its row.
                beyond = (first[3] + left + x + dx) // abs(first[1])
                there -= beyond * abs(first[1]) * first[2]
                start, end = d[v + x], d[u + x]
                swap = other < one
                pairs[found, 0], pairs[found, 1] = (other, one) if swap else (one, other)
                cells[found, 0], cells[found, 1] = (there, here) if swap else (here, there)
                # In the order of the labels, whichever of the two cells is the later one in the
                # raster.
                cost[found] = (end if swap else start) + step[x]
                cost[found] += start if swap else end
                column[found] = left + x
                # one past a barrier is none
                found += 1 if step[x] < rules.unreached else 0
    return found


@compiled
def _insert(count, done, listed, table, found):
    """Let a table of pairs take in listed crossings, from ``done`` on, as far as it has room.

    Return how many pairs it has, and how many crossings are done.
    """
    listed_pairs, listed_cells, listed_cost, column = borrowed(listed)
    slots, pairs, cells, cost, last = borrowed(table)
    for k in range(done, count):
        one, other = listed_pairs[k, 0], listed_pairs[k, 1]
        entry = last[column[k]]
        if entry < 0 or pairs[entry, 0] != one or pairs[entry, 1] != other:
            slot = _slot_of(slots, pairs, one, other)
            entry = slots[slot]
            if entry < 0:
                # Half full: the caller doubles the table and comes back to this crossing.
                if 2 * found == slots.size:
                    return found, k
                entry = found
                slots[slot] = entry
                pairs[entry, 0], pairs[entry, 1] = one, other
                cells[entry, 0], cells[entry, 1] = listed_cells[k, 0], listed_cells[k, 1]
                cost[entry, 0] = listed_cost[k]
                found += 1
            last[column[k]] = entry
        here, there = listed_cells[k, 0], listed_cells[k, 1]
        known = cost[entry, 0], cells[entry, 0], cells[entry, 1]
        if _is_less(listed_cost[k], here, there, *known):
            cost[entry, 0] = listed_cost[k]
            cells[entry, 0], cells[entry, 1] = here, there
    return found, count


@compiled
def _find(dist, labels, friction, elevation, rules, unassigned, first, down, right, x):
    """Find the least crossing of each pair of labels in a tile; ``first`` is its corner's number,
    and ``x`` the corner's column.

    Arrays are passed to functions that do much, since each pass counts their references.
    """
    reach = rules.reach
    columns = dist.shape[1] - 2 * reach
    zone = labels.reshape(-1)
    buffers = (
        np.empty(CHUNK, dist.dtype),
        np.empty(CHUNK, dist.dtype),
        np.empty(CHUNK + 1, np.int64),
        np.empty(ROW_SCRATCH * CHUNK),
    )
    most = columns * (rules.steps + 1) + 1  # the last is what may not count
    listed = (
        np.empty((most, 2), np.int64),
        np.empty((most, 2), np.int64),
        np.empty(most, dist.dtype),
        np.empty(most, np.int64),
    )
    last = np.full(columns, np.int64(-1))  # the pair found last in each column
    slots = np.full(64, np.int64(-1))
    pairs = np.empty((32, 2), np.int64)
    cells = np.empty((32, 2), np.int64)
    cost = np.empty((32, 1), dist.dtype)
    found = 0
    for y in range(reach, dist.shape[0] - reach):
        place = first + (y - reach) * down, down, right, x
        tile = dist, friction, elevation
        count = _list_row(y, tile, zone, rules, unassigned, place, buffers, listed)
        done = 0
        while True:
            found, done = _insert(count, done, listed, (slots, pairs, cells, cost, last), found)
            if done == count:
                break
            # Pairs keep their numbers; only their slots are looked for anew.
            slots = np.full(2 * slots.size, np.int64(-1))
            for old in range(found):
                slots[_slot_of(slots, pairs, pairs[old, 0], pairs[old, 1])] = old
            pairs, cells, cost = _grown(pairs), _grown(cells), _grown(cost)
    return pairs[:found], cost[:found, 0], cells[:found]


def find_crossings(
    state: TileState,
    labels: Integers,
    unassigned: int,
    first: int,
    down: int,
    right: int,
    column: int,
) -> Crossings:
    """Return the least crossing of each pair of labels in a tile, and into the cells before it.

    The pairs are in no particular order.

    Parameters
    ----------
    state : TileState
        A tile with its final distances, those of the halo too; its steps cost the same both ways.
    labels : (h + 2 r, w + 2 r) int64
        The label of the source that each cell is allocated to, ``unassigned`` where there is none.
    unassigned : int
        See above.
    first, down, right : int
        Number of the tile's first cell, and what numbers grow by from row to row, and from cell to
        cell of a row.
    column : int
        Column of the tile's first cell in the grid, which has ``abs(down)`` columns.
    """
    arrays = state.dist, labels, state.friction, state.elevation
    return Crossings(*_find(*arrays, state.rules, unassigned, first, down, right, column))


@compiled
def _choose(keys, order, cost, cells, chosen):
    """Choose the least crossing of each run of equal keys; return how many runs there are."""
    count = 0
    for place in range(order.size):
        one = order[place]
        if place > 0 and keys[one] == keys[order[place - 1]]:
            best = chosen[count - 1]
            known = cost[best], cells[best, 0], cells[best, 1]
            if _is_less(cost[one], cells[one, 0], cells[one, 1], *known):
                chosen[count - 1] = one
        else:
            chosen[count] = one
            count += 1
    return count


def least_of(parts: list[Crossings]) -> Crossings:
    """Return the least crossing of each pair of labels, in their order, given those of parts."""
    labels, cost, cells = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    ends, count = _numbered(labels)
    keys = ends[:, 0] * count + ends[:, 1]
    chosen = np.empty(keys.size, np.int64)
    chosen = chosen[: _choose(keys, np.argsort(keys), cost, cells, chosen)]
    return Crossings(labels[chosen], cost[chosen], cells[chosen])


def _numbered(labels: Integers) -> tuple[Integers, int]:
    """Return numbers from 0 on in place of labels, in their order, and a bound of the numbers."""
    if not labels.size:
        return labels, 1
    low, high = int(labels.min()), int(labels.max())
    # Labels that lie close together are numbers as they are, shifted to begin at 0.
    if high - low < 2**31 and high - low < 8 * labels.size:
        return labels - low, high - low + 1
    names, numbers = np.unique(labels, return_inverse=True)
    return numbers.reshape(labels.shape), names.size


@compiled
def _join(parent, ends, order, kept):
    """Mark the edges, in order, that join two components."""
    for edge in order:
        kept[edge] = unite(parent, ends[edge, 0], ends[edge, 1])


def spanning_tree(crossings: Crossings) -> npt.NDArray[np.bool_]:
    """Return which crossings the minimum spanning tree of the labels has; a forest if need be.

    The crossings are in the order of their labels.
    """
    ends, count = _numbered(crossings.labels)
    kept = np.zeros(len(ends), np.bool_)
    _join(np.arange(count), ends, np.argsort(crossings.cost, kind="stable"), kept)
    return kept
