"""The run of a network of regions, and its links as lines.

One run of distances gives the zones and their crossings. Those that form the minimum spanning tree
are least-cost paths of their regions, since any other path between the two would cross at a greater
cost. Of other pairs a path through further zones may cost less. It is found by runs from regions
that lie so far apart that of these the nearest one to each target is its own. A run proves its
results: what it finds first at a target is a lower bound for all its sources. So those of other
pairs are dropped, and are searched again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.places import values_at
from orograph.distance.allocation import ALLOCATION, BACK_DIRECTION, AllocationProblem
from orograph.distance.distance_and_allocation import DistanceAndAllocation
from orograph.distance.networks.crossings import CrossingParts, ZoneCrossings
from orograph.distance.problem import Distance
from orograph.distance.trace import PathReader
from orograph.engines.stages import Stage, StagedProblem, Stages
from orograph.kernels.relax.models import BARRIER, MODELS
from orograph.kernels.shortest_path_tree.crossings import Crossings, least_of, spanning_tree
from orograph.results.paths import line_lengths
from orograph.run.checkpoints import StoredCheckpoints
from orograph.run.context import RunContext
from orograph.run.feedback import Progress
from orograph.run.problem import on_backend
from orograph.run.shared_data import shared
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import RunError
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.wrap import turn_of
from orograph.tiles.store.create import Variable
from orograph.tiles.vector.layer import VectorLayer
from orograph.tiles.vector.turns import lines_of, unwound

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

WIDER = 1 + 1e-4
"""Factor by which bounds of searches exceed costs that were added in another order, in float32."""


@dataclass(frozen=True)
class RegionNetwork(StagedProblem):
    """A network of regions in stages: distances and allocation, then crossings."""

    distances: DistanceAndAllocation
    shape: tuple[int, int]
    tree: bool
    """Whether to return the minimum spanning tree alone."""
    max_cost: float
    """Greatest cost of a link."""
    backend: str = "numba"
    regions: AllocationProblem | None = None
    """Problem that knows the cells of all regions, where the distances are those of some."""
    number: int = 0
    """Number of the run among those of a network."""

    name = "region-network"
    outputs: ClassVar[tuple[Variable, ...]] = ()

    @property
    def leading(self) -> DistanceAndAllocation:
        """The problem of the distances."""
        return self.distances

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the distances."""
        return self.distances.inputs

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of distances and allocation, and of crossings, which CPUs find."""
        distances = on_backend(self.distances, self.backend)
        (cost,) = self.distances.distance.outputs
        on_cpu = on_backend(self.distances, "numba").allocation
        reads = *self.inputs, cost.name, ALLOCATION.name, BACK_DIRECTION.name
        return (
            Stage(distances, self.inputs, f"distances-{self.number}", between=True),
            Stage(ZoneCrossings(on_cpu, self.shape, self.regions), reads, "result"),
        )

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> NetworkStages:
        """Return the engine of all runs."""
        return NetworkStages(self, dict(zip(self.inputs, rasters, strict=False)), context)

    @property
    def most(self) -> Any:
        """The greatest cost of a link, in the dtype of distances."""
        if self.distances.distance.dtype.kind == "i":
            return math.floor(min(self.max_cost, 2.0**62))
        return np.float64(self.max_cost)

    def kept(self, labels: Integers, cost: Array) -> Integers:
        """Return which links do not cost more than the greatest cost."""
        kept = np.flatnonzero((cost <= self.most) & (cost < math.inf))
        if cost.dtype.kind == "i" and (cost[kept] >= BARRIER).any():
            one, other = labels[kept[int(cost[kept].argmax())]].tolist()
            raise RunError(
                f"cost: the link of regions {one} and {other} costs more than {BARRIER - 1}, the "
                "most there is in int64; give smaller costs, or max_cost= to leave it out"
            )
        return kept

    @property
    def symmetric(self) -> bool:
        """Whether paths cost the same both ways."""
        return MODELS[self.distances.distance.model.name].symmetric

    def from_some(
        self, regions: Sequence[int], bound: float, number: int, *, backward: bool = False
    ) -> RegionNetwork:
        """Return the problem of the least costs from some regions to the others, or back."""
        allocation = on_backend(self.distances, "numba").allocation
        distance: Distance = self.distances.distance
        if backward and not self.symmetric:
            distance = distance.backward
        own: dict[str, Any] = {"targets": tuple(sorted(regions))}
        if distance.sources is not None:
            here = np.isin(distance.sources.labels, regions)
            values = (column[here] for column in vars(distance.sources).values())
            own = {"sources": type(distance.sources)(*values)}
        some = replace(self.distances, distance=replace(distance, max_cost=bound, **own))
        return replace(self, distances=some, regions=allocation, number=number)

    def on_ground(self, distance: Distance) -> RegionNetwork:
        """Return the problem with the rasters of another distance problem."""
        own = replace(self.distances.distance, nodata=distance.nodata)
        regions = self.regions and replace(self.regions, distance=distance)
        return replace(self, distances=replace(self.distances, distance=own), regions=regions)


class Links(NamedTuple):
    """Links and their paths."""

    labels: Integers
    """(n, 2): the smaller label first."""
    cost: Array
    """(n,), in the dtype of distances."""
    ends: Integers
    """(n, 2, 2): rows and columns of the cells where links leave a zone and enter the other one."""
    cells: Integers
    """(m, 2): cells of the paths, from the smaller label, path after path."""
    counts: Integers
    """(n,): number of cells of each path."""

    def layer(self, like: Raster, wraps: bool) -> VectorLayer:
        """Return the links as lines on the grid of a raster, cut at the seam if it wraps."""
        place, turn = like.georeference, turn_of(like) if wraps else None
        points = coordinates_of(self.cells[:, 0], self.cells[:, 1], place)
        columns = {
            "from": self.labels[:, 0],
            "to": self.labels[:, 1],
            "cost": self.cost,
            "length": line_lengths(unwound(points, turn), self.counts, place.map_crs),
            "from_row": self.ends[:, 0, 0],
            "from_col": self.ends[:, 0, 1],
            "to_row": self.ends[:, 1, 0],
            "to_col": self.ends[:, 1, 1],
        }
        units = {"length": "m"} if place.map_crs is not None else {}
        lines = lines_of(points, self.counts, turn)
        return VectorLayer(lines, columns, place.map_crs, units=units)


class NetworkStages(Stages):
    """Engine of a network: its stages, then runs from some of the regions each."""

    problem: RegionNetwork
    links: Links
    """The links, after the run."""
    searches: int = 0
    """Number of runs from some regions."""
    _search: Stages | None = None
    """Engine of the latest run from some regions."""

    @property
    def wraps(self) -> bool:
        """Whether the grid of the run wraps."""
        return self._context.quadtree.wraps

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Run all stages and all searches; return the attributes of the result."""
        attributes = super().run(client, handle, cancelled)
        parts: Any = self[1]
        crossings = least_of([Crossings(**table) for table in parts.tables()])
        if self.problem.tree:
            crossings = _rows(crossings, self.problem.kept(crossings.labels, crossings.cost))
            crossings = _rows(crossings, np.flatnonzero(spanning_tree(crossings)))
            self.links = self.traced(crossings, parts.directions)
        else:
            self.links = self._least_links(crossings, parts, client, cancelled)
        return attributes

    def _least_links(
        self, crossings: Crossings, parts: CrossingParts, client: Client | None, cancelled: Event
    ) -> Links:
        """Return the least-cost link of each pair of regions whose zones have a crossing."""
        network = self.problem
        found = self.traced(crossings, parts.directions)
        labels, cost, ends = found.labels, found.cost.copy(), found.ends.copy()
        paths = np.split(found.cells, np.cumsum(found.counts)[:-1])
        limits = np.minimum(cost, network.most)
        left = np.flatnonzero(~spanning_tree(crossings))
        self.searches, settled = 0, np.ones(1, np.bool_)
        if not network.symmetric:  # the zones are those of paths from the regions alone
            left = np.arange(len(cost))
            cost[:], limits[:] = math.inf, network.most
        while left.size:
            # A region alone settles all its pairs.
            chosen = regions_apart(labels, limits, left)[: None if settled.any() else 1]
            pairs = left[np.isin(labels[left, 0], chosen)]
            self.searches += 1
            bound = float(limits[pairs].max()) * WIDER
            some = network.from_some(chosen, bound, self.searches)
            with self.searched(some, client, cancelled) as run:
                reached = least_of([Crossings(**table) for table in run.tables()])
                settled, row = _settled(labels[pairs], limits[pairs], reached)
                pair, row = pairs[row >= 0], row[row >= 0]
                less = reached.cost[row] < cost[pair]
                lower, better = pair[less], _rows(reached, row[less])
                traced = self.traced(better, run.directions)
            cost[lower] = better.cost
            of_links = np.split(traced.cells, np.cumsum(traced.counts)[:-1])
            for link, cells in zip(lower.tolist(), of_links, strict=False):
                paths[link] = cells
                zones = values_at(parts.rasters[-1], cells)
                # the first and the last cell where other regions have taken those of its own
                leaves = np.append(0, np.flatnonzero(zones == labels[link, 0]))[-1]
                enters = np.append(np.flatnonzero(zones == labels[link, 1]), len(cells) - 1)[0]
                ends[link] = cells[[leaves, enters]]
            left = np.setdiff1d(left, pairs[settled])
        kept = network.kept(labels, cost)
        paths = [paths[link] for link in kept.tolist()]
        counts = np.array([len(path) for path in paths], np.int64)
        cells = np.concatenate([np.empty((0, 2), np.int64), *paths])
        return Links(labels[kept], cost[kept], ends[kept], cells, counts)

    @contextmanager
    def searched(
        self,
        problem: RegionNetwork,
        client: Client | None,
        cancelled: Event,
        inputs: Mapping[str, Raster] | None = None,
    ) -> Iterator[CrossingParts]:
        """Run a search, and yield the engine of its last stage; then remove what it wrote.

        ``inputs`` are the rasters that it reads in place of those of the network.
        """
        name = f"search-{problem.number}"
        context = self._context.part(name)
        self._search = search = Stages(problem, inputs or self.inputs, context)
        with shared(search, client) as handle:
            search.run(client, handle, cancelled)
        parts: Any = search[1]
        yield parts
        context.checkpoints.clear()
        if isinstance(context.checkpoints, StoredCheckpoints):
            context.checkpoints.storage.child(f"{problem.stages()[0].name}.zarr").delete_all()

    def traced(self, crossings: Crossings, directions: Raster) -> Links:
        """Return the links over crossings, from the smaller label to the greater one."""
        import xarray as xr

        place, shape = next(iter(self.inputs.values())).georeference, self.problem.shape
        # Cells were numbered from the north-west; turned again, they are those of the raster.
        numbers = place.orientation.turn_cells(crossings.cells, shape)
        ends = np.stack(np.divmod(numbers, shape[1]), axis=2)
        reader = PathReader(directions, xr.Dataset(), place.orientation, wraps=self.wraps)
        cells, counts = reader.trace_all(ends.reshape(-1, 2))
        first = (np.cumsum(counts) - counts).reshape(-1, 2)
        back, onward = counts.reshape(-1, 2).T
        # a cell that is both ends belongs to the other region, and may be all there is
        onward = np.where((ends[:, 0] == ends[:, 1]).all(axis=1), back == 1, onward)
        # from the last cell of the way back to the first one, then onward from the other end
        pieces = np.stack([back, onward], axis=1).reshape(-1)
        begin = np.stack([first[:, 0] + back - 1, first[:, 1]], axis=1).reshape(-1)
        step = np.tile([-1, 1], len(ends))
        within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        cells = cells[np.repeat(begin, pieces) + np.repeat(step, pieces) * within]
        return Links(crossings.labels, crossings.cost, ends, cells, back + onward)

    def progress(self) -> Progress:
        """Return the progress of the run at work."""
        return super().progress() if self._search is None else self._search.progress()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_search": None}


