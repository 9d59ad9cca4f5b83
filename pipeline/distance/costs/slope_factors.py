"""Factors of slope by their names or as tables, as coefficients of the models of terrain."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.relax.models.factors import (
    CONSTANT,
    INVERSE,
    IRMISCHER_CLARKE,
    SECANT,
    TABLE,
    TOBLER,
    check_factors,
)
from orograph.tiles.arguments import as_plain, as_text, check_number, check_path, is_number, shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError

MOST = 1e12
POWERS = 100


class Factor(NamedTuple):
    """A named factor: its kind, and its coefficients with their defaults."""

    kind: int
    coefficients: Mapping[str, float]


def _line(zero: float, low: float, high: float, slope: float) -> dict[str, float]:
    return {"zero_factor": zero, "low_cut": low, "high_cut": high, "slope": slope}


def _cuts(low: float, high: float, **others: float) -> dict[str, float]:
    return {"low_cut": low, "high_cut": high, **others}


NAMED = {
    "binary": Factor(TABLE, {"zero_factor": 1.0, "low_cut": -30.0, "high_cut": 30.0}),
    "linear": Factor(TABLE, _line(1.0, -90.0, 90.0, 1 / 90)),
    "symmetric_linear": Factor(TABLE, _line(1.0, -90.0, 90.0, 1 / 90)),
    "inverse_linear": Factor(INVERSE, _line(1.0, -45.0, 45.0, -1 / 45)),
    "symmetric_inverse_linear": Factor(INVERSE, _line(1.0, -45.0, 45.0, -1 / 45)),
    "cos": Factor(SECANT, _cuts(-90.0, 90.0, cos_power=1.0)),
    "sec": Factor(SECANT, _cuts(-90.0, 90.0, sec_power=1.0)),
    "cos_sec": Factor(SECANT, _cuts(-90.0, 90.0, cos_power=1.0, sec_power=1.0)),
    "sec_cos": Factor(SECANT, _cuts(-90.0, 90.0, sec_power=1.0, cos_power=1.0)),
    "tobler": Factor(TOBLER, _cuts(-70.0, 70.0)),
    "irmischer_clarke": Factor(IRMISCHER_CLARKE, _cuts(-70.0, 70.0)),
}
"""Slope factors by name: those of ArcGIS with its defaults, and two hiking functions."""


FactorLike = str | os.PathLike[str] | Mapping[float, float] | Sequence[Sequence[float]] | Array
"""A factor: its name, or a table of angles and factors as a mapping, as pairs or in a file."""


def factor_coefficients(factor: object, given: Mapping[str, Any] | None) -> tuple[float, ...]:
    """Return the coefficients of a factor of slope, as the models of terrain take them.

    Parameters
    ----------
    factor
        One of `NAMED`; a table, as a mapping, pairs or the path of a text file; None: 1.
    given
        Coefficients of a named factor that differ from its defaults.

    Raises
    ------
    InputError
    """
    if given is not None and not isinstance(given, Mapping):
        raise InputError(
            f"vertical_coefficients: {shown(given)}; it must be a dict of numbers by name"
        )
    name = factor if isinstance(factor, str) and factor in NAMED else None
    if given and name is None:
        raise InputError(
            "vertical_coefficients: they are for a factor with a name; leave them out of a table"
        )
    if factor is None:
        return (float(CONSTANT), 0.0, 0.0, 0.0, 0.0)
    if name is None:
        rows = table_of("vertical_factor", factor, NAMED, -90, 90, "a slope")
        # The powers, which tables do not have, are 0.
        found = float(TABLE), 0.0, 0.0, float(len(rows)), *rows[:, 0], *rows[:, 1]
        coefficients = tuple(map(float, found))
        check_table("vertical_factor", coefficients)
        return coefficients
    return _named(name, dict(given or {}))


def _named(name: str, given: dict[Any, Any]) -> tuple[float, ...]:
    """Return the coefficients of a named factor."""
    kind, usual = NAMED[name]
    unknown = sorted(map(str, set(given) - set(usual)))
    if unknown:
        raise InputError(
            f"vertical_coefficients: {', '.join(unknown)} unknown for the factor {name!r}; it has "
            f"{', '.join(usual)}"
        )
    values = {key: _coefficient(key, given.get(key, value)) for key, value in usual.items()}
    low, high = values["low_cut"], values["high_cut"]
    if not low < high:
        raise InputError(
            f"vertical_coefficients: low_cut {as_text(low)} and high_cut {as_text(high)}; "
            "the first must be less"
        )
    zero, slope = values.get("zero_factor", 1.0), values.get("slope", 0.0)
    # A symmetric line bends at level ground, if that lies between the cuts.
    symmetric = name.startswith("symmetric")
    angles = [low, 0.0, high] if symmetric and low < 0 < high else [low, high]
    lines = [zero + slope * (abs(angle) if symmetric else angle) for angle in angles]
    # A power of the cosine is the negative power of the secant. The names tell which of the two
    # factors holds downhill and which uphill.
    sec, cos = values.get("sec_power", 0.0), -values.get("cos_power", 0.0)
    down, up = {"cos": (cos, cos), "sec": (sec, sec), "cos_sec": (cos, sec)}.get(name, (sec, cos))
    # In the order of the models: kind, powers of the secant downhill and uphill, number of rows,
    # angles, factors.
    found = float(kind), down, up, float(len(angles)), *angles, *lines
    check_table(f"vertical_coefficients: {name!r}", found)
    return found


def _coefficient(key: str, value: object) -> float:
    """Return a coefficient of a named factor, checked."""
    name = f"vertical_coefficients: {key}"
    if key.endswith("cut"):
        return float(check_number(name, value, -90, 90))
    if not key.endswith("power"):
        return float(check_number(name, value, -MOST, MOST))
    power = float(check_number(name, value, 0, POWERS))
    if power % 1:
        raise InputError(f"{name}: {power:g}; it must be a whole number")
    return power


def check_table(name: str, coefficients: tuple[float, ...]) -> None:
    """Raise InputError for coefficients that are not those of a factor of slope."""
    try:
        check_factors(*coefficients)
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def table_of(
    argument: str, factor: object, names: Iterable[str], least: float, most: float, words: str
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a table of angles and factors, shape (rows, 2), checked but for its order.

    ``least`` and ``most`` are the bounds of the angles, which are those of ``words``; ``names`` are
    given in messages.
    """
    if isinstance(factor, str | os.PathLike):
        factor = _read(argument, check_path(argument, factor), names)
    must = f"give a name, or pairs of {words} in degrees and its factor"
    factor = as_plain(factor)
    if isinstance(factor, Mapping):
        factor = list(factor.items())
    if isinstance(factor, bytes) or not isinstance(factor, Iterable):
        raise InputError(f"{argument}: {shown(factor)}; {must}, or one of {', '.join(names)}")
    rows = [tuple(row) if isinstance(row, Iterable) else row for row in factor]
    for row in rows:
        if not isinstance(row, tuple) or len(row) != 2:
            raise InputError(f"{argument}: {shown(row)} in its table; {must}")
        for value, low, high in zip(map(as_plain, row), (least, -MOST), (most, MOST), strict=True):
            if not is_number(value) or not low <= value <= high:
                raise InputError(
                    f"{argument}: {shown(value)} in its table; angles are {least:g} to {most:g} "
                    f"degrees, factors 0 to {MOST:g}"
                )
    if len(rows) < 2:
        raise InputError(f"{argument}: a table of {len(rows)} rows; it needs two at least")
    return np.array(rows, np.float64)


def _read(argument: str, path: str, names: Iterable[str]) -> Any:
    """Return the two columns of a text file."""
    if not os.path.isfile(path):
        raise InputError(
            f"{argument}: {shown(path)} is not a file; give one, or one of {', '.join(names)}"
        )
    try:
        with open(path, encoding="utf-8") as file:
            # Columns are separated by spaces, tabs or commas.
            lines = [line.replace(",", " ").split() for line in file]
        return [tuple(map(float, line)) for line in lines if line and not line[0].startswith("#")]
    except ValueError as error:
        raise InputError(
            f"{argument}: {path}: {error}; it must have an angle and a factor in each line"
        ) from None


def slope_limit(max_slope: float | None) -> float:
    """Return the greatest slope of a step as rise by length, given it in degrees; None: infinity.

    Raises
    ------
    InputError
    """
    if max_slope is None:
        return math.inf
    degrees = check_number("max_slope", max_slope, 0, 90)
    # The tangent that the library computes is less than 1 at 45 degrees.
    return {45.0: 1.0, 90.0: math.inf}.get(degrees, math.tan(math.radians(degrees)))
