"""Values that mark unreached vertices in the results of graph operations.

-1 among integers, with the attribute ``_FillValue``, and infinity among floats. Where a weight is
negative -1 may be a cost, and 2**60 stands for it, which no cost reaches.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.graph.spread import unreached
from orograph.tiles.arrays import Array
from orograph.tiles.graph.graph import Graph

NO_VERTEX = -9999
NO_HOPS = -1


def cost_fill(graph: Graph) -> int | None:
    """Return the value that marks unreached vertices in costs; None: infinity in floats."""
    if graph.arrays["weight"].dtype.kind == "f":
        return None
    return fill_of_integers(graph.weight_range[0])


def fill_of_integers(least: float) -> int:
    """Return the value that marks unreached vertices in integer costs: -1, or 2**60."""
    return -1 if least >= 0 else int(unreached(np.dtype(np.int64)))


def mark_unreached(cost: Array, fill: int | None) -> None:
    """Replace the kernels' value for unreached vertices by that of the result, in place."""
    if fill is not None:
        cost[cost == unreached(cost.dtype)] = fill


def fill_of_column(graph: Graph, name: str) -> int | None:
    """Return the ``_FillValue`` of a column of a result; None if it needs none."""
    if name in ("cost", "distance"):
        return cost_fill(graph)
    return {"hops": NO_HOPS, "predecessor": NO_VERTEX}.get(name)
