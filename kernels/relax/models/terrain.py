"""Mean friction times the length along the ground, times a factor of the slope.

The length is sqrt(length**2 + rise**2); see factors.py for the factors.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import (
    check_factors,
    model_of_factors,
    slope_factor,
    weigh_ground,
)


@compiled(error_model="numpy")
def terrain(dz, length, friction, p):
    factor = slope_factor(dz, length, p)
    return (np.sqrt(length * length + dz * dz) * factor) * friction


@compiled(error_model="numpy", inline=True)
def _weigh_row(ahead, back, u, v, length, friction, p, further, at_u, at_v, plane, scratch):
    weigh_ground(ahead, back, u, v, u, v, length, p, (friction, friction), scratch)


MODEL = model_of_factors(
    summary="mean friction, times the length along the ground, times a factor of the slope",
    needs=("elevation",),
    check=check_factors,
    formula=terrain,
    row=_weigh_row,
)
