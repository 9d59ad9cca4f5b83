"""The operation `upstream`: statistics of all cells whose water passes each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.cells import EXACT, refuse_cell
from orograph.arguments.grids import check_same_grid
from orograph.components.table import cell_areas
from orograph.flow.accumulation import MOST, NOTHING, AccumulationProblem, Amounts, Term
from orograph.flow.flow_problem import open_directions
from orograph.kernels.flow.accumulate import BITS
from orograph.kernels.flow.codes import MISSING, Codes
from orograph.kernels.flow.longest import compile_kernels as compile_longest
from orograph.kernels.flow.upstream import MEAN, STD, SUM, finish_statistic, write_digits
from orograph.kernels.flow.upstream import compile_kernels as compile_digits
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import (
    check_choice,
    check_integer,
    check_outputs,
    refuse_arguments,
    shown,
)
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import RasterLike, open_raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

STATISTICS = ("count", "sum", "mean", "std", "min", "max")
OF_SUMS = {"sum": SUM, "mean": MEAN, "std": STD}
MOST_CLASSES = 255


@dataclass(frozen=True)
class Upstream(AccumulationProblem):
    """Statistics of the cells upstream as a problem of the quadtree sweep."""

    statistics: tuple[str, ...]
    classes: tuple[int, ...]
    """Ascending whole numbers to count; if there are any, there are no statistics."""
    weights: Integers
    """Weight of a cell of each row in units of a power of two; empty if all weigh the same."""
    exponent: int
    """Binary exponent of the unit of weights."""
    values_nodata: float | int | None
    most: int
    """Greatest size of a value that can be summed."""

    name = "upstream"
    joins_on_cpus = False  # larger tiles take more memory, of which each term takes some

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes; both rasters are read twice."""
        # One word of a count, two of a digit, which are copied for statistics; values and marks.
        state = sum(4 * 8 if term.kind == "sum" else 8 for term in self.terms)
        needs, words = self.flow_bytes(cells, state + 8 + 5), 2 * len(self.terms)
        read = cells.grid * sum(dtype.itemsize for dtype in cells.dtypes)
        return replace(needs, border=(160 + 16 * words, 160 + 8 * words), read_again=read)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of paths, of greatest values and of sums."""
        super().compile_kernels(dtypes, several)
        compile_longest()
        if self.powers:
            compile_digits()

    @property
    def powers(self) -> range:
        """Powers of the values that are summed."""
        return range(
            1 + max([1 + (s == "std") for s in self.statistics if s in OF_SUMS], default=-1)
        )

    @property
    def terms(self) -> tuple[Term, ...]:
        """Terms from which the statistics or classes are computed."""
        if self.classes:
            return tuple(Term("count", number) for number in range(len(self.classes)))
        wanted = {*self.statistics, *(["count"] if self.powers and not self.weights.size else [])}
        terms = [Term(name) for name in ("count", "min", "max") if name in wanted]
        return (*terms, *(term for power in self.powers for term in self._digits(power)))

    def _digits(self, power: int) -> list[Term]:
        """Return the digits of the sum of a power of the values, the highest first."""
        count = 2 * power + min(self.weights.size, 1)
        # The two highest are one term; the sum of equal weights is a count.
        return [Term("sum", power, place) for place in reversed(range(count - (count > 1)))]

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """A raster of each statistic or class."""
        names = {f"count_{c}".replace("-", "minus_"): f"cells of class {c}" for c in self.classes}
        outputs = []
        for name, what in (names or {s: f"{s} of the values" for s in self.statistics}).items():
            attrs = {"long_name": f"{what} upstream"}
            if name.startswith("count"):
                kind: tuple[Any, ...] = np.dtype(np.int64), -1, {**attrs, "units": "cells"}
            else:
                kind = np.dtype(np.float64), np.nan, attrs
            outputs.append(Variable(name, *kind))
        return tuple(outputs)

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return the values of a window as floats, NaN where there are none, or their classes."""
        (given,) = others
        values = np.where(valid_cells(given, self.values_nodata), given, np.nan).astype(np.float64)
        if self.classes:
            known = np.array(self.classes, np.float64)
            at = np.searchsorted(known, values).clip(max=known.size - 1)
            return [np.where(known[at] == values, at, MOST_CLASSES).astype(np.uint8)]
        most = float(self.most if self.powers else np.finfo(np.float64).max)
        if given.dtype.kind in "iu":
            most = min(most, EXACT - 1)
        large = (np.abs(values) > most) & (numbers != MISSING)
        if large.any():
            why = f"; a value must be {most:.4g} at most in size: divide all, or subtract an offset"
            refuse_cell("values", given, int(large.argmax()), window, why)
        return [values]

    def falls(self, term: Term, place: Place, others: Sequence[Array], room: Integers) -> Amounts:
        """Return the contribution of each cell of a tile to a term, using ``room`` for it."""
        values, low = others[0].reshape(-1), np.empty(0, np.int64)
        if term.kind == "count":
            room[:] = values == term.number if self.classes else ~np.isnan(values)
        elif term.greatest:
            keys = keys_of(values + 0.0)  # of the zeros, only the positive one
            room[:] = np.where(np.isnan(values), NOTHING, keys if term.kind == "max" else ~keys)
        else:
            low = np.empty_like(room)
            rows = slice(place.window.y, place.window.y + place.window.height)
            weights = np.array(self.weights[rows])  # may be read-only: compile for one type
            write_digits(values, weights, term.number, term.place, room, low)
        return Amounts(room, low)

    def finish(
        self, place: Place, saved: tuple[Codes, Sequence[Array]], message: tuple[Amounts, ...]
    ) -> dict[str, Array]:
        """Return the statistics of each cell of a tile."""
        tile, others = saved
        found: dict[Term, Amounts] = {}
        for term, entering in zip(self.terms, message, strict=True):
            falls = self.falls(term, place, others, np.empty(tile.size, np.int64))
            found[term] = self._accumulate(term, place, tile, falls, entering)
        blocks = {}
        for variable, block in zip(self.outputs, self._statistics(found), strict=True):
            blocks[variable.name] = block.reshape(tile.shape)
            blocks[variable.name][tile == MISSING] = variable.fill_value
        return blocks

    def _statistics(self, found: dict[Term, Amounts]) -> list[Array]:
        """Return each statistic of accumulated terms, or each count."""
        if self.classes:
            return [amounts.high for amounts in found.values()]
        sums: Any = [np.empty((0, 2, 0), np.int64)] * 3
        for power in self.powers:
            digits = [found.pop(term) for term in self._digits(power)]
            sums[power] = np.array([(one.high, one.low) for one in digits])
        if self.powers and not self.weights.size:
            count = found[Term("count")].high
            sums[0] = np.array([(np.zeros_like(count), count)])
        results: list[Array] = []
        for name in self.statistics:
            if name in OF_SUMS:
                result: Array = np.empty(sums[0].shape[-1])
                exponent = -BITS + (self.exponent if name == "sum" else 0)
                finish_statistic(OF_SUMS[name], sums[0], sums[1], sums[2], exponent, result)
            else:
                result = found[Term(name)].high
            if name in ("min", "max"):
                keys = result if name == "max" else ~result
                result = np.where(result == NOTHING, np.nan, values_of(keys))
            results.append(result)
        return results

    def reread(self, place: Place, saved: Codes, *cells: Array) -> tuple[Codes, Sequence[Array]]:
        """Return the saved directions of a tile and its values, read again."""
        return saved, cells[1:]


