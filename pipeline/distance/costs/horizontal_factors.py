"""Factors of the direction of a step, by their names or as tables, as coefficients of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orograph.distance.costs.slope_factors import MOST, check_table, table_of
from orograph.kernels.relax.models.factors import INVERSE, STEPS, TABLE
from orograph.tiles.arguments import check_number, shown
from orograph.tiles.errors import InputError

HALF = 180.0
NAMED: dict[str, dict[str, float]] = {
    "binary": {"zero_factor": 1.0, "cut_angle": 45.0},
    "forward": {"zero_factor": 0.5, "side_value": 1.0},
    "linear": {"zero_factor": 0.5, "cut_angle": 181.0, "slope": 1 / 90},
    "inverse_linear": {"zero_factor": 2.0, "cut_angle": 180.0, "slope": -1 / 90},
}
"""Coefficients of ArcGIS's horizontal factors by name, with its defaults."""


def horizontal_coefficients_of(
    factor: object, given: Mapping[str, Any] | None
) -> tuple[float, ...]:
    """Return the coefficients of a factor of direction, as the model takes them.

    Parameters
    ----------
    factor
        One of `NAMED`; a table, as a mapping, pairs or the path of a text file.
    given
        Coefficients of a named factor that differ from its defaults.

    Raises
    ------
    InputError
    """
    argument = "horizontal_coefficients"
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"{argument}: {shown(given)}; it must be a dict of numbers by name")
    if not isinstance(factor, str) or factor not in NAMED:
        if given:
            raise InputError(
                f"{argument}: they are for a factor with a name; leave them out of a table"
            )
        rows = table_of("horizontal_factor", factor, NAMED, 0, HALF, "an angle")
        table = *rows[:, 0].tolist(), *rows[:, 1].tolist()
        check_table("horizontal_factor", (TABLE, 0, 0, len(rows), *table))
        return float(TABLE), float(len(rows)), *table
    usual = NAMED[factor]
    unknown = sorted(map(str, set(given or ()) - set(usual)))
    if unknown:
        raise InputError(
            f"{argument}: {', '.join(unknown)} unknown for the factor {factor!r}; it has "
            f"{', '.join(usual)}"
        )
    values = {
        key: _coefficient(f"{argument}: {key}", key, (given or {}).get(key, value))
        for key, value in usual.items()
    }
    zero, cut = values["zero_factor"], values.get("cut_angle", HALF)
    if factor == "forward":
        kind, angles, factors = STEPS, [0, 45, 90, HALF], [zero, values["side_value"]]
    elif factor == "binary":
        kind, angles, factors = STEPS, [0.0, cut, HALF + 1], [zero]
    else:
        kind = INVERSE if factor == "inverse_linear" else TABLE
        # No heading differs from the direction by more than 180 degrees: a cut beyond that bars
        # none.
        angles = [0.0, min(cut, HALF)]
        factors = [zero + values["slope"] * angle for angle in angles]
        if kind == TABLE and min(factors) < 0:
            raise InputError(
                f"{argument}: a factor of {min(factors):g} at {angles[1]:g} degrees; it must be 0 "
                "or more at all angles: give a lesser cut_angle"
            )
    # Angles without a factor are barred, which NaN stands for.
    factors += [math.nan] * (len(angles) - len(factors))
    return float(kind), float(len(angles)), *map(float, angles), *map(float, factors)


def _coefficient(name: str, key: str, value: object) -> float:
    """Return a coefficient of a named factor, checked."""
    if key == "cut_angle":
        return float(check_number(name, value, 1e-9, HALF + 1))
    return float(check_number(name, value, -MOST if key == "slope" else 0, MOST))
