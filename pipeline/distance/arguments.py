"""Arguments that say what a distance is: the surface, the coefficients and the dtype, checked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.distance.checks import check_friction, check_heights
from orograph.distance.sources import check_same_grid
from orograph.kernels.relax.models import BARRIER, MODELS
from orograph.tiles.arguments import as_plain, check_choice, check_number, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster, Raster, open_raster

DTYPES = ("float64", "float32", "int64")
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Surface:
    """Rasters that a cost model reads: friction, elevation, or both."""

    friction: Raster | None
    elevation: Raster | None

    @property
    def named(self) -> dict[str, Raster]:
        """Its rasters by name, friction first."""
        both = {"friction": self.friction, "elevation": self.elevation}
        return {name: raster for name, raster in both.items() if raster is not None}

    @property
    def rasters(self) -> tuple[Raster, ...]:
        return tuple(self.named.values())

    @property
    def first(self) -> Raster:
        return self.rasters[0]

    def check(self, dtype: np.dtype[Any], longest: float, unit: int) -> None:
        """Refuse rasters in memory that cannot be walked on; tiles check what is stored."""
        whole = Window(0, 0, *self.first.shape)
        if isinstance(self.friction, ArrayRaster):
            cells = self.friction.read(whole)
            check_friction(cells, self.friction.nodata, whole, dtype, cells.size, longest, unit)
        if isinstance(self.elevation, ArrayRaster):
            check_heights(self.elevation.read(whole), self.elevation.nodata, whole, dtype)


def open_surface(
    friction: Any,
    elevation: Any,
    cost: str,
    nodata: float | int | None,
    band: int | None = None,
    variable: str | None = None,
) -> Surface:
    model = MODELS[cost]
    which: dict[str, Any] = {"band": band, "variable": variable}
    given = {"friction": friction, "elevation": elevation}
    for name in model.needs:
        if given.get(name) is None:
            raise InputError(f"{name}: None, but cost={cost!r} needs it; pass {name}=")
    by_friction = friction is not None and "friction" in model.takes
    surface = Surface(
        open_raster(friction, nodata=nodata, argument="friction", **which) if by_friction else None,
        open_raster(elevation, argument="elevation", **({} if by_friction else which))
        if "elevation" in model.takes
        else None,
    )
    for raster in surface.rasters[1:]:
        check_same_grid("elevation", raster, surface.first)
    return surface


def model_coefficients(cost: str, given: Mapping[str, Any] | None) -> tuple[float, ...]:
    names, table = MODELS[cost].coefficients, MODELS[cost].table
    if given is not None and not isinstance(given, Mapping):
        raise InputError(
            f"coefficients: {shown(given)}; it must be a dict of numbers by name, such as "
            f"{names or {}}"
        )
    unknown = sorted(map(str, set(given or ()) - {*names, *([table] if table else [])}))
    if unknown:
        raise InputError(
            f"coefficients: {', '.join(unknown)} unknown for cost={cost!r}; it has "
            f"{', '.join(names) or 'none'}"
        )
    scalars = dict(given or {})
    rows = scalars.pop(table, ()) if table else ()
    if table and (np.ndim(rows) != 1 or len(rows) == 0):
        raise InputError(
            f"coefficients: {table}: {shown(rows)}; cost={cost!r} needs a sequence of numbers"
        )
    numbered = {f"{table}[{place}]": value for place, value in enumerate(rows)}
    for name, value in {**scalars, **numbered}.items():
        check_number(f"coefficients: {name}", value, -LARGEST, LARGEST)
    chosen = *map(float, {**names, **scalars}.values()), *map(float, rows)
    check = MODELS[cost].check
    try:
        if check:
            check(*chosen)
    except ValueError as error:
        raise InputError(f"coefficients: {dict(given or {})}: {error}") from None
    return chosen


def check_outputs(outputs: str | Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the outputs; refuse none, and unknown ones."""
    given = (outputs,) if isinstance(outputs, str) else outputs
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise InputError(f"outputs: {shown(outputs)}; give one or more of {', '.join(known)}")
    wanted = tuple(check_choice("outputs", name, known) for name in given)
    if not wanted:
        raise InputError(f"outputs: none; give at least one of {', '.join(known)}")
    return wanted


def check_starts(initial_cost: Any, dtype: np.dtype[Any]) -> float | list[float]:
    """Return the initial cost, or a list of one for each point, if the dtype of costs holds it."""
    initial_cost = as_plain(initial_cost)
    several = isinstance(initial_cost, Iterable) and not isinstance(initial_cost, str | bytes)
    if isinstance(initial_cost, Mapping):
        raise InputError(
            f"initial_cost: {shown(initial_cost)}; give one number, or a list of one for each point"
        )
    checked = [
        check_number("initial_cost", start, 0, LARGEST)
        for start in (initial_cost if several else [initial_cost])
    ]
    starts = np.array(checked)
    if dtype.kind == "i":
        if (starts % 1).any():
            raise InputError(f"initial_cost: {initial_cost}; with dtype='int64' it must be whole")
        checked = [int(start) for start in checked]
    most = BARRIER // 2 if dtype.kind == "i" else float(np.finfo(dtype).max) / 2
    if (starts > most).any():
        raise InputError(f"initial_cost: {initial_cost}; in {dtype} it must be at most {most:g}")
    return checked if several else checked[0]


def check_whole_lengths(lengths: npt.NDArray[np.float64], connectivity: int, cost: str) -> None:
    if not MODELS[cost].integers:
        raise InputError(
            f"dtype: 'int64' with cost={cost!r}; use a float, its costs are no integers"
        )
    used = lengths[{4: [0, 1], 8: [0, 1, 2], 16: [0, 1, 2, 3, 4]}[connectivity]]
    if cost == "friction" and (used != np.rint(used)).any():
        raise InputError(
            f"dtype: 'int64' needs steps of whole length, here they are {used[:, 0].tolist()}; "
            "use cell_size=1 with connectivity=4, or a float dtype"
        )
