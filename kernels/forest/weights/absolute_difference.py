"""The difference of two heights."""

from __future__ import annotations

from orograph.kernels.compiled import compiled
from orograph.kernels.forest.weights.weight import Weight


@compiled
def absolute_difference(a, b):
    return abs(a - b)


WEIGHT = Weight(summary="difference of the two heights", formula=absolute_difference)
