"""Speed, direction and access of each line: from numbers, columns, or OpenStreetMap's tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import is_number, shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.vector.layer import VectorLayer
from orograph.tiles.warn import warn_user

CAR_SPEEDS: Mapping[str, float] = {
    "motorway": 90, "motorway_link": 45,
    "trunk": 85, "trunk_link": 40,
    "primary": 65, "primary_link": 30,
    "secondary": 55, "secondary_link": 25,
    "tertiary": 40, "tertiary_link": 20,
    "unclassified": 25, "residential": 25, "living_street": 10, "service": 15,
}  # fmt: skip
"""km/h by class of road, as the car profile of OSRM has them."""
EVERYWHERE, ENDS, JUNCTIONS = "everywhere", "ends", "junctions"
ACCESS = EVERYWHERE, ENDS, JUNCTIONS
FORWARD, BACKWARD, BOTH = 1, -1, 0
_DIRECTIONS = {
    **dict.fromkeys(("yes", "true", "1", "1.0"), FORWARD),
    **dict.fromkeys(("-1", "-1.0", "reverse"), BACKWARD),
    # which way is open depends on the hour
    **dict.fromkeys(("no", "false", "0", "0.0", "reversible", "alternating"), BOTH),
}
_NO = {"", "no", "false", "0"}
# GDAL writes other tags as text in the manner of PostgreSQL's hstore: "key"=>"value","key"=>...
_TAG = re.compile(r'"((?:[^"\\]|\\.)*)"=>"((?:[^"\\]|\\.)*)"')
TAGS = "highway", "oneway", "junction", "bridge", "tunnel"


def add_tags(layer: VectorLayer) -> VectorLayer:
    """Return a layer with columns of the tags that GDAL leaves in the column ``other_tags``."""
    if "other_tags" not in layer.columns:
        return layer
    columns = dict(layer.columns)
    lacking = [name for name in TAGS if name not in columns]
    found = {name: np.full(len(layer), None, object) for name in lacking}
    for number, text in enumerate(columns["other_tags"].tolist()):
        for key, value in _TAG.findall(text) if isinstance(text, str) else ():
            if key in found:
                found[key][number] = value
    return VectorLayer(layer.geometry, {**columns, **found}, layer.crs, layer.bare)


def speeds_of(layer: VectorLayer, speed: object) -> npt.NDArray[np.float64]:
    """Return the speed on each line in km/h; infinite on lines that are left out.

    Raises
    ------
    InputError
        If there is no such column, a speed is not a positive number, or a class has no speed.
    """
    if isinstance(speed, str):
        return _checked(_column(layer, speed, "speed"), f"{speed} of line ")
    if speed is None or isinstance(speed, Mapping):
        return _by_class(layer, speed)
    if not is_number(speed) or not 0 < speed < np.inf:
        raise InputError(
            f"speed: {shown(speed)}; give a positive number of km/h, the name of a column, or a "
            "mapping of classes of roads to km/h"
        )
    return np.full(len(layer), float(speed))


def _by_class(layer: VectorLayer, speed: Mapping[Any, Any] | None) -> npt.NDArray[np.float64]:
    """Return speeds by the column ``highway``."""
    if "highway" not in layer.columns:
        raise InputError(
            f"speed: {shown(speed)}, and lines have no column 'highway' of classes of roads; pass "
            "speed= as a number of km/h or the name of a column"
        )
    kinds = _texts(layer.columns["highway"])
    if speed is None:
        found = np.array([CAR_SPEEDS.get(kind, np.inf) for kind in kinds])
        if not np.isfinite(found).any():
            raise InputError(
                f"speed: no line is of a class for cars ({', '.join(sorted(set(kinds))[:5])}); "
                "pass speed= as a mapping of classes to km/h"
            )
        warn_of_left_out(
            *(layer, ~np.isfinite(found), "as their classes are not for cars"),
            "; pass speed= as a mapping of classes to km/h, or to None to leave them out",
        )
        return found
    table: dict[str, float] = {}
    for kind, value in speed.items():
        usable = value is None or (is_number(value) and 0 < value < np.inf)
        if not isinstance(kind, str) or not usable:
            raise InputError(
                f"speed: {shown(kind)} has {shown(value)}; give each class, a str, a positive "
                "number of km/h, or None to leave it out"
            )
        table[kind] = np.inf if value is None else float(value)
    unknown = sorted({kind for kind in kinds if kind not in table})
    if unknown:
        number = next(n for n, kind in enumerate(kinds) if kind == unknown[0])
        raise InputError(
            f"speed: it has no class {unknown[0]!r}, of line {number} and others, in all "
            f"{len(unknown)} that it lacks; add a speed for it, or None to leave its lines out"
        )
    found = np.array([table[kind] for kind in kinds])
    if not np.isfinite(found).any():
        raise InputError("speed: it leaves out every line; give a class of theirs a speed")
    return found


def warn_of_left_out(layer: VectorLayer, lost: Array, why: str, step: str = "") -> None:
    """Warn of the lines that are left out: how many, and of which classes."""
    if not lost.any():
        return
    listed = ""
    if "highway" in layer.columns:
        kinds = Counter(_texts(np.asarray(layer.columns["highway"])[lost]))
        listed = ", ".join(f"{kind or 'none'} ({count})" for kind, count in kinds.most_common(5))
        listed = f": {listed}{', ...' if len(kinds) > 5 else ''}"
    warn_user(f"lines: {lost.sum()} of {len(layer)} are left out, {why}{listed}{step}")


def _checked(values: Array, what: str) -> npt.NDArray[np.float64]:
    """Return a column of speeds as numbers."""
    found = np.empty(len(values))
    for number, value in enumerate(values.tolist()):
        if not is_number(value) or not 0 < value < np.inf:
            raise InputError(
                f"speed: {what}{number} is {shown(value)}; speeds must be positive numbers of km/h"
            )
        found[number] = value
    return found


def directions_of(layer: VectorLayer, oneway: object) -> npt.NDArray[np.int8]:
    """Return for each line whether it is open forward, backward or both ways.

    Raises
    ------
    InputError
        If there is no such column, or a value says nothing about directions.
    """
    if isinstance(oneway, bool | np.bool_):
        return np.full(len(layer), FORWARD if oneway else BOTH, np.int8)
    if oneway is not None and not isinstance(oneway, str):
        raise InputError(
            f"oneway: {shown(oneway)}; pass True, False, the name of a column, or None for tags"
        )
    name = "oneway" if oneway is None else oneway
    if oneway is None and name not in layer.columns:
        texts = [""] * len(layer)
    else:
        texts = _texts(_column(layer, name, "oneway"))
    # OpenStreetMap implies one-way roads where the tag is missing; columns of one's own do not.
    implied = _implied(layer) if name == "oneway" else np.zeros(len(layer), np.int8)
    found = implied.copy()
    for number, text in enumerate(texts):
        if text and text not in _DIRECTIONS:
            raise InputError(
                f"oneway: {name} of line {number} is {shown(text)}; values are yes, no, -1, "
                "reversible, or numbers and bools of these meanings"
            )
        if text:
            found[number] = _DIRECTIONS[text]
    return found


def _implied(layer: VectorLayer) -> npt.NDArray[np.int8]:
    """Return the directions that follow from other tags: of roundabouts and motorways."""
    found = np.zeros(len(layer), np.int8)
    for column, values in (("junction", {"roundabout", "circular"}), ("highway", {"motorway"})):
        if column in layer.columns:
            found[[text in values for text in _texts(layer.columns[column])]] = FORWARD
    return found


def access_of(layer: VectorLayer, access: object) -> Array:
    """Return for each line where one gets on and off: one of `ACCESS`.

    Raises
    ------
    InputError
        If there is no such column, or a value is none of `ACCESS`.
    """
    found = np.full(len(layer), EVERYWHERE, "U10")
    if access is None:
        for name in ("bridge", "tunnel"):
            if name in layer.columns:
                # Any value of these tags but "no" is a bridge or a tunnel, such as "viaduct".
                found[[text not in _NO for text in _texts(layer.columns[name])]] = JUNCTIONS
        if "highway" in layer.columns:
            kinds = _texts(layer.columns["highway"])
            found[[kind in ("motorway", "motorway_link") for kind in kinds]] = JUNCTIONS
        return found
    if not isinstance(access, str):
        raise InputError(
            f"access: {shown(access)}; pass one of {', '.join(map(repr, ACCESS))}, the name of a "
            "column of them, or None for tags"
        )
    if access in ACCESS:
        found[:] = access
        return found
    texts = _texts(_column(layer, access, "access"))
    for number, text in enumerate(texts):
        if text not in ACCESS:
            raise InputError(
                f"access: {access} of line {number} is {shown(text)}; use one of "
                f"{', '.join(map(repr, ACCESS))}"
            )
    return np.array(texts, "U10")


def _column(layer: VectorLayer, name: str, argument: str) -> Array:
    if name not in layer.columns:
        listed = ", ".join(map(str, layer.columns)) or "none"
        raise InputError(
            f"{argument}: lines have no column {shown(name)}; their columns are {listed}"
        )
    return np.asarray(layer.columns[name])


def _texts(values: Array) -> list[str]:
    """Return tags in lower case; empty where a value is missing."""
    return [
        "" if value is None or value != value else str(value).strip().lower()
        for value in values.tolist()
    ]
