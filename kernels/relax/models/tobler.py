"""Tobler's hiking function: seconds for metres.

length * pace * exp(3.5 * |slope + 0.05|) * mean friction, slope positive uphill. pace 0.6 s/m is
6 km/h (Tobler 1993, NCGIA Technical Report 93-1).
"""

from __future__ import annotations

from typing import Any

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.model import Model
from orograph.kernels.vectors.exponential import emit_exponential, exponential, splat


@compiled(error_model="numpy")
def tobler(dz, length, friction, p):
    slope = dz / length
    return ((length * p[0]) * exponential(3.5 * abs(slope + 0.05))) * friction


def _emit(builder: Any, steps: list[Any], p: list[Any]) -> list[Any]:
    # The operations of the formula in its order, so that the bits are the same.
    number, steep = steps[0][0].type, []
    for _, slope, _, _ in steps:
        sum_ = builder.fadd(slope, splat(number, 0.05))
        down = builder.fcmp_ordered("<", sum_, splat(number, 0.0))
        size = builder.select(down, builder.fneg(sum_), sum_)
        steep.append(builder.fmul(splat(number, 3.5), size))
    return [
        builder.fmul(builder.fmul(builder.fmul(length, p[0]), value), friction)
        for value, (_, _, length, friction) in zip(
            emit_exponential(builder, steep), steps, strict=True
        )
    ]


def _check(pace: float) -> None:
    if not pace > 0:
        raise ValueError(f"tobler pace {pace}; must be above 0 s/m")


MODEL = Model(
    summary="seconds by Tobler's hiking function, for metres",
    needs=("elevation",),
    symmetric=False,
    integers=False,
    units="s",
    neutral_friction=1.0,
    coefficients={"pace": 0.6},
    check=_check,
    formula=tobler,
    vectors=_emit,
)
