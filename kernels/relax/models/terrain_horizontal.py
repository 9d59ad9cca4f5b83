"""Length along a surface, times factors of the slope and of a direction, such as that of the wind.

The friction of either end is multiplied by the horizontal factor there, as in ArcGIS, and their
mean by the length and the factor of the slope. Where steps lead is known from the ``place`` of
cells: their column, and 8 times their row, both modulo 8. Coefficients: those of a factor of slope,
those of a horizontal factor, then headings of steps by rows and columns, from -2 to 2 each.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.models.factors import (
    NEXT,
    horizontal_factor,
    horizontal_factors,
    model_of_factors,
    slope_factor,
    weigh_ground,
)
from orograph.kernels.vectors.lanes import lanes


@compiled
def _heading(start, end, headings):
    """Return the heading of a step between two places."""
    here = int(start)
    there = int(end)
    # Places are known modulo 8 and steps are at most 2 long. 8 keeps the difference positive, and 3
    # centres what is left on 0.
    dy = ((there // 8 - here // 8 + 11) & 7) - 3
    dx = ((there % 8 - here % 8 + 11) & 7) - 3
    return headings[(dy + 2) * 5 + dx + 2]


@compiled(error_model="numpy")
def terrain_horizontal(dz, length, friction, p, start, end):
    factor = slope_factor(dz, length, p)
    rise = end[0] - start[0]
    # A missing place marks a cell that no step may enter or leave.
    if not (start[3] >= 0.0 and end[3] >= 0.0):
        return np.nan
    at = int(p[NEXT])
    heading = _heading(start[3], end[3], p[int(p[at + NEXT]) :])
    leaving = start[1] * horizontal_factor(start[2], heading, p, at)
    arriving = end[1] * horizontal_factor(end[2], heading, p, at)
    mean = (leaving + arriving) * 0.5 + (friction - friction)
    return (np.sqrt(length * length + rise * rise) * factor) * mean


@compiled(error_model="numpy", inline=True)
def _weigh_row(ahead, back, u, v, length, friction, p, further, at_u, at_v, plane, scratch):
    count = ahead.size
    start, end = lanes(further, at_u + 3 * plane, count), lanes(further, at_v + 3 * plane, count)
    # a row is of one step, which shows between any two cells of the grid
    x = 0
    while x < count and not (start[x] >= 0.0 and end[x] >= 0.0):
        x += 1
    if x == count:
        ahead[:] = np.nan
        back[:] = np.nan
        return
    at = int(p[NEXT])
    headings = p[int(p[at + NEXT]) :]
    there, again = lanes(scratch, 0, count), lanes(scratch, count, count)
    rest = lanes(scratch, 2 * count, scratch.size - 2 * count)
    # `weigh_ground` overwrites this part of the scratch only later.
    felt = lanes(rest, 0, count)
    for way in range(2):
        mean = again if way else there
        heading = (
            _heading(end[x], start[x], headings) if way else _heading(start[x], end[x], headings)
        )
        for side in range(2):
            cells = at_v if side else at_u
            horizontal_factors(felt, lanes(further, cells + 2 * plane, count), heading, p, at)
            resistance = lanes(further, cells + plane, count)
            for i in range(count):
                here = np.float64(resistance[i]) * felt[i]
                mean[i] = mean[i] + here if side else here
    for i in range(count):
        barred = 0.0 if (start[i] >= 0.0) & (end[i] >= 0.0) else np.nan
        barred += friction[i] - friction[i]
        there[i] = there[i] * 0.5 + barred
        again[i] = again[i] * 0.5 + barred
    low, high = lanes(further, at_u, count), lanes(further, at_v, count)
    weigh_ground(ahead, back, u, v, low, high, length, p, (there, again), rest)


MODEL = model_of_factors(
    summary=(
        "length along a surface, times a factor of the slope, times the mean of the two frictions, "
        "each times a factor of the direction there"
    ),
    needs=("elevation", "surface", "resistance", "horizontal_raster", "place"),
    formula=terrain_horizontal,
    row=_weigh_row,
)
