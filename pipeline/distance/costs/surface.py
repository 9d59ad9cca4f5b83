"""Open and check the rasters of a cost model, its coefficients, and initial costs."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.barriers import BARRIERS, BarriersLike, parse_barriers
from orograph.arguments.grids import check_same_grid
from orograph.arguments.source_costs import per_source
from orograph.arguments.steps import SlopeSpec
from orograph.distance.costs.checks import check_friction, check_heights, most_height
from orograph.distance.costs.headings import headings
from orograph.distance.costs.slope_factors import slope_limit
from orograph.distance.costs.terrain_cost import HORIZONTAL, TerrainCost
from orograph.kernels.relax.models import BARRIER, CROSSED, MODELS, NAMED, CostModel
from orograph.kernels.relax.models.factors import ANGLES
from orograph.tiles.arguments import check_number, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.lengths import step_lengths
from orograph.tiles.grid.units import (
    ELEVATION_UNITS,
    METRE,
    UNSTATED,
    LengthUnit,
    check_elevation_unit,
    parse_length_unit,
    unit_of_heights,
)
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.marks import warn_of_nodata
from orograph.tiles.raster.mask import ValidRaster
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.places import LevelRaster, PlaceRaster
from orograph.tiles.raster.raster import ArrayRaster, Raster, RasterLike, open_raster
from orograph.tiles.raster.scaled import scaled

COSTS = tuple(name for name, row in MODELS.items() if row.formula is None)
"""Names of the models that `cost_distance` takes as ``cost``."""
SLOPES = tuple(name for name in NAMED if MODELS[name].formula is not None)
"""Names of the models that `walking_time` takes."""
LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Surface:
    """A cost model and the rasters that it reads, such as friction and elevation."""

    model: CostModel
    named: dict[str, Raster]
    """Rasters by name, such as ``"friction"``; the others must match the first."""
    barriers: Raster | None = None
    """Raster of barriers: its cells that are not 0 or nodata are impassable."""
    length_scale: float = 1.0
    """Factor for lengths of the grid: metres per unit of length where costs are times, else 1."""

    def lengths(
        self, cell_size: float | tuple[float, float] | None, wraps: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return the lengths of steps; see `step_lengths`."""
        place, shape = self.first.georeference, self.first.shape
        return step_lengths(place, shape, cell_size, wraps=wraps) * self.length_scale

    @property
    def rasters(self) -> tuple[Raster, ...]:
        return tuple(self.named.values())

    @property
    def first(self) -> Raster:
        return self.rasters[0]

    @property
    def inputs(self) -> dict[str, Raster]:
        """All rasters that are read, by name: those of the model, then the barriers."""
        barriers = {} if self.barriers is None else {BARRIERS: self.barriers}
        return {**self.named, **barriers}

    @property
    def valid(self) -> Raster:
        """A raster whose cells are valid where those of all rasters are, and no barrier is."""
        first, *others = self.rasters
        if not others and self.barriers is None:
            return first
        return ValidRaster(first, tuple(others), self.barriers)

    @property
    def impassable(self) -> str:
        """Return the words for a cell on which no path can begin."""
        return "nodata" if self.barriers is None else "nodata or on a barrier"

    def check(self, dtype: np.dtype[Any], longest: float, unit: int) -> None:
        """Raise InputError for unusable cells of in-memory rasters; tiles check stored ones.

        And for penalties of barriers that do not fit the dtype.
        """
        for half in self.model.crossing:
            if dtype.kind == "i" and half % 1:
                raise InputError(
                    f"{BARRIERS}: a penalty of {2 * half:g} with dtype='int64'; it must be a "
                    "multiple of 2, because half of it is paid on each side"
                )
            if 2 * half > most_height(dtype):
                raise InputError(
                    f"{BARRIERS}: a penalty of {2 * half:g}; in {dtype} it must be at most "
                    f"{most_height(dtype):g}"
                )
        whole = Window(0, 0, *self.first.shape)
        for name, raster in self.named.items():
            if not isinstance(raster, ArrayRaster):
                continue
            cells, nodata = raster.read(whole), raster.nodata
            if name == "friction":
                check_friction(cells, nodata, whole, dtype, cells.size, longest, unit)
            else:
                check_heights(cells, nodata, whole, dtype, name)


def first_raster(cost: str) -> str:
    """Return ``"elevation"`` or ``"friction"``: the first raster argument of a cost model."""
    return "elevation" if "elevation" in MODELS[cost].needs else "friction"


