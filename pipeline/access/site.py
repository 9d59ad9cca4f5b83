"""The operation `site`: where further facilities reach most people."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from orograph.access.arguments import AccessOptions, parse_access
from orograph.access.catchments import totals
from orograph.access.reach import AccessProblem, Rasters, Reach, Result, Searches, people_of
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.tiles.arguments import check_integer
from orograph.tiles.arrays import Array
from orograph.tiles.raster.points import PointsLike
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


MOST_SITES = 2**31


@dataclass(frozen=True)
class Siting(AccessProblem):
    """Sites of the greatest coverage, chosen one after the other."""

    count: int
    """Number of sites."""

    name = "site"
    held_bytes = 12
    kept_bytes = 1
    columns: ClassVar[tuple[str, ...]] = ("served", "people", "farthest")

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of which site covers each cell, and of the people who are left."""
        covered = {"long_name": "site that covers first"}
        left = {"long_name": "people not covered"}
        return (
            Variable("catchment", np.dtype(np.int64), -1, covered),
            Variable("residual", np.dtype(np.float64), math.nan, left),
        )

    @property
    def keeps(self) -> bool:
        """Whether tasks keep the cells that each candidate covers: yes."""
        return True

    def kept_of(self, costs: Array) -> Array:
        """Return a mask of the cells of a window that are within reach."""
        return np.asarray(costs < self.distance.link_blank[0], np.uint8)

    def solve(self, searches: Searches, found: Iterator[tuple[int, Reach]]) -> Result:
        """Choose sites by the people whom they reach and no earlier one does."""
        left, owner = searches.people(), searches.room(np.int32)
        population = int(left.sum())
        reaches = [reach for _, reach in found]
        # gains only fall as people are served, so one that is still the greatest is chosen: of
        # equal ones the first candidate, whose place in the queue no other precedes
        queue = [(-reach.people, number) for number, reach in enumerate(reaches)]
        heapq.heapify(queue)
        chosen: list[int] = []
        gains: list[int] = []
        while queue and len(chosen) < self.count and queue[0][0] < 0:
            known, number = queue[0]
            window, mask = searches.kept(number)
            covered, there = mask.astype(bool), left[window.slices]
            gain = int(there[covered].sum())
            if gain < -known:
                heapq.heapreplace(queue, (-gain, number))
                continue
            heapq.heappop(queue)
            chosen.append(number)
            gains.append(gain)
            there[covered] = 0
            first = owner[window.slices]
            first[covered & (first == 0)] = number + 1
        labels = np.append(-1, self.labels)
        columns = {
            "served": people_of(gains),
            "people": people_of([reaches[number].people for number in chosen]),
            "farthest": np.array([reaches[number].farthest for number in chosen], np.float64),
        }
        rasters: Rasters = {"catchment": (owner, labels.__getitem__), "residual": (left, people_of)}
        table = self.table(columns, "site", np.array(chosen, np.int64))
        return Result(rasters, table, totals(population, sum(gains)))


@operation(counts=("reach",))
def site(
    friction: RasterLike,
    candidates: PointsLike,
    *,
    population: RasterLike,
    within: float,
    count: int = 1,
    cost: str = "friction",
    travel: str = "to",
    **options: Unpack[AccessOptions],
) -> Job[xr.Dataset]:
    """Return the sites that together reach most people, chosen one after the other.

    The first site is the candidate with most people within its reach; each further one that with
    most people whom no earlier site reaches.

    Parameters
    ----------
    friction : raster
        As for `catchments`.
    candidates : points or vector layer
        Where facilities may be built, given like those of `catchments`.
    population : raster
        As for `catchments`. To site facilities beside others, the ``residual`` of their catchments.
    within : float
        Greatest cost of a path between people and a site.
    count : int
        Number of sites; fewer are returned if no candidate reaches anyone who is left.
    cost : {"friction", "absolute_difference", "tobler", "walk"}
        As for `catchments`.
    travel : {"to", "from"}
        Whether costs are those of paths to the sites or from them.
    connectivity : {8, 4}
        Number of neighbours.
    **options

    Returns
    -------
    xarray.Dataset
        ``catchment`` (y, x), int64: the site that covers each cell first, by the number of the
        candidate or, if ``label`` names a column of integers, its label; -1 (``_FillValue``) beyond
        all. ``residual`` (y, x): the people beyond the reach of all sites, NaN where the population
        is nodata. Along ``site``, in the order in which they are chosen: ``site``, the number or
        label of the candidate; ``site_x`` and ``site_y``; ``served``, the people whom no earlier
        site reaches; ``people``, all within its reach; and ``farthest``, the cost to the farthest
        cell. Attributes: ``population``, ``served`` and ``left``, the numbers of all people.

    Raises
    ------
    InputError
        As for `catchments`.
    StoreExistsError, BackendError

    Notes
    -----
    Of candidates that add equally many people the first is chosen. This greedy choice covers at
    least 1 - 1/e, 63 %, of what the best choice of as many sites does. What a candidate adds never
    grows, so it is counted again only for the one that has most by the last count (lazy greedy).
    The cells that each candidate reaches are kept beside the result, or in memory, until the end:
    ``site.plan(..., reach=)`` tells their size, in ``bytes_checkpoints``. The result has the same
    bits for every tile size and number of workers.

    References
    ----------
    R. Church, C. ReVelle, "The maximal covering location problem", Papers of the Regional Science
    Association 32, 1974, doi:10.1007/BF01942293. M. Minoux, "Accelerated greedy algorithms for
    maximizing submodular set functions", 1978, doi:10.1007/BFb0006528.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> people = np.array([[5.0, 3.0, 0.0, 4.0, 2.0]])
    >>> candidates = [(0, 0), (1, 0), (3, 0)]
    >>> found = og.site(np.ones((1, 5)), candidates, population=people, within=1, count=2)
    >>> found["site"].values, found["served"].values
    (array([0, 2]), array([8., 6.]))
    """
    asked = parse_access(
        friction, candidates, "candidates", population, cost, travel, within, "within", options
    )
    problem = Siting(**asked.problem, count=check_integer("count", count, 1, MOST_SITES))
    return raster_job(
        problem, asked.rasters, asked.spec, notes=asked.notes, units=asked.units_of("farthest")
    )
