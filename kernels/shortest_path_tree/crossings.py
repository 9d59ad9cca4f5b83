"""Least crossings between allocation zones, and the tree that joins the zones.

A *crossing* is a step between two cells that are allocated to different sources. A path over it
costs the distance of one cell, the step, and the distance of the other. Of each two labels the
crossing of least cost is kept, by (cost, cell of the smaller label, cell of the greater one), so
that neither tiles nor their order change which one it is. The two distances and the step are added
in that order, from the cell of the smaller label, each sum rounded to the dtype of distances.

Pairs of labels are found again by an open hash table with linear probing, doubled when it is half
full. An edge belongs to the cell in its later row, or later in its row: each is seen in one tile.
The edge costs are those of `orograph.kernels.relax.tile`. Serial.

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
from orograph.kernels.vectors.lanes import STEP_DX, STEP_DY, lanes
from orograph.tiles.arrays import Array, Integers

CHUNK = 64  # cells of a row, of which many are often of one zone
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
    """The least crossing of each pair of labels, in the order of the pairs."""

    labels: Integers
    """(n, 2): the smaller label first."""
    cost: Array
    """(n,), in the dtype of distances."""
    cells: Integers
    """(n, 2): row-major indices of the two cells."""


@compiled
def _slot_of(slots, labels, one, other):
    """Return the slot of a pair, or the free one where it belongs."""
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
def _candidates(v, u, unassigned, places):
    """Put the places where two rows have different labels into ``places``; return how many."""
    count = 0
    for start in range(0, v.size, CHUNK):
        end = min(start + CHUNK, v.size)
        differs = False
        for x in range(start, end):
            differs |= v[x] != u[x]
        if differs:
            for x in range(start, end):
                places[count] = x
                crosses = (v[x] != u[x]) & (v[x] != unassigned) & (u[x] != unassigned)
                count += 1 if crosses else 0
    return count


@compiled
def _find(dist, labels, friction, elevation, rules, unassigned, first, width):
    """Find the least crossing of each pair of labels in a tile; ``first`` is its corner's index."""
    height, stride = dist.shape
    reach = rules.reach
    count = stride - 2 * reach
    f, z, d, zone = friction.ravel(), elevation.ravel(), dist.ravel(), labels.ravel()
    step = np.empty(count, dist.dtype)
    scratch = np.empty(ROW_SCRATCH * count)
    length = np.empty(count, dist.dtype)
    places = np.empty(count + 1, np.int64)
    slots = np.full(64, np.int64(-1))
    pairs = np.empty((32, 2), np.int64)
    cells = np.empty((32, 2), np.int64)
    cost = np.empty((32, 1), dist.dtype)
    found = 0
    for y in range(reach, height - reach):
        for edge in range(rules.steps + 1):
            # to the cell itself (v) from one to the west, or in a row before (u)
            dy = STEP_DY[edge - 1] if edge else 0
            dx = STEP_DX[edge - 1] if edge else -1
            v = y * stride + reach
            u = v - dy * stride + dx
            crossed = _candidates(lanes(zone, v, count), lanes(zone, u, count), unassigned, places)
            if crossed == 0:
                continue
            length[:] = rules.factors[_KIND[edge], y]
            weigh_edges(
                *(step, step, f, v, z, v, d.size + v, d.size),
                *(stride, dy, dx, length, scratch, rules),
            )
            for x in places[:crossed]:
                if not step[x] < rules.unreached:
                    continue  # a knight's move past a barrier
                one, other = zone[v + x], zone[u + x]
                here = first + (y - reach) * width + x
                there = here - dy * width + dx
                start, end = d[v + x], d[u + x]
                if other < one:
                    one, other = other, one
                    here, there = there, here
                    start, end = end, start
                total = (start + step[x]) + end
                slot = _slot_of(slots, pairs, one, other)
                entry = slots[slot]
                if entry < 0:
                    if 2 * found == slots.size:
                        slots = np.full(2 * slots.size, np.int64(-1))
                        for old in range(found):
                            slots[_slot_of(slots, pairs, pairs[old, 0], pairs[old, 1])] = old
                        slot = _slot_of(slots, pairs, one, other)
                        pairs, cells, cost = _grown(pairs), _grown(cells), _grown(cost)
                    entry = found
                    slots[slot] = entry
                    pairs[entry, 0], pairs[entry, 1] = one, other
                    found += 1
                elif not (
                    total < cost[entry, 0]
                    or (total == cost[entry, 0] and here < cells[entry, 0])
                    or (
                        total == cost[entry, 0]
                        and here == cells[entry, 0]
                        and there < cells[entry, 1]
                    )
                ):
                    continue
                cost[entry, 0] = total
                cells[entry, 0], cells[entry, 1] = here, there
    return pairs[:found], cost[:found, 0], cells[:found]


def find_crossings(
    state: TileState, labels: Integers, unassigned: int, first: int, width: int
) -> Crossings:
    """Return the least crossing of each pair of labels in a tile, and into the cells before it.

    Parameters
    ----------
    state : TileState
        A tile with its final distances, those of the halo too; its steps cost the same both ways.
    labels : (h + 2 r, w + 2 r) int64
        The label of the source that each cell is allocated to, ``unassigned`` where there is none.
    unassigned : int
        See above.
    first, width : int
        Row-major index of the tile's first cell in the grid, and columns of the grid.
    """
    arrays = state.dist, labels, state.friction, state.elevation
    pairs, cost, cells = _find(*arrays, state.rules, unassigned, first, width)
    return least_of([Crossings(pairs, cost, cells)])


def least_of(parts: list[Crossings]) -> Crossings:
    """Return the least crossing of each pair of labels, given those of parts of the grid."""
    labels, cost, cells = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.lexsort((cells[:, 1], cells[:, 0], cost, labels[:, 1], labels[:, 0]))
    labels = labels[order]
    new = np.append(True, (np.diff(labels, axis=0) != 0).any(axis=1))[: order.size]
    return Crossings(labels[new], cost[order[new]], cells[order[new]])


@compiled
def _join(parent, ends, order, kept):
    """Mark the edges, in order, that join two components."""
    for edge in order:
        kept[edge] = unite(parent, ends[edge, 0], ends[edge, 1])


def spanning_tree(crossings: Crossings) -> npt.NDArray[np.bool_]:
    """Return which crossings the minimum spanning tree of the labels has; a forest if need be."""
    labels, cost = crossings.labels, crossings.cost
    names, ends = np.unique(labels, return_inverse=True)
    order = np.lexsort((labels[:, 1], labels[:, 0], cost))
    kept = np.zeros(len(labels), np.bool_)
    _join(np.arange(names.size), ends.reshape(-1, 2), order, kept)
    return kept
