"""Tell whether a grid closes upon itself: along its rows, and over the poles."""

from __future__ import annotations

from orograph.tiles.arguments import check_flag
from orograph.tiles.errors import InputError
from orograph.tiles.raster.interface import Raster
from orograph.tiles.warn import warn_user

WRAPS = {"wraps": "x"}
"""Attribute of rasters whose last column lies beside their first."""
POLES = {"poles": "joined"}
"""Attribute of rasters whose cells are neighbours over the poles too."""
NO_POLES = False, False
FEWEST_COLUMNS = 3
TURN = 360.0
WITHIN = 0.01
"""Tolerance of a whole turn, in cells."""


def wraps_of(raster: Raster, wrap: bool | None) -> bool:
    """Return whether a raster wraps: as ``wrap`` says, else as its attribute ``wraps`` does.

    Raises
    ------
    InputError
        If it cannot: its longitudes do not span a whole turn, or it has too few columns.
    """
    if not (states_wrap(raster) if wrap is None else wrap):
        return False
    columns = raster.shape[1]
    if columns < FEWEST_COLUMNS:
        raise InputError(
            f"wrap: the raster has {columns} columns; it takes {FEWEST_COLUMNS} to go around"
        )
    turns = _turns(raster)
    if turns is None or abs(turns) <= WITHIN:
        return True
    place, span = raster.georeference, columns * TURN / (columns - turns)
    if abs(turns - 1) <= WITHIN * 2:
        raise InputError(
            f"wrap: the last column, at {place.x_name} = {_end(raster):.10g}, repeats the first; "
            f"leave it out, such as by .isel({place.x_name}=slice(None, -1))"
        )
    raise InputError(
        f"wrap: the columns span {span:.10g} degrees of longitude, not {TURN:g}; a geographic "
        "raster wraps only if they go around the globe: leave wrap out"
    )


def states_wrap(raster: Raster) -> bool:
    """Return whether the attribute ``wraps`` of a raster says that it wraps."""
    return bool(raster.attrs.get("wraps") == WRAPS["wraps"])


def poles_of(raster: Raster, poles: object, wraps: bool) -> tuple[bool, bool]:
    """Return whether cells of the first and of the last row are neighbours over a pole.

    ``poles`` is the keyword; ``wraps`` tells whether the raster wraps.

    Raises
    ------
    InputError
        If they cannot be: the raster does not wrap, has an odd number of columns, or no row that
        touches a pole.
    """
    if not check_flag("poles", poles):
        return NO_POLES
    if not wraps:
        raise InputError("poles: True, but the raster does not wrap; pass wrap=True too")
    if raster.shape[1] % 2:
        raise InputError(
            f"poles: the raster has {raster.shape[1]} columns; half a turn must be a whole number "
            "of columns: resample it to an even number"
        )
    touching = touched_poles(raster)
    if not any(touching):
        place = raster.georeference
        where = "the raster has no latitudes"
        if place.y is not None and place.in_degrees:
            first, last = float(place.y[0]), float(place.y[-1])
            where = f"{place.y_name} goes from {first:.10g} to {last:.10g} in {place.y.size} rows"
        raise InputError(
            f"poles: {where}, and the edge of no row is a pole, half a row beyond its centre; "
            "leave poles out"
        )
    return touching


def states_poles(raster: Raster) -> bool:
    """Return whether the attributes of a raster say that cells are neighbours over the poles."""
    return bool(raster.attrs.get("poles") == POLES["poles"])


def touched_poles(raster: Raster) -> tuple[bool, bool]:
    """Return whether the outer edges of the first and of the last row are a pole."""
    place = raster.georeference
    if place.y is None or not place.in_degrees or place.y.size < 2:
        return NO_POLES
    first, last = float(place.y[0]), float(place.y[-1])
    half = (last - first) / (place.y.size - 1) / 2
    within = 90 - WITHIN * 2 * abs(half), 90 + WITHIN * 2 * abs(half)
    return within[0] <= abs(first - half) <= within[1], within[0] <= abs(last + half) <= within[1]


def warn_of_globe(raster: Raster) -> None:
    """Warn if a raster that is not to wrap goes around the globe."""
    turns = _turns(raster)
    if turns is not None and abs(turns) <= WITHIN:
        warn_user(
            "the raster goes around the globe, and ends at its first and last column; pass "
            "wrap=True to make these neighbours, or wrap=False to end it there without a warning"
        )


def _turns(raster: Raster) -> float | None:
    """Return the columns of a geographic raster beyond a whole turn; None if it is not one."""
    place = raster.georeference
    if place.x is None or not place.in_degrees or place.x.size < FEWEST_COLUMNS:
        return None
    step = abs(float(place.x[-1]) - float(place.x[0])) / (place.x.size - 1)
    return float(place.x.size - TURN / step)


def _end(raster: Raster) -> float:
    place = raster.georeference
    assert place.x is not None
    return float(place.x[-1])


def turn_of(raster: Raster) -> tuple[float, float]:
    """Return the x at the western end of a raster that wraps, and the width of a whole turn.

    In a raster without coordinates x counts cells.
    """
    place, columns = raster.georeference, raster.shape[1]
    if place.x is None:
        return -0.5, float(columns)
    step = abs(float(place.x[-1] - place.x[0])) / (columns - 1)
    return float(place.x.min()) - step / 2, TURN if place.in_degrees else step * columns
