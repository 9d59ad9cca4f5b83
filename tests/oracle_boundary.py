"""Boundary distances by a Dijkstra from each border cell: the reference for elimination.

The thesis's way (Gerritsen, TU Eindhoven 2012, section 4.1), kept to be compared with. A binary
heap of cells, each in it once, its keys lowered in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.dissection import Rectangle, border_cells
from orograph.kernels.boundary.elimination import BlockCosts, check_block
from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import edge

_DY = np.array([0, 0, 1, -1, 1, 1, -1, -1])
_DX = np.array([1, -1, 0, 0, 1, -1, 1, -1])


@compiled
def _weigh_steps(friction, elevation, rules, top, left, height, width, cost):
    """Cost of each step from each cell; ``unreached`` where it is barred or leaves the block."""
    moves = 4 if rules.steps == 1 else 8
    weights = np.full((height * width, moves), rules.unreached)
    for y in range(height):
        for x in range(width):
            for k in range(moves):
                v, u = y + _DY[k], x + _DX[k]
                if 0 <= v < height and 0 <= u < width:
                    edge(friction, elevation, top + y, left + x, _DY[k], _DX[k], rules, cost)
                    if cost[0] < rules.unreached:
                        weights[y * width + x, k] = cost[0]
    return weights


@compiled
def _rise(heap, place, dist, i):
    cell = heap[i]
    key = dist[cell]
    while i > 0:
        parent = (i - 1) >> 1
        if dist[heap[parent]] <= key:
            break
        heap[i] = heap[parent]
        place[heap[i]] = i
        i = parent
    heap[i] = cell
    place[cell] = i


@compiled
def _sink(heap, place, dist, size):
    """Put the last of ``size + 1`` cells in the first one's place."""
    cell = heap[size]
    key = dist[cell]
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and dist[heap[child + 1]] < dist[heap[child]]:
            child += 1
        if dist[heap[child]] >= key:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    heap[i] = cell
    place[cell] = i


@compiled
def _dijkstra(weights, width, source, unreached, dist, heap, place):
    """Distances from one cell to all of the block."""
    dist[:] = unreached
    place[:] = -1
    dist[source] = 0
    heap[0] = source
    place[source] = 0
    size = 1
    while size:
        cell = heap[0]
        size -= 1
        if size:
            _sink(heap, place, dist, size)
        for k in range(weights.shape[1]):
            if weights[cell, k] < unreached:
                other = cell + _DY[k] * width + _DX[k]
                value = dist[cell] + weights[cell, k]
                if value < dist[other]:
                    dist[other] = value
                    if place[other] < 0:
                        place[other] = size
                        heap[size] = other
                        size += 1
                    _rise(heap, place, dist, place[other])


@compiled
def _from_each(weights, width, cells, unreached):
    n = cells.shape[0]
    dist = np.empty(weights.shape[0], weights.dtype)
    heap = np.empty(weights.shape[0], np.int64)
    place = np.empty(weights.shape[0], np.int64)
    out = np.empty((n, n), weights.dtype)
    for i in range(n):
        source = cells[i, 0] * width + cells[i, 1]
        _dijkstra(weights, width, source, unreached, dist, heap, place)
        for j in range(n):
            out[i, j] = dist[cells[j, 0] * width + cells[j, 1]]
    return out


def boundary_by_dijkstra(costs: BlockCosts, block: Rectangle | None = None) -> npt.NDArray[Any]:
    """The same matrix as `orograph.kernels.boundary.elimination.boundary_matrix`, slowly.

    Sums are taken from the start of each path to its end.
    """
    block = check_block(costs, block)
    weights = _weigh_steps(
        costs.friction,
        costs.elevation,
        costs.rules,
        block.top + 1,
        block.left + 1,
        block.height,
        block.width,
        np.empty(1, costs.dtype),
    )
    cells = border_cells(block.height, block.width)
    found: npt.NDArray[Any] = _from_each(weights, block.width, cells, costs.rules.unreached)
    return found
