"""The operation `zonal`: statistics of values in zones, of rasters of any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.cells import EXACT, whole_labels
from orograph.arguments.grids import check_same_grid
from orograph.components.exact_groups import GroupSums, sums_of, sums_of_squares
from orograph.components.table import cell_areas
from orograph.engines.sweep_problems import Table
from orograph.operations.operation import operation
from orograph.polygons.job import TracedParts, TracingProblem
from orograph.results.names import name_labels
from orograph.run.job import UnstoredJob, goes_around, layout_of
from orograph.run.options import RunSpec, SearchOptions
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import check_outputs
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference, parse_wkt
from orograph.tiles.grid.units import ellipsoid_of
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster

if TYPE_CHECKING:
    import pandas as pd

    from orograph.run.context import RunContext
    from orograph.run.job import Job

ZONES = ("watershed", "labels", "allocation", "catchment", "depression", "link")
"""Names of zones among the rasters of results."""
OF_ZONES = ("cells", "area", "perimeter")
OF_VALUES = ("count", "sum", "mean", "std", "min", "max")
SUMS = ("area", "perimeter", "sum", "square")
"""Quantities that are summed exactly."""
SIDES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Steps across the sides of a cell."""


@dataclass(frozen=True)
class Zonal(TracingProblem):
    """Statistics of zones, as a problem whose parts need a cell around them for perimeters."""

    nodata: tuple[float | int | None, ...]
    """Nodata values of the zones and, if there are any, of the values."""
    areas: Reals
    """Area of a cell of each row."""
    sides: Reals
    """Lengths of the northern, southern and western (or eastern) side of a cell of each row."""
    backend: str = "numba"

    name = "zonal"
    halo = 1
    may_wrap = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk of a run, with a zone to a thousand cells."""
        zones = -(-cells.grid // 1000)
        read = sum(dtype.itemsize for dtype in cells.dtypes)
        return Bytes(read + 12 * 8, checkpoints=zones * 200, table=zones * 800)

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> Table:
        """Return the statistics of the zones in a part."""
        given, *values = cells
        ring = window.grow(1)
        inside = frame.within(ring)
        there = valid_cells(given, self.nodata[0])
        zones, beside = np.zeros(ring.shape, np.int64), np.zeros(ring.shape, np.bool_)
        if given.dtype.kind == "f" or given.dtype == np.uint64:
            given = whole_labels(given, there, frame, "zones")
        zones[inside], beside[inside] = given, there
        own, kept = zones[1:-1, 1:-1], beside[1:-1, 1:-1]
        label, group = np.unique(own[kept], return_inverse=True)
        group, count = group.reshape(-1), label.size
        rows = np.nonzero(kept)[0] + window.y
        perimeter = np.zeros(window.shape)
        height, width = window.shape
        for n, (dy, dx) in enumerate(SIDES):
            across = np.s_[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
            ends = ~beside[across] | (zones[across] != own)
            length = self.sides[min(n, 2), window.y : window.y + height]
            perimeter += np.where(ends, length[:, None], 0.0)
        table: Table = {
            "label": label,
            "cells": np.bincount(group, minlength=count),
            **_packed("area", sums_of(group, count, self.areas[rows])),
            **_packed("perimeter", sums_of(group, count, perimeter[kept])),
        }
        if values:
            inner = values[0][window.within(frame)]
            known = valid_cells(inner, self.nodata[1])[kept]
            table |= _of_values(group[known], count, inner[kept][known], window)
        return table


def _of_values(group: Integers, count: int, values: Array, window: Window) -> Table:
    """Return the statistics of values by group."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        large = (values > EXACT) | (values < (-EXACT if values.dtype.kind == "i" else 0))
        if large.any():
            raise InputError(
                f"values: {values[large][0]} in rows {window.y} to {window.y + window.height - 1}; "
                "whole numbers up to 2**53 can be summed: subtract an offset"
            )
    order = np.argsort(group, kind="stable")
    some, first = np.unique(group[order], return_index=True)
    least, greatest = np.full((2, count), np.nan)
    if some.size:
        ordered = values[order].astype(np.float64)
        least[some] = np.minimum.reduceat(ordered, first)
        greatest[some] = np.maximum.reduceat(ordered, first)
    real = values.astype(np.float64)
    return {
        "count": np.bincount(group, minlength=count),
        "min": least,
        "max": greatest,
        **_packed("sum", sums_of(group, count, real)),
        **_packed("square", sums_of_squares(group, count, real)),
    }


