"""The operation `catchments`: the people that facilities of limited capacity serve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from orograph.access.arguments import AccessOptions, parse_access
from orograph.access.reach import (
    MOST,
    AccessProblem,
    Rasters,
    Reach,
    Result,
    Searches,
    in_units,
    people_of,
)
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import check_flag, refuse_arguments
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.extensions import LAYERS
from orograph.tiles.raster.points import PointsLike
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.store.create import ColumnsInTurns, Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

LISTED = ("row", "column", "cost")
"""Columns of the cells within reach."""


@dataclass(frozen=True)
class Catchments(AccessProblem):
    """Catchments of facilities that serve people in turn."""

    ranks: Reals
    """Facilities serve in the order of their ranks."""
    capacities: Integers
    """Capacities in units of 2**-20; -1 where unlimited."""

    name = "catchments"
    held_bytes = 12
    counts_people = False
    columns: ClassVar[tuple[str, ...]] = ("cells", "served", "farthest", "left_over")

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of who serves each cell, and of the people who are left."""
        served = {"long_name": "facility that serves first"}
        left = {"long_name": "people not served"}
        return (
            Variable("catchment", np.dtype(np.int64), -1, served),
            Variable("residual", np.dtype(np.float64), math.nan, left),
        )

    @property
    def order(self) -> Integers:
        """Facilities by rank; of equal ones the first."""
        return np.argsort(self.ranks, kind="stable")

    def solve(self, searches: Searches, found: Iterator[tuple[int, Reach]]) -> Result:
        """Let each facility in turn serve the people that are left within its reach."""
        left, owner, count = searches.people(), searches.room(np.int32), len(self)
        served, cells, farthest = [0] * count, [0] * count, np.full(count, np.nan)
        population = int(left.sum())
        for number, reach in found:
            there, within = reach.window.slices, reach.costs < self.distance.link_blank[0]
            taken, capacity = np.where(within, left[there], 0), int(self.capacities[number])
            if 0 <= capacity <= taken.sum():
                within, taken = up_to(capacity, reach.costs, within, taken)
            left[there] -= taken
            new = within & (owner[there] == 0)
            owner[there][new] = number + 1
            served[number], cells[number] = int(taken.sum()), int(np.count_nonzero(new))
            if served[number]:
                farthest[number] = reach.costs[taken > 0].max()
        labels = np.append(-1, self.labels)
        rest = people_of(self.capacities - np.array(served, np.int64))
        columns = {
            "cells": np.array(cells, np.int64),
            "served": people_of(served),
            "farthest": farthest,
            "left_over": np.where(self.capacities < 0, np.inf, rest),
        }
        rasters: Rasters = {"catchment": (owner, labels.__getitem__), "residual": (left, people_of)}
        return Result(rasters, self.table(columns), totals(population, sum(served)))


def up_to(capacity: int, costs: Array, within: Array, people: Integers) -> tuple[Array, Integers]:
    """Return which cells are served, the nearest first, and how many people of each.

    The cell at which the capacity is reached is the last; of equal costs the first comes first.
    """
    served, taken = np.zeros_like(within), np.zeros_like(people)
    if not capacity:
        return served, taken
    cells = np.flatnonzero(within)
    known, there = costs.reshape(-1)[cells], people.reshape(-1)[cells]
    # by classes of cost: only of the one in which the capacity is reached cells need be sorted
    which = classes_of(known)
    sums = np.bincount(which, there)  # of whole numbers below 2**53, so exact
    last = int(np.searchsorted(np.cumsum(sums), capacity))
    before = int(sums[:last].sum())
    order = np.flatnonzero(which == last)
    order = order[np.argsort(known[order], kind="stable")]
    running = before + np.cumsum(there[order])
    end = int(np.searchsorted(running, capacity))
    chosen = cells[np.concatenate([np.flatnonzero(which < last), order[: end + 1]])]
    served.reshape(-1)[chosen] = True
    taken.reshape(-1)[chosen] = people.reshape(-1)[chosen]
    taken.reshape(-1)[cells[order[end]]] -= running[end] - capacity
    return served, taken


def classes_of(costs: Array) -> npt.NDArray[np.uint16]:
    """Return numbers that never fall where costs rise."""
    most = float(costs.max(initial=0))
    return (costs * ((2**16 - 1) / most if most else 0.0)).astype(np.uint16)


