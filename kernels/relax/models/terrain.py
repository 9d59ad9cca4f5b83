"""Mean friction times the length along the ground, times a factor of the slope.

The length is sqrt(length**2 + rise**2); see factors.py for the factors.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import check_factors, slope_factor, slope_factors
from orograph.kernels.relax.models.model import Model


@compiled(error_model="numpy")
def terrain(dz, length, friction, p):
    factor = slope_factor(dz / length, p)
    return (np.sqrt(length * length + dz * dz) * factor) * friction


@compiled(error_model="numpy")
def _weigh_row(out, sign, u, v, length, friction, p, factor, scratch):
    for x in range(out.size):
        factor[x] = (sign * (np.float64(v[x]) - np.float64(u[x]))) / np.float64(length[x])
    slope_factors(factor, p, scratch)
    for x in range(out.size):
        dz = sign * (np.float64(v[x]) - np.float64(u[x]))
        along = np.float64(length[x])
        out[x] = (np.sqrt(along * along + dz * dz) * factor[x]) * friction[x]


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
    formula=terrain,
    row=_weigh_row,
)