def regions_apart(labels: Integers, limits: Array, left: Integers) -> list[int]:
    """Return regions whose searches for the other ends of links are likely not to meet.

    In the order of the greatest limit of a region's links. No region that is chosen is a target of
    another one, or lies beside one.

    Parameters
    ----------
    labels : (n, 2)
        Pairs of regions whose zones touch.
    limits : (n,)
        Cost at which the search for a pair ends.
    left : (m,)
        The pairs that are searched, from their first regions.
    """
    beside: dict[int, set[int]] = {}
    for one, other in labels.tolist():
        beside.setdefault(one, set()).add(other)
        beside.setdefault(other, set()).add(one)
    farthest, near = dict[int, float](), dict[int, set[int]]()
    for (one, other), limit in zip(labels[left].tolist(), limits[left].tolist(), strict=True):
        farthest[one] = max(farthest.get(one, limit), limit)
        near.setdefault(one, {other}).update(beside[other], {other})
    chosen, blocked = dict[int, None](), set[int]()
    for region in sorted(farthest, key=lambda region: (-farthest[region], region)):
        if region not in blocked and near[region].isdisjoint(chosen):
            chosen[region] = None
            blocked |= near[region]
    return list(chosen)


def _settled(
    labels: Integers, limits: Array, reached: Crossings
) -> tuple[npt.NDArray[np.bool_], Integers]:
    """Return for which pairs a search tells the least cost, and its row in the table, or -1.

    ``reached`` is the least cost from each source of the search to each region. A region that
    another source reaches first costs at least as much from all others.
    """
    rows: dict[tuple[int, int], int] = {}
    first: dict[int, float] = {}
    costs = reached.cost.tolist()
    for row, (one, other) in enumerate(reached.labels.tolist()):
        rows[one, other] = row
        first[other] = min(first.get(other, math.inf), costs[row])
    of_pairs = np.array([rows.get((one, other), -1) for one, other in labels.tolist()], np.int64)
    least = np.array([first.get(other, math.inf) for other in labels[:, 1].tolist()])
    own = np.array([costs[n] if n >= 0 else math.inf for n in of_pairs.tolist()])
    of_pairs[own > least] = -1
    return (of_pairs >= 0) | (least >= limits), of_pairs


def _rows(crossings: Crossings, rows: Any) -> Crossings:
    """Return some of the crossings."""
    return Crossings(*(array[rows] for array in crossings))
