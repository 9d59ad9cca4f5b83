"""Mean friction times the length along the ground, times a factor of the slope.

The length is sqrt(length**2 + rise**2); see factors.py for the factors.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import (
    check_factors,
    lay_out_factors,
    slope_factor,
    weigh_ground,
)
from orograph.kernels.relax.models.model import Model


@compiled(error_model="numpy")
def terrain(dz, length, friction, p):
    factor = slope_factor(dz, length, p)
    return (np.sqrt(length * length + dz * dz) * factor) * friction


@compiled(error_model="numpy")
def _weigh_row(ahead, back, u, v, length, friction, p, further, at_u, at_v, plane, scratch):
    weigh_ground(ahead, back, u, v, u, v, length, p, (friction, friction), scratch)


MODEL = Model(
    summary="mean friction, times the length along the ground, times a factor of the slope",
    needs=("elevation",),
    symmetric=False,
    integers=False,
    by_name=False,
    bars=True,
    neutral_friction=1.0,
    coefficients={"kind": 0.0, "down": 0.0, "up": 0.0, "rows": 0.0},
    table="factors",
    check=check_factors,
    lay_out=lay_out_factors,
    formula=terrain,
    row=_weigh_row,
)
