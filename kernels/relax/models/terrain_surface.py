"""Mean friction times the length along a surface, times a factor of the slope of another one."""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import (
    check_factors,
    model_of_factors,
    slope_factor,
    weigh_ground,
)
from orograph.kernels.vectors.lanes import lanes


@compiled(error_model="numpy")
def terrain_surface(dz, length, friction, p, start, end):
    factor = slope_factor(dz, length, p)
    rise = end[0] - start[0]
    return (np.sqrt(length * length + rise * rise) * factor) * friction


@compiled(error_model="numpy", inline=True)
def _weigh_row(ahead, back, u, v, length, friction, p, further, at_u, at_v, plane, scratch):
    low, high = lanes(further, at_u, ahead.size), lanes(further, at_v, ahead.size)
    weigh_ground(ahead, back, u, v, low, high, length, p, (friction, friction), scratch)


MODEL = model_of_factors(
    summary="mean friction, times the length along a surface, times a factor of the slope",
    needs=("elevation", "surface"),
    check=check_factors,
    formula=terrain_surface,
    row=_weigh_row,
)
