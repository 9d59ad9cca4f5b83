"""The operation `floating_catchments`: how much supply there is for each person."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from orograph.access.arguments import AccessOptions, parse_access
from orograph.access.catchments import totals
from orograph.access.reach import AccessProblem, Reach, Result, Searches, people_of
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.tiles.arrays import Array, Reals
from orograph.tiles.raster.points import PointsLike
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

MOST_SUPPLY = 1e100


@dataclass(frozen=True)
class FloatingCatchments(AccessProblem):
    """Supply of facilities by demand, summed over those within reach of each cell."""

    supply: Reals
    """Supply of each facility."""

    name = "floating-catchments"
    held_bytes = 8
    columns: ClassVar[tuple[str, ...]] = ("supply", "people", "ratio")

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of supply by person."""
        attrs = {"long_name": "supply by person"}
        return (Variable("access", np.dtype(np.float64), math.nan, attrs),)

    def solve(self, searches: Searches, found: Iterator[tuple[int, Reach]]) -> Result:
        """Add the supply by person of each facility to the cells within its reach."""
        population, access = searches.count_people(), searches.room(np.float64)
        people, ratios = [0] * len(self), np.full(len(self), np.nan)
        # in the order of the facilities, so that sums are always rounded alike
        for number, reach in found:
            people[number] = reach.people
            if reach.people:
                ratios[number] = self.supply[number] / people_of(reach.people)
                within = reach.costs < self.distance.link_blank[0]
                access[reach.window.slices][within] += ratios[number]
        columns = {"supply": self.supply, "people": people_of(people), "ratio": ratios}
        return Result({"access": (access, _copied)}, self.table(columns), totals(population))


def _copied(values: Array) -> Array:
    return np.array(values)


@operation(counts=("reach",))
def floating_catchments(
    friction: RasterLike,
    facilities: PointsLike,
    *,
    population: RasterLike,
    within: float,
    supply: float | str | Sequence[float] = 1.0,
    cost: str = "friction",
    travel: str = "to",
    **options: Unpack[AccessOptions],
) -> Job[xr.Dataset]:
    """Return how much supply there is for each person by two-step floating catchment areas.

    First the supply of each facility, such as its beds, is divided by the people within its reach.
    Then these ratios are summed over all facilities within reach of each cell.

    Parameters
    ----------
    friction : raster
        As for `catchments`.
    facilities : points or vector layer
        As for `catchments`.
    population : raster
        As for `catchments`.
    within : float
        Greatest cost of a path between people and a facility.
    supply : float, str or sequence of float
        Supply of a facility: one number, one for each, or the name of a column of the layer.
    cost : {"friction", "absolute_difference", "tobler", "walk"}
        As for `catchments`.
    travel : {"to", "from"}
        Whether costs are those of paths to the facilities or from them.
    connectivity : {8, 4}
        Number of neighbours.
    **options

    Returns
    -------
    xarray.Dataset
        ``access`` (y, x): supply by person, 0 beyond the reach of all facilities, NaN where the
        population is nodata. Columns along ``facility``: ``facility``, its number or label,
        ``facility_x`` and ``facility_y``, its ``supply``, the ``people`` within its reach, and
        their ``ratio``, NaN without people. Attribute: ``population``.

    Raises
    ------
    InputError
        As for `catchments`.
    StoreExistsError, BackendError

    Notes
    -----
    People are summed exactly, and ratios in the order of the facilities, so the result has the same
    bits for every tile size and number of workers. People, weighted by their access, make up the
    supply of all facilities that reach anyone, but for rounding.

    References
    ----------
    W. Luo, F. Wang, "Measures of spatial accessibility to health care in a GIS environment",
    Environment and Planning B 30, 2003, doi:10.1068/b29120.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> people, clinics = np.array([[5.0, 3.0, 0.0, 4.0, 2.0]]), [(0, 0), (3, 0)]
    >>> found = og.floating_catchments(
    ...     np.ones((1, 5)), clinics, population=people, within=2, supply=[4, 9]
    ... )
    >>> found["ratio"].values, found["access"].values
    (array([0.5, 1. ]), array([[0.5, 1.5, 1.5, 1. , 1. ]]))
    """
    asked = parse_access(
        friction, facilities, "facilities", population, cost, travel, within, "within", options
    )
    given = asked.values("supply", supply, 0, MOST_SUPPLY)
    problem = FloatingCatchments(**asked.problem, supply=given)
    return raster_job(problem, asked.rasters, asked.spec, notes=asked.notes)