def _packed(name: str, sums: GroupSums) -> Table:
    rows, exponent = sums.packed()
    return {name: rows, f"{name}_exponent": np.array([exponent])}


def _joined(tables: Sequence[Table]) -> tuple[Integers, dict[str, Any]]:
    """Return the labels of all zones, and their statistics."""
    whole = np.concatenate([table["label"] for table in tables])
    label, group = np.unique(whole, return_inverse=True)
    group = group.reshape(-1)
    found: dict[str, Any] = {}
    for name in tables[0].keys() & {"cells", "count"}:
        found[name] = np.zeros(label.size, np.int64)
        np.add.at(found[name], group, np.concatenate([table[name] for table in tables]))
    for name, keep in (("min", np.fmin), ("max", np.fmax)):
        if name in tables[0]:
            found[name] = np.full(label.size, np.nan)
            keep.at(found[name], group, np.concatenate([table[name] for table in tables]))
    for name in SUMS:
        if name in tables[0]:
            parts = [
                GroupSums.unpacked(table[name], int(table[f"{name}_exponent"][0]))
                for table in tables
            ]
            found[name] = GroupSums.concatenated(parts).joined(group.tolist(), label.size)
    return label, found


def _columns(found: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Array]:
    """Return the columns of the table, each sum rounded once."""
    columns: dict[str, Any] = {}
    for name in wanted:
        if name in ("area", "perimeter", "sum"):
            columns[name] = _rounded(found[name])
        elif name == "mean":
            columns[name] = _rounded(found["sum"], found["count"])
        elif name == "std":
            columns[name] = _deviations(found["sum"], found["square"], found["count"])
        else:
            columns[name] = found[name]
    return columns


def _rounded(sums: GroupSums, counts: Integers | None = None) -> Reals:
    """Return sums as float64, or means; NaN of no values, infinite beyond float64."""
    unit = Fraction(2) ** sums.exponent
    divisors = [1] * len(sums.numbers) if counts is None else counts.tolist()
    pairs = zip(sums.numbers, divisors, strict=True)
    return np.array([_float(n * unit / d) if d else np.nan for n, d in pairs])


def _deviations(sums: GroupSums, squares: GroupSums, counts: Integers) -> Reals:
    """Return the standard deviations of populations, of which only the root is rounded."""
    one, two = Fraction(2) ** sums.exponent, Fraction(2) ** squares.exponent
    return np.array(
        [
            math.sqrt(_float((n * b * two - (a * one) ** 2) / (n * n))) if n else np.nan
            for a, b, n in zip(sums.numbers, squares.numbers, counts.tolist(), strict=True)
        ]
    )


def _float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _sides(place: Georeference, height: int) -> tuple[Reals, str]:
    """Return the lengths of the sides of a cell in each row, and their unit."""
    size = place.side_lengths
    if place.y is None or size is None:
        return np.ones((3, height)), "cells"
    dy, dx = size
    crs = None if place.crs_wkt is None else parse_wkt(place.crs_wkt)
    if crs is None or not crs.is_geographic:
        known = place.length_unit is not None
        sides = np.array([dx, dx, dy])[:, None] * (place.metres if known else 1.0)
        return np.repeat(sides, height, axis=1), "m" if known else "units of the coordinates"
    globe, zero = ellipsoid_of(crs), np.zeros(height)
    north, south = (np.clip(place.y + up, -90, 90) for up in (dy / 2, -dy / 2))
    across = [globe.inv(zero, edge, zero + dx, edge)[2] for edge in (north, south)]
    along = globe.inv(zero, south, zero, north)[2]
    if height > 1 and place.y[0] < place.y[-1]:
        across = across[::-1]  # the side of the row before lies in the south
    return np.stack([*across, along]), "m"