@dataclass(frozen=True)
class Reaches(AccessProblem):
    """All that is within reach of each facility, whatever others serve."""

    listed: bool
    """Whether the cells within reach are listed."""

    name = "reaches"
    kept_bytes = 8
    columns: ClassVar[tuple[str, ...]] = ("cells", "people", "farthest")
    coordinates: ClassVar[tuple[str, ...]] = ("facility_y", "facility_x")

    @property
    def keeps(self) -> bool:
        """Whether tasks save the cells, of which lists are written at the end."""
        return self.listed

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk of a run, with the lists in its result."""
        needs = super().bytes(cells)
        return replace(needs, columns=needs.columns + needs.checkpoints * len(LISTED))

    def solve(self, searches: Searches, found: Iterator[tuple[int, Reach]]) -> Result:
        """Return the table of what is within reach of each facility."""
        population = searches.count_people()
        reaches = [reach for _, reach in found]
        cells = np.array([reach.count for reach in reaches], np.int64)
        columns = {
            "cells": cells,
            "people": people_of([reach.people for reach in reaches]),
            "farthest": np.array([reach.farthest for reach in reaches]),
        }
        attributes = totals(population)
        if not self.listed:
            return Result({}, self.table(columns), attributes)
        columns["first"] = np.cumsum(cells) - cells
        known = {name: values for name, (_, (values,)) in self.table(columns).items()}
        dimensions = {**dict.fromkeys(known, ("facility",)), **dict.fromkeys(LISTED, ("cell",))}
        return Result({}, ColumnsInTurns(dimensions, self._pieces(searches, known)), attributes)

    def _pieces(
        self, searches: Searches, columns: dict[str, Array]
    ) -> Iterator[tuple[str, Array, bool]]:
        """Yield the columns of the facilities, and the cells of one facility after the other."""
        for name, values in columns.items():
            yield name, values, True
        width = searches.shape[1]
        for number in range(len(self)):
            window, costs = searches.kept(number)
            row, column = np.nonzero(costs < self.distance.link_blank[0])
            costs = costs[row, column]
            # sorted by classes first, which is quick and leaves little to do
            order = np.argsort(classes_of(costs), kind="stable")
            order = order[np.argsort(costs[order], kind="stable")]
            row, column = row[order] + window.y, column[order] + window.x
            cells = self.orientation.turn_cells(row * width + column, searches.shape)
            places = zip(LISTED, (*np.divmod(cells, width), costs[order]), strict=True)
            for name, values in places:
                yield name, values, number == len(self) - 1


def totals(population: int, served: int | None = None) -> dict[str, float]:
    """Return attributes of all people, and of those who are served, given in units of 2**-20."""
    found = {"population": population}
    if served is not None:
        found |= {"served": served, "left": population - served}
    return {name: float(people_of(number)) for name, number in found.items()}


class CatchmentOptions(AccessOptions, total=False):
    """Keywords of `catchments`."""

    max_cost: float


@operation(counts=("reach",))
def catchments(
    friction: RasterLike,
    facilities: PointsLike,
    *,
    population: RasterLike,
    capacity: float | str | Sequence[float] | None = None,
    rank: str | Sequence[float] | None = None,
    each: bool = False,
    cost: str = "friction",
    travel: str = "to",
    **options: Unpack[CatchmentOptions],
) -> Job[xr.Dataset]:
    """Return the people that facilities serve, the nearest first, up to the capacity of each.

    Facilities, such as clinics, serve in the order of their ranks. Each takes the cells within its
    reach in the order of their costs, and adds the people who are left there until its capacity is
    reached. The cell at which that is gives the rest; what remains there is left to the next.

    Parameters
    ----------
    friction : raster
        What the cost model takes first: friction, as of `cost_distance`, or elevation, as of
        `walking_time`.
    facilities : points or vector layer
        Points (x, y) in map coordinates, shape (n, 2), or a vector layer, which is transformed to
        the CRS of the raster. Of a line or an area all cells that it covers are where people
        arrive.
    population : raster
        People in each cell, of the same grid; nodata cells have none. Fractions are rounded to
        multiples of 2**-20, about a millionth. There may be 2**33 people altogether.
    capacity : float, str or sequence of float, optional
        People that a facility can serve: one number, one for each, or the name of a column of the
        layer. By default all within reach.
    rank : str or sequence of float, optional
        Order in which facilities serve, the least rank first, of equal ranks the first facility:
        the name of a column of the layer, or a number for each. By default the order in which they
        are given.
    each : bool
        Return all that is within reach of each facility, whatever others serve.
    cost : {"friction", "absolute_difference", "tobler", "walk"}
        A model of `cost_distance` or `walking_time`.
    travel : {"to", "from"}
        Whether costs are those of paths to the facilities or from them.
    connectivity : {8, 4}
        Number of neighbours.
    **options

    Returns
    -------
    xarray.Dataset
        ``catchment`` (y, x), int64: the facility that serves each cell first, by its number or, if
        ``label`` names a column of integers, by its label; -1 (``_FillValue``) without one.
        ``residual`` (y, x): the people who are not served, NaN where the population is nodata.
        Along ``facility``, in the order in which they are given: ``facility``, its number or label;
        ``facility_x`` and ``facility_y``; ``cells``, those that it serves first; ``served``, its
        people; ``farthest``, the cost to the farthest of them (NaN without any); and
        ``left_over``, what is left of its capacity. Attributes: ``population``, ``served`` and
        ``left``, the numbers of all people.

        With ``each=True`` a table along ``facility``: ``facility``, ``facility_x``, ``facility_y``,
        ``cells``, ``people`` and ``farthest``. A store or NetCDF file that ``out`` names also lists
        all cells within reach, the nearest first, along ``cell``: ``row``, ``column`` and ``cost``,
        those of a facility from ``first`` on.

    Raises
    ------
    InputError
        If an argument is invalid, a facility lies outside the grid or on nodata, or the population
        is negative or too large.
    StoreExistsError, BackendError

    Notes
    -----
    Cells of equal cost come row by row from the north-west, in whichever order the raster stores
    them. Numbers of people are integers, in units of 2**-20, so the people served and those left
    over are all people, exactly. The result has the same bits for every tile size and number of
    workers.

    There is one search for each facility, on a window of the grid that grows with its reach. Time
    and memory follow from the reach; without ``max_cost`` it is the whole grid, for each facility.
    ``catchments.plan(..., reach=)`` is told the cells within reach of a facility; by default the
    reaches add up to five times the grid.

    References
    ----------
    N. Ray, S. Ebener, "AccessMod 3.0: computing geographic coverage and accessibility to health
    care services using anisotropic movement of patients", International Journal of Health
    Geographics 7:63, 2008, doi:10.1186/1476-072X-7-63.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> people = np.array([[5.0, 3.0, 0.0, 4.0, 2.0]])
    >>> clinics = [(0, 0), (3, 0)]
    >>> found = og.catchments(
    ...     np.ones((1, 5)), clinics, population=people, capacity=[6, 5], max_cost=2
    ... )
    >>> found["catchment"].values, found["residual"].values
    (array([[0, 0, 1, 1, 1]]), array([[0., 2., 0., 0., 1.]]))
    >>> found["served"].values, found["left_over"].values
    (array([6., 5.]), array([0., 0.]))
    """
    each = check_flag("each", each)
    most = options.get("max_cost", math.inf)
    asked = parse_access(
        friction, facilities, "facilities", population, cost, travel, most, "max_cost", options
    )
    problem: AccessProblem
    costs = ["farthest"]
    if each:
        refuse_arguments("each=True", capacity=capacity is not None, rank=rank is not None)
        out = asked.spec.storage
        lists = asked.spec.out is not None and Path(str(out)).suffix.lower() not in LAYERS
        problem = Reaches(**asked.problem, listed=lists)
        costs += ["cost"] if lists else []
    else:
        count = len(asked.numbers)
        ranks = np.zeros(count)
        if rank is not None:
            ranks = asked.values("rank", rank, -math.inf, math.inf)
        limits = np.full(count, math.inf)
        if capacity is not None:
            limits = asked.values("capacity", capacity, 0, MOST, unlimited=True)
        units = np.where(np.isinf(limits), -1, in_units(limits)).astype(np.int64)
        problem = Catchments(**asked.problem, ranks=ranks, capacities=units)
    return raster_job(
        problem, asked.rasters, asked.spec, notes=asked.notes, units=asked.units_of(*costs)
    )
