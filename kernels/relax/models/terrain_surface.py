"""Mean friction times the length along a surface, times a factor of the slope of another one."""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import check_factors, slope_factor
from orograph.kernels.relax.models.model import Model


@compiled(error_model="numpy")
def terrain_surface(dz, length, friction, p, start, end):
    factor = slope_factor(dz / length, p)
    rise = end[0] - start[0]
    return (np.sqrt(length * length + rise * rise) * factor) * friction


MODEL = Model(
    summary="mean friction, times the length along a surface, times a factor of the slope",
    needs=("elevation", "surface"),
    symmetric=False,
    integers=False,
    by_name=False,
    bars=True,
    neutral_friction=1.0,
    coefficients={"kind": 0.0, "down": 0.0, "up": 0.0, "rows": 0.0},
    table="factors",
    check=check_factors,
    formula=terrain_surface,
)