@operation()
def zonal(
    zones: RasterLike,
    values: RasterLike | None = None,
    *,
    statistics: str | Sequence[str] | None = None,
    **options: Unpack[SearchOptions],
) -> Job[pd.DataFrame]:
    """Return statistics of values in zones, such as watersheds, for rasters of any size.

    Parameters
    ----------
    zones : raster
        Zones, shape (y, x): whole numbers, which may be stored as floats. Of a dataset of several
        variables, ``watershed``, ``labels``, ``allocation``, ``catchment``, ``depression`` or
        ``link`` is read by default.
    values : raster, optional
        Values of the same grid.
    statistics : sequence of str, optional
        Some of ``"cells"``, ``"area"`` and ``"perimeter"`` of the zones, and ``"count"``,
        ``"sum"``, ``"mean"``, ``"std"``, ``"min"`` and ``"max"`` of the values; by default all.
    **options

    Returns
    -------
    pandas.DataFrame
        One row for each zone; the index is ``zone``, ascending. ``cells`` counts the cells of a
        zone, ``count`` those that have a value, of which the other statistics are (NaN of none).
        ``std`` is that of the population. Areas and perimeters are in square metres and metres if
        the CRS gives the length of a unit or of a degree (on its ellipsoid), else as
        ``attrs["area_unit"]`` and ``attrs["length_unit"]`` say. A perimeter is the length of all
        sides of cells at which a zone ends, at nodata and the edge of the raster too. If zones
        stand for names, there is a column ``name``.

    Raises
    ------
    InputError
        If the grids differ, zones are not whole numbers, or whole numbers are greater than 2**53.

    Notes
    -----
    Sums are exact and rounded once, so any tiling gives the same bits. Infinite values count as
    nodata. Each cell is read once, those of zones with a cell around each part of up to 2048 cells
    a side.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> zones = np.array([[1, 1, 2], [1, 2, 2]])
    >>> table = og.zonal(zones, np.array([[1.0, 2.0, 4.0], [3.0, 5.0, 6.0]]))
    >>> table[["cells", "perimeter", "sum", "mean", "max"]]
          cells  perimeter   sum  mean  max
    zone
    1         3        8.0   6.0   2.0  3.0
    2         3        8.0  15.0   5.0  6.0
    """
    spec = RunSpec.of(options)
    raster = spec.open(zones, "zones", ZONES)
    rasters: tuple[Raster, ...] = (raster,)
    known: tuple[str, ...] = OF_ZONES
    if values is not None:
        other = open_raster(values, argument="values")
        check_same_grid("values", other, raster)
        rasters, known = (raster, other), (*OF_ZONES, *OF_VALUES)
    wanted = known if statistics is None else _wanted(statistics, known)
    height = raster.shape[0]
    areas, area_unit = cell_areas(raster.georeference, height, "zones")
    sides, length_unit = _sides(raster.georeference, height)
    problem = Zonal(tuple(r.nodata for r in rasters), areas, sides)

    def make_engine(rasters: tuple[Raster, ...], context: RunContext, backend: str) -> TracedParts:
        return problem.engine(rasters, context)

    def result(engine: TracedParts, attributes: dict[str, Any]) -> pd.DataFrame:
        import pandas as pd

        label, found = _joined(engine.tables())
        table = pd.DataFrame(_columns(found, wanted), pd.Index(label, name="zone"))
        names = name_labels(raster.attrs, label.tolist())
        if names is not None:
            table.insert(0, "name", names)
        table.attrs |= {"area_unit": area_unit, "length_unit": length_unit}
        return table

    layout = layout_of(raster, spec)
    return UnstoredJob(
        *(rasters, raster.shape, layout, problem.backend, problem.name, make_engine, result),
        problem=problem,
        spec=spec,
        wraps=goes_around(raster, spec, layout.tile),
    )


def _wanted(statistics: str | Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names of statistics."""
    of_all = check_outputs(statistics, (*OF_ZONES, *OF_VALUES), "statistics")
    for name in of_all:
        if name not in known:
            raise InputError(f"statistics: {name!r} is of values; pass values= too")
    return of_all