def open_surface(
    raster: RasterLike,
    model: CostModel,
    choice: Mapping[str, Any],
    friction: RasterLike | None = None,
    rasters: Mapping[str, RasterLike] | None = None,
    argument: str | None = None,
    barriers: BarriersLike | None = None,
    no_penalties: str = "",
) -> Surface:
    """Open the rasters of a cost model.

    Parameters
    ----------
    raster
        What `first_raster` names.
    model
    choice
        What `open_raster` takes for it, such as `RunSpec.choice`.
    friction
        For models that go without; None: there is none.
    rasters
        The further ones that the model needs, by name.
    argument
        Name of ``raster`` in errors, if it has another one.
    barriers, no_penalties
        As for `parse_barriers`.
    """
    cost = model.name
    name = first_raster(cost)
    named = {name: open_raster(raster, argument=argument or name, **choice)}
    if name == "elevation" and argument == "friction":
        warn_of_nodata(named[name], argument, offered=True)
    if friction is not None:
        if MODELS[cost].neutral_friction is None:
            raise InputError(f"friction: not used by the model {cost!r}; leave it out")
        named["friction"] = open_raster(friction, argument="friction")
    if rasters is None and isinstance(named[name], RasterOutline):  # a plan need not have them
        rasters = dict.fromkeys(MODELS[cost].further, named[name])
    for further, source in _further_rasters(cost, rasters).items():
        named[further] = open_raster(source, argument=further)
    for own, other in named.items():
        check_same_grid(own, other, named[name])
    return with_barriers(Surface(model, named), barriers, no_penalties)


def with_barriers(
    surface: Surface, barriers: BarriersLike | None, no_penalties: str = ""
) -> Surface:
    """Return the surface with barriers; the arguments are those of `parse_barriers`."""
    barred, crossed, penalties = parse_barriers(barriers, surface.first, no_penalties=no_penalties)
    if crossed is None:
        return replace(surface, barriers=barred)
    model = surface.model._replace(crossing=tuple(penalty / 2 for penalty in penalties))
    return replace(surface, model=model, named={**surface.named, CROSSED: crossed}, barriers=barred)


def open_terrain(
    friction: RasterLike,
    terrain: TerrainCost,
    choice: Mapping[str, Any],
    barriers: BarriersLike | None,
    cell_size: float | tuple[float, float] | None,
) -> Surface:
    """Open friction and the rasters of a cost of terrain.

    ``choice`` is what `open_raster` takes for the friction, such as `RunSpec.choice`.
    """
    first = open_raster(friction, argument="friction", **choice)
    named = {"friction": first}
    opened: dict[int, Raster] = {}  # heights may be given for both lengths and slopes
    for name, source in terrain.rasters.items():
        if id(source) not in opened:
            opened[id(source)] = _open_of_terrain(name, source, terrain, first)
        named[name] = opened[id(source)]
    coefficients = terrain.coefficients
    if terrain.horizontal:
        # the model knows each end's friction and place by further rasters
        named |= {"resistance": first, "place": PlaceRaster(first)}
        # In the order in which the model takes its rasters.
        named = {name: named[name] for name in ("friction", *MODELS[terrain.model].needs)}
        rows = int(coefficients[ANGLES - 1])
        of_steps = headings(first.georeference, first.shape, cell_size)
        # In the order of the model: the factor of slope, that of direction, the headings of all
        # steps.
        coefficients = *coefficients[: ANGLES + 2 * rows], *terrain.horizontal, *of_steps
    model = CostModel(terrain.model, False, coefficients, terrain.max_slope)
    return with_barriers(Surface(model, named), barriers)


def in_metres(surface: Surface, elevation_unit: str | None) -> Surface:
    """Return the surface of a cost model; of one in seconds, heights and lengths become metres.

    Raises
    ------
    InputError
        As `heights_in` does, or if a unit is given and the model is not one in seconds.
    """
    cost = surface.model.name
    if MODELS[cost].formula is None:
        if elevation_unit is not None:
            raise InputError(
                f"elevation_unit: {shown(elevation_unit)}; only models of walking_time have "
                f"heights with a unit, and the cost is {cost!r}: leave it out"
            )
        return surface
    elevation = heights_in(METRE, surface.named["elevation"], "elevation", elevation_unit)
    metres = surface.first.georeference.metres
    return replace(surface, named={**surface.named, "elevation": elevation}, length_scale=metres)


def heights_in(
    unit: LengthUnit, raster: Raster, argument: str, elevation_unit: str | None
) -> Raster:
    """Return a raster of heights in a unit.

    Raises
    ------
    InputError
        If nothing tells the unit of the heights, if their attribute names none that is known, or
        ``elevation_unit`` is unknown.
    """
    place, stated = raster.georeference, str(raster.attrs.get("units", "")).strip()
    unknown = stated.lower() not in UNSTATED and parse_length_unit(stated) is None
    if unknown and elevation_unit is None:
        raise InputError(
            f"{argument}: its heights are in {shown(stated)} by the attribute units, which is not "
            f"a length that is known; pass elevation_unit=, one of {', '.join(ELEVATION_UNITS)}"
        )
    heights = check_elevation_unit(elevation_unit) or unit_of_heights(
        raster.attrs, place.crs_wkt, place.length_unit
    )
    if heights is None:
        names = ", ".join(map(repr, ELEVATION_UNITS))
        raise InputError(
            f"{argument}: its lengths are in {place.length_unit and place.length_unit.name}, and "
            f"nothing tells the unit of its heights; pass elevation_unit=, one of {names}"
        )
    return scaled(raster, heights.metres / unit.metres)


