"""Shortest paths in a graph in parts: the costs of all vertices in memory, the arcs of a few parts.

See `orograph.kernels.graph.part_rounds` for the algorithm.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from orograph.kernels.graph.part_rounds import visit_part
from orograph.kernels.graph.spread import unreached
from orograph.tiles.graph.graph import Graph

SHARE = 4
"""What part of the free memory the arcs of parts may take: a fourth."""


def costs_by_parts(graph: Graph, start: int, most: Any, cost: npt.NDArray[Any]) -> None:
    """Lower the costs of the stored vertices to the least from one of them, whose cost is 0."""
    nothing = unreached(cost.dtype)
    bounds = np.array(graph.bounds)
    keys = np.full(graph.part_count, nothing)
    pending = np.zeros(cost.size, np.bool_)
    pending[start] = True
    keys[np.searchsorted(bounds, start, side="right") - 1] = 0
    # about the way across a part of a planar graph
    width = cost.dtype.type(graph.mean_weight * (cost.size / graph.part_count) ** 0.5)
    rows_of = lru_cache(maxsize=parts_at_once(graph))(graph.part_rows)
    while (key := keys.min()) < nothing:
        part = int(keys.argmin())
        rows, first = rows_of(part), graph.bounds[part]
        bound = min(key + width, most)
        visit_part(*rows, first, part, bound, most, nothing, bounds, keys, pending, cost)


def parts_at_once(graph: Graph) -> int:
    """Return how many parts are kept in memory."""
    arc = graph.arrays["indices"].dtype.itemsize + graph.arrays["weight"].dtype.itemsize
    part = int(arc * graph.arc_count + 8 * graph.vertex_count) // graph.part_count + 1
    return max(1, int(psutil.virtual_memory().available) // SHARE // part)
