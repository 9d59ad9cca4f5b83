"""GRASS r.walk: seconds for metres.

rise + length * a + lambda * mean friction * length, where rise is dz * b uphill, dz * c downhill,
dz * d on slopes below slope_factor (Aitken 1977, Langmuir 1984).
"""

from __future__ import annotations

from typing import Any

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.model import Model
from orograph.kernels.vectors.exponential import splat


@compiled(error_model="numpy")
def walk(dz, length, friction, p):
    slope = dz / length
    rise = dz * p[1] if slope >= 0.0 else (dz * p[3] if slope < p[4] else dz * p[2])
    return (rise + length * p[0]) + (p[5] * friction) * length


def _emit(builder: Any, steps: list[Any], p: list[Any]) -> list[Any]:
    a, b, c, d, slope_factor, weight = p
    found = []
    # The branches of the formula become selections, in the same order of operations.
    for dz, slope, length, friction in steps:
        along = builder.fmul(builder.fmul(weight, friction), length)
        steep = builder.fcmp_ordered("<", slope, slope_factor)
        down = builder.select(steep, builder.fmul(dz, d), builder.fmul(dz, c))
        up = builder.fcmp_ordered(">=", slope, splat(slope.type, 0.0))
        rise = builder.select(up, builder.fmul(dz, b), down)
        found.append(builder.fadd(builder.fadd(rise, builder.fmul(length, a)), along))
    return found


def _check(a: float, b: float, c: float, d: float, slope_factor: float, weight: float) -> None:
    # The cost of a unit of length is linear in the slope between kinks. On gentle slopes downhill
    # it is least at one end, 0 or slope_factor; elsewhere the rise adds to it, as its coefficient
    # has the sign of the slope.
    if not (min(a + min(0.0, c * slope_factor), b, -d, weight) >= 0 and slope_factor <= 0):
        raise ValueError(
            f"walk coefficients {(a, b, c, d, slope_factor, weight)} can make a step's cost "
            "negative: a + c * slope_factor, b, -d, -slope_factor and lambda must not be below 0"
        )


MODEL = Model(
    summary="seconds by GRASS r.walk (Naismith, Langmuir), for metres",
    needs=("elevation",),
    symmetric=False,
    integers=False,
    units="s",
    neutral_friction=0.0,
    coefficients={
        "a": 0.72, "b": 6.0, "c": 1.9998, "d": -1.9998, "slope_factor": -0.2125, "lambda": 1.0,
    },
    check=_check,
    formula=walk,
    vectors=_emit,
)  # fmt: skip
