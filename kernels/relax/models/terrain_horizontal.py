"""Length along a surface, times factors of the slope and of a direction, such as that of the wind.

The friction of either end is multiplied by the horizontal factor there, as in ArcGIS, and their
mean by the length and the factor of the slope. Where steps lead is known from the ``place`` of
cells: their column, and 8 times their row, both modulo 8. Coefficients: those of a factor of slope,
those of a horizontal factor, then headings of steps by rows and columns, from -2 to 2 each.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import ANGLES, horizontal_factor, slope_factor
from orograph.kernels.relax.models.model import Model


@compiled(error_model="numpy")
def terrain_horizontal(dz, length, friction, p, start, end):
    factor = slope_factor(dz / length, p)
    rise = end[0] - start[0]
    if not (start[3] >= 0.0 and end[3] >= 0.0):
        return np.nan
    here = int(start[3])
    there = int(end[3])
    dy = ((there // 8 - here // 8 + 11) & 7) - 3
    dx = ((there % 8 - here % 8 + 11) & 7) - 3
    first = ANGLES + 2 * int(p[3])
    heading = p[first + 2 + 2 * int(p[first + 1]) + (dy + 2) * 5 + dx + 2]
    leaving = start[1] * horizontal_factor(start[2], heading, p, first)
    arriving = end[1] * horizontal_factor(end[2], heading, p, first)
    mean = (leaving + arriving) * 0.5 + (friction - friction)
    return (np.sqrt(length * length + rise * rise) * factor) * mean


MODEL = Model(
    summary=(
        "length along a surface, times a factor of the slope, times the mean of the two frictions, "
        "each times a factor of the direction there"
    ),
    needs=("elevation", "surface", "resistance", "horizontal_raster", "place"),
    symmetric=False,
    integers=False,
    by_name=False,
    bars=True,
    neutral_friction=1.0,
    coefficients={"kind": 0.0, "down": 0.0, "up": 0.0, "rows": 0.0},
    table="factors",
    formula=terrain_horizontal,
)
