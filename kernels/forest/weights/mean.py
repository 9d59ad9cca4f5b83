"""The mean of two heights."""

from __future__ import annotations

from orograph.kernels.compiled import compiled
from orograph.kernels.forest.weights.weight import Weight


@compiled
def mean(a, b):
    return (a + b) / 2


WEIGHT = Weight(summary="mean of the two heights", formula=mean)