def _open_of_terrain(name: str, source: Any, terrain: TerrainCost, first: Raster) -> Raster:
    """Open a raster of a cost of terrain; level ground where it is None."""
    if source is None:
        return LevelRaster(first)
    given = name
    if getattr(terrain, name) is None:
        # One raster of heights serves as both: errors call it by the argument that was passed.
        given = "surface" if name == "elevation" else "elevation"
    raster = open_raster(source, argument=given)
    check_same_grid(given, raster, first)
    unit = first.georeference.length_unit
    if given == HORIZONTAL or (unit is None and terrain.elevation_unit is None):
        return raster  # without coordinates, heights are in the unit of lengths
    return heights_in(unit or METRE, raster, given, terrain.elevation_unit)


def _further_rasters(cost: str, given: Mapping[str, RasterLike] | None) -> dict[str, RasterLike]:
    """Return the extra rasters that a cost model needs, in its order; refuse others."""
    needed = MODELS[cost].further
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"rasters: {shown(given)}; it must be a dict of rasters by name")
    unknown = sorted(map(str, set(given or ()) - set(needed)))
    if unknown:
        raise InputError(
            f"rasters: {', '.join(unknown)} unknown for the model {cost!r}; it needs "
            f"{', '.join(needed) or 'none'}"
        )
    missing = [name for name in needed if (given or {}).get(name) is None]
    if missing:
        raise InputError(
            f"rasters: the model {cost!r} needs {', '.join(missing)}; pass "
            f"rasters={{{missing[0]!r}: ...}}"
        )
    return {name: (given or {})[name] for name in needed}


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
            f"coefficients: {', '.join(unknown)} unknown for the model {cost!r}; it has "
            f"{', '.join(names) or 'none'}"
        )
    scalars = dict(given or {})
    rows = scalars.pop(table, ()) if table else ()
    if table and (np.ndim(rows) != 1 or len(rows) == 0):
        raise InputError(
            f"coefficients: {table}: {shown(rows)}; the model {cost!r} needs a sequence of numbers"
        )
    numbered = {f"{table}[{place}]": value for place, value in enumerate(rows)}
    for name, value in {**scalars, **numbered}.items():
        check_number(f"coefficients: {name}", value, -LARGEST, LARGEST)
    # In the order of the model, whatever that of the caller; a table comes last.
    chosen = *map(float, {**names, **scalars}.values()), *map(float, rows)
    check = MODELS[cost].check
    try:
        if check:
            check(*chosen)
    except ValueError as error:
        raise InputError(f"coefficients: {dict(given or {})}: {error}") from None
    return chosen


def model_of(cost: str, slopes: SlopeSpec) -> CostModel:
    """Return the cost model of a name with its coefficients and the greatest slope, checked."""
    limit = slope_limit(slopes.max_slope)
    if limit < math.inf and MODELS[cost].formula is None:
        raise InputError(
            f"max_slope: {shown(slopes.max_slope)}; the model {cost!r} has no slopes: leave it out"
        )
    return CostModel(cost, False, model_coefficients(cost, slopes.coefficients), limit)


def check_starts(
    initial_cost: object, dtype: np.dtype[Any]
) -> float | list[float] | dict[int, float]:
    """Return the initial cost, checked to fit the dtype: a number, a list, or a dict by label."""
    most = BARRIER // 2 if dtype.kind == "i" else float(np.finfo(dtype).max) / 2

    def check(value: object) -> float:
        start = check_number("initial_cost", value, 0, LARGEST)
        if dtype.kind == "i" and start % 1:
            raise InputError(f"initial_cost: {start}; with dtype='int64' it must be whole")
        if start > most:
            raise InputError(f"initial_cost: {start}; in {dtype} it must be at most {most:g}")
        return int(start) if dtype.kind == "i" else start

    starts: float | list[float] | dict[int, float] = per_source("initial_cost", initial_cost, check)
    return starts


def check_whole_lengths(lengths: npt.NDArray[np.float64], connectivity: int, cost: str) -> None:
    if not MODELS[cost].integers:
        raise InputError(
            f"dtype: 'int64' with cost={cost!r}; use a float, its costs are no integers"
        )
    # Kinds of steps: along columns and rows, diagonals, knight's moves.
    used = lengths[{4: [0, 1], 8: [0, 1, 2], 16: [0, 1, 2, 3, 4]}[connectivity]]
    if cost == "friction" and (used != np.rint(used)).any():
        raise InputError(
            f"dtype: 'int64' needs steps of whole length, here they are {used[:, 0].tolist()}; "
            "use cell_size=1 with connectivity=4, or a float dtype"
        )
