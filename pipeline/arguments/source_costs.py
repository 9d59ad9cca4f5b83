"""Parse what paths from each source cost: multipliers, rates and maxima."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.arguments import as_plain, check_integer, check_number, shown
from orograph.tiles.errors import InputError

MOST_RUNS = 64
LEAST_RATE, LARGEST = 1e-100, 1e100

PerSource = float | Sequence[float] | Mapping[int, float]
"""Strength of sources: one number, one for each point or geometry, or some by label."""


class Strength(NamedTuple):
    """Multiplier, rate and maximum of the costs of paths from a source."""

    multiplier: float = 1.0
    rate: float = 0.0
    maximum: float = math.inf


class ByLabel(NamedTuple):
    """Strengths of labelled sources, and that of all others."""

    known: Mapping[int, Strength]
    others: Strength


def per_source(name: str, value: object, check: Callable[[Any], float]) -> Any:
    """Return a number, a list or a dict by label, each number of it as ``check`` returns it."""
    if isinstance(value, Mapping):
        if not value:
            raise InputError(f"{name}: {{}}; give a number for each label, or one number")
        limits = np.iinfo(np.int64)
        labels = [check_integer(name, label, int(limits.min), int(limits.max)) for label in value]
        return dict(zip(labels, map(check, value.values()), strict=True))
    value = as_plain(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [check(number) for number in value]
    return check(value)


def parse_source_cost(given: object, dtype: np.dtype[Any]) -> dict[str, PerSource] | None:
    """Return the parts of ``source_cost``, checked; None if there are none.

    Raises
    ------
    InputError
    """
    if given is None:
        return None
    keys = Strength._fields
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            f"source_cost: {shown(given)}; give a dict with some of {', '.join(keys)}, such as "
            "{'multiplier': 2}"
        )
    for key in given:
        if key not in keys:
            step = "; that is initial_cost=" if key == "initial" else ""
            raise InputError(
                f"source_cost: {shown(key)} is unknown{step}; it takes {', '.join(keys)}"
            )
    parts = {key: per_source(f"source_cost: {key}", given[key], _checks(key)) for key in given}
    if dtype.kind == "i" and set(given) != {"maximum"}:
        raise InputError(
            f"source_cost: {', '.join(given)} with dtype='int64', which takes a maximum alone; use "
            "a float dtype"
        )
    return parts


def _checks(key: str) -> Callable[[Any], float]:
    """Return the function that checks a number of one of the parts."""
    name = f"source_cost: {key}"

    def check(value: object) -> float:
        if key == "multiplier":
            return float(check_number(name, value, 1 / LARGEST, LARGEST))
        number = float(check_number(name, value, 0, math.inf if key == "maximum" else LARGEST))
        if key == "rate" and 0 < number < LEAST_RATE:
            raise InputError(f"{name}: {shown(value)}; it must be 0, or at least {LEAST_RATE:g}")
        return number

    return check


def strengths_of_points(
    parts: Mapping[str, PerSource], number: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return multiplier, rate and maximum of each point, shape (points, 3).

    ``number`` is the index of each one's geometry, of which lists have a number each.
    """
    found = np.tile(np.array(Strength(), np.float64), (len(number), 1))
    count = int(number[-1]) + 1
    # Column by column, in the order of `Strength`; parts that are not given keep the usual number.
    for place, (key, usual) in enumerate(Strength()._asdict().items()):
        part = parts.get(key, usual)
        if isinstance(part, Mapping):
            check_labels(f"source_cost: {key}", part, labels.tolist())
            found[:, place] = [part.get(label, usual) for label in labels.tolist()]
        elif isinstance(part, Sequence):
            if len(part) != count:
                raise InputError(
                    f"source_cost: {key}: {len(part)} numbers for {count} points; give one each, "
                    "or one"
                )
            found[:, place] = np.array(part)[number]
        else:
            found[:, place] = part
    return found


def strengths_by_label(
    parts: Mapping[str, PerSource], known: Sequence[float] | None, what: str
) -> ByLabel:
    """Return the strengths of sources that are a raster, or lines and areas.

    ``known`` are all labels, if they are known; ``what`` the sources are, for messages.
    """
    usual, labels = Strength()._asdict(), set[int]()
    for key, part in parts.items():
        if isinstance(part, Mapping):
            if known is not None:
                check_labels(f"source_cost: {key}", part, known)
            labels |= set(part)
        elif isinstance(part, Sequence):
            raise InputError(
                f"source_cost: {key}: a list is for points; with {what} give one number, or a dict "
                "by label"
            )

    def strength(label: int | None) -> Strength:
        found = {}
        for key, part in parts.items():
            own: Any = part
            if isinstance(part, Mapping):
                own = usual[key] if label is None else part.get(label, usual[key])
            found[key] = own
        return Strength(**{**usual, **found})

    return ByLabel({label: strength(label) for label in sorted(labels)}, strength(None))


def check_labels(name: str, given: Iterable[int], known: Sequence[float]) -> None:
    """Raise InputError if a number is given for a label that no source has."""
    for label in set(given) - set(known):
        raise InputError(
            f"{name}: {label} is the label of no source; their labels are "
            f"{list(known[:10])}{' ...' if len(known) > 10 else ''}"
        )


def count_runs(source_cost: object) -> int:
    """Return the number of runs that a plan counts: one for each distinct strength.

    Of numbers by label there is one for the sources that have none. Lists are those of points
    whose labels are 0, 1, ...
    """
    parts = parse_source_cost(source_cost, np.dtype(np.float64)) or {}
    listed = [len(part) for part in parts.values() if isinstance(part, list)]
    if listed:
        number = np.arange(max(listed))
        runs = len(np.unique(strengths_of_points(parts, number, number), axis=0))
    else:
        by_label = strengths_by_label(parts, None, "")
        runs = len({*by_label.known.values(), by_label.others})
    check_runs(runs)
    return runs


def check_runs(count: int) -> None:
    """Raise InputError if there are more distinct strengths than runs may be."""
    if count > MOST_RUNS:
        raise InputError(
            f"source_cost: {count} different combinations of multiplier, rate and maximum, each "
            f"of which takes a run of its own; at most {MOST_RUNS}: round them, or call for some "
            "of the sources at a time"
        )