def keys_of(values: Reals) -> Integers:
    """Return integers in the order of floats."""
    bits = values.view(np.int64)
    keys: Integers = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
    return keys


def values_of(keys: Integers) -> Reals:
    """Return the floats of which `keys_of` makes integers."""
    return keys_of(keys.view(np.float64)).view(np.float64)


@operation()
def upstream(
    direction: RasterLike,
    values: RasterLike,
    *,
    statistics: str | Sequence[str] = "mean",
    weights: str | None = None,
    classes: Sequence[int] | None = None,
    codes: str | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return statistics of all cells whose water passes each cell, for rasters of any size.

    Parameters
    ----------
    direction
    values : raster
        Values on the same grid, such as heights, rain or kinds of land. Nodata, NaN and infinite
        cells are left out.
    statistics : str or sequence of str
        One or more of ``"count"``, ``"sum"``, ``"mean"``, ``"std"``, ``"min"`` and ``"max"``.
    weights : {"area"}, optional
        Weigh sums, means and standard deviations by the areas of cells.
    classes : sequence of int, optional
        Whole numbers, 255 at most, whose cells are counted in place of statistics.
    codes
    **options

    Returns
    -------
    xarray.Dataset
        One raster for each statistic, of all cells upstream that have a value, the cell itself
        included. ``count``, int64, is -1 on nodata of the directions; the others are float64 and
        NaN there and where no cell upstream has a value. ``std`` is that of the population. With
        ``classes``: the counts ``count_3``, ``count_minus_1`` and so on, int64, -1 on nodata.
        ``min``, ``max``, ``mean`` and ``std`` have the unit of the values, ``sum`` too, times that
        of areas if it is weighted. Coordinates and CRS are those of the directions.

    Raises
    ------
    InputError
        If an argument is invalid, the grids differ, the raster holds angles (D-infinity), a code is
        not one of ``codes``, directions form a cycle, or a value is too large.
    StoreExistsError, BackendError

    Notes
    -----
    For sums, values are rounded to multiples of 2**-62, whatever the values are: those below 2**-10
    in size lose digits, so multiply such ones by a power of two. Areas are rounded to 62 bits of
    the greatest. Sums of these, of their squares and products are exact integers, and are rounded
    once at the end, so any tiling gives the same bits; for ``std`` the variance is rounded, and its
    root. Values that are summed must not be greater than 2**62 over the number of cells of the
    grid; whole numbers must be below 2**53.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> flow = og.flow_direction(valley)
    >>> og.upstream(flow, valley)["mean"].values.round(2)
    array([[9.  , 9.  , 9.  , 9.  ],
           [8.  , 8.17, 7.89, 7.58],
           [9.  , 9.  , 9.  , 9.  ]])
    >>> og.upstream(flow, valley, classes=[8, 9])["count_9"].values
    array([[1, 1, 1, 1],
           [0, 4, 6, 8],
           [1, 1, 1, 1]])
    """
    spec = RunSpec(**options)
    raster, code = open_directions(spec, direction, codes)
    other = open_raster(values, argument="values")
    check_same_grid("values", other, raster)
    wanted = tuple(dict.fromkeys(check_outputs(statistics, STATISTICS, "statistics")))
    numbers: tuple[int, ...] = ()
    if classes is not None:
        others = {"statistics": statistics != "mean", "weights": weights is not None}
        refuse_arguments("classes", **others)
        numbers, wanted = _parse_classes(classes), ()
    areas, exponent = np.empty(0), 0
    units = units_of(other, *(name for name in wanted if name != "count"))
    if weights is not None:
        check_choice("weights", weights, ("area",))
        areas, area_unit = cell_areas(raster.georeference, raster.shape[0], "direction")
        exponent = int(np.frexp(areas.max())[1]) - BITS
        if "sum" in units and area_unit != "cells":
            units["sum"] += f" {area_unit}"
    problem = Upstream(
        *(code, wanted, numbers, np.rint(np.ldexp(areas, -exponent)).astype(np.int64), exponent),
        *(other.nodata, MOST // (raster.shape[0] * raster.shape[1])),
        orientation=raster.georeference.orientation,
    )
    return raster_job(problem, (raster, other), spec, units=units)


def _parse_classes(classes: Sequence[int]) -> tuple[int, ...]:
    """Return the classes in ascending order, each once."""
    known = classes if isinstance(classes, Iterable) and not isinstance(classes, bytes) else ()
    given = {check_integer("classes", c, 1 - EXACT, EXACT - 1) for c in known}
    if not 0 < len(given) <= MOST_CLASSES:
        raise InputError(f"classes: {shown(classes)}; give 1 to {MOST_CLASSES} whole numbers")
    return tuple(sorted(given))
