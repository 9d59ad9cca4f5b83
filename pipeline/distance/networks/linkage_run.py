"""The run of linkages: a network, then corridors of its links, then alternatives to its paths.

Corridors and alternatives take runs of distances from the two ends of each link. A run serves many
links at once, in so far as nothing that it reaches from one end lies beside what it reaches from
another one: then the costs are those of a run from that end alone. Links for which this does not
hold take part in a later run, at last alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.places import values_at
from orograph.distance.networks.alternatives import cells_near, path_cost, penalised
from orograph.distance.networks.corridors import CorridorMosaic
from orograph.distance.networks.crossings import CrossingParts
from orograph.distance.networks.network import WIDER, Links, NetworkStages, RegionNetwork
from orograph.distance.networks.outlines import Outlines, straight_distances
from orograph.engines.stages import Stage, StagedProblem, make_room, sink_between
from orograph.kernels.shortest_path_tree.crossings import Crossings, least_of
from orograph.results.paths import line_lengths
from orograph.run.context import RunContext, written_raster
from orograph.run.feedback import Progress
from orograph.run.run import Engine, ResultTable
from orograph.run.shared_data import shared
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.raster.points import coordinates_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.wrap import turn_of
from orograph.tiles.store.create import Variable
from orograph.tiles.store.sink import Sink, StoreSink
from orograph.tiles.vector.turns import unwound

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

LINKS, VERTICES = ("links",), ("vertices",)
DETOUR = 1.5
"""Factor by which paths along links may cost more than the least-cost path."""
FARTHER = 2.0
"""Factor by which searches for alternatives go farther until they find their region."""


class Alternatives(NamedTuple):
    """Keywords of alternatives."""

    further: int
    """Number of further paths that are searched for each link."""
    width: float
    """Distance around earlier paths, in units of the grid, within which cells cost more."""
    penalty: float
    """Factor by which they do."""
    share: float
    """Greatest share of cells that a path may have in common with an earlier one."""


class Path(NamedTuple):
    """One path of a link."""

    link: int
    """Number of the link among the pairs of regions."""
    number: int
    """1 for the least-cost path, then those of alternatives."""
    cost: Any
    cells: Integers


@dataclass(frozen=True)
class LinkageProblem(StagedProblem):
    """Links between regions, their corridors and alternatives, as a problem of several runs."""

    network: RegionNetwork
    threshold: float
    """Greatest extra cost in corridors."""
    alternatives: Alternatives
    backend: str = "numba"

    name = "linkages"
    columns = (
        "from", "to", "number", "cost", "length", "euclidean", "cost_to_euclidean",
        "cost_to_length", "vertex_link", "vertex_y", "vertex_x",
    )  # fmt: skip

    @property
    def leading(self) -> Any:
        """The problem of the distances."""
        return self.network.leading

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the rasters of the distances."""
        return self.network.inputs

    def mosaic(self, group: Integers, labels: Integers, cost: Array) -> CorridorMosaic:
        """Return the problem of adding the corridors of some links to the mosaic."""
        group = group[np.argsort(labels[group, 0])]
        dtype = self.network.distances.distance.dtype
        return CorridorMosaic(dtype, labels[group], group, cost[group], self.threshold)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The mosaic of corridors."""
        none = np.empty(0, np.int64)
        return self.mosaic(none, none.reshape(0, 2), none).outputs

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages of a run with one group of links, by which it is planned."""
        none = np.empty(0, np.int64)
        mosaic = self.mosaic(none, none.reshape(0, 2), none)
        *stages, crossings = replace(self.network, backend=self.backend).stages()
        ends = (*crossings.reads[-3:-1],) * 2
        before = tuple(f"before-{v.name}" for v in mosaic.outputs)
        return (
            *(*stages, crossings),
            Stage(mosaic, ends, "mosaic-0", between=True, prefix="before-"),
            Stage(mosaic, before, "result"),
        )

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> LinkageEngine:  # type: ignore[override]
        """Return the engine of all runs."""
        return LinkageEngine(self, rasters, context)


class LinkageEngine(Engine):
    """Engine of linkages: a network, then runs of groups of its links."""

    def __init__(
        self, problem: LinkageProblem, rasters: tuple[Raster, ...], context: RunContext
    ) -> None:
        self.problem, self._context = problem, context
        network = replace(problem.network, backend=problem.backend)
        self._inputs = dict(zip(problem.inputs, rasters, strict=False))
        self._network = NetworkStages(network, self._inputs, context.part("network"))
        self._runs = 0
        self._columns: ResultTable = {}

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Find the links, their corridors and their alternatives; write the mosaic."""
        network = self._network
        with shared(network, client) as own:
            network.run(client, own, cancelled)
        links = network.links
        of_links = np.split(links.cells, np.cumsum(links.counts)[:-1])
        found = enumerate(zip(links.cost, of_links, strict=False))
        paths = [Path(link, 1, cost, cells) for link, (cost, cells) in found]
        self._write_corridors(client, cancelled)
        for number in range(2, self.problem.alternatives.further + 2):
            paths += self._further(number, paths, client, cancelled)
        paths = self._without_alike(paths)
        self._columns = self._table(paths, client, cancelled)
        return {"link_count": len(paths)}

    # --- corridors ------------------------------------------------------------------------------

    def _write_corridors(self, client: Client | None, cancelled: Event) -> None:
        """Write the least normalised corridor of all links in each cell."""
        links, search = self._network.links, self._network.searched
        limits = links.cost + self.problem.threshold
        left, settled = np.arange(len(links.cost)), np.ones(1, np.bool_)
        before: Sink | None = None
        while left.size:
            # A link alone is settled.
            group = links_apart(links, limits, left)[: None if settled.any() else 1]
            bound = float(limits[group].max()) * WIDER
            one, other = (self._from_ends(links.labels[group], end, bound) for end in (0, 1))
            with search(one, client, cancelled) as there, search(other, client, cancelled) as back:
                costs = *there.rasters[-2:], *back.rasters[-2:]
                before = self._add_corridors(group, costs, before, client, cancelled)
                settled = self._apart(there, group, 0, limits) & self._apart(back, group, 1, limits)
            left = np.setdiff1d(left, group[settled])
        copy = self.problem.mosaic(left, links.labels, links.cost)
        self._merge(copy, (), before, self._context.part("result"), client, cancelled)
        _remove(before)

    def _from_ends(self, labels: Integers, end: int, bound: float) -> RegionNetwork:
        """Return the problem of distances from the first ends of links, or to the second ones."""
        self._runs += 1
        number = self._network.searches + self._runs
        return self._network.problem.from_some(
            labels[:, end].tolist(), bound, number, backward=end == 1
        )

    def _add_corridors(
        self,
        group: Integers,
        costs: Sequence[Raster],
        before: Sink | None,
        client: Client | None,
        cancelled: Event,
    ) -> Sink:
        """Write the mosaic so far, with the corridors of a group of links; return where."""
        problem = self.problem.mosaic(group, *self._network.links[:2])
        name = f"mosaic-{self._runs}"
        part = self._context.part(name)
        sink = sink_between(name, problem.outputs, part)
        if isinstance(sink, StoreSink):
            make_room(sink.storage, part, problem.outputs)
        part = replace(part, sink=sink)
        self._merge(problem, costs, before, part, client, cancelled)
        part.checkpoints.clear()
        _remove(before)
        return sink

    def _merge(
        self,
        problem: CorridorMosaic,
        costs: Sequence[Raster],
        before: Sink | None,
        context: RunContext,
        client: Client | None,
        cancelled: Event,
    ) -> None:
        """Run a problem on costs and the mosaic so far."""
        known = () if before is None else (written_raster(before, v) for v in problem.outputs)
        engine = problem.engine((*costs, *known), context)
        with shared(engine, client) as handle:
            engine.run(client, handle, cancelled)

    # --- alternatives ---------------------------------------------------------------------------

    def _further(
        self, number: int, paths: Sequence[Path], client: Client | None, cancelled: Event
    ) -> list[Path]:
        """Return the next path of each link, which avoids ground near those before it."""
        links, wanted = self._network.links, self.problem.alternatives
        distance, shape = self.problem.network.distances.distance, self.problem.network.shape
        near = [np.empty(0, np.int64)] * len(links.cost)
        for path in paths:
            cells = cells_near(
                path.cells, wanted.width, distance.lengths, shape, self._network.wraps
            )
            near[path.link] = np.union1d(near[path.link], cells)
        limits = links.cost * FARTHER
        left, found, settled = np.arange(len(links.cost)), list[Path](), np.ones(1, np.bool_)
        while left.size:
            group = links_apart(links, limits, left)[: None if settled.any() else 1]
            bound, labels = float(limits[group].max()) * WIDER, links.labels[group]
            cells = np.unique(np.concatenate([near[link] for link in group.tolist()]))
            rasters, changed = penalised(self._inputs, distance, cells, wanted.penalty)
            problem = self._from_ends(labels, 0, bound).on_ground(changed)
            with self._network.searched(problem, client, cancelled, rasters) as run:
                reached = least_of([Crossings(**table) for table in run.tables()])
                rows = {pair: row for row, pair in enumerate(map(tuple, reached.labels.tolist()))}
                settled = self._apart(run, group, 0, limits)
                for link, end in zip(group.tolist(), labels[:, 0].tolist(), strict=True):
                    beside = np.unique(values_at(run.rasters[-1], self._around(near[link])))
                    settled &= (labels[:, 0] == end) | ~np.isin(labels[:, 0], beside)
                row = np.array([rows.get(pair, -1) for pair in map(tuple, labels.tolist())])
                ended = settled & (row >= 0) & (np.append(reached.cost, 0)[row] <= limits[group])
                chosen = Crossings(*(array[row[ended]] for array in reached))
                traced = self._network.traced(chosen, run.directions)
            # Those that are settled without a path within their limit have a dearer one.
            limits[group[settled & ~ended]] *= FARTHER
            of_links = np.split(traced.cells, np.cumsum(traced.counts)[:-1])
            for link, cells in zip(group[ended].tolist(), of_links, strict=False):
                cost = path_cost(distance, self._inputs, cells, shape, self._network.wraps)
                found.append(Path(link, number, cost, cells))
            left = np.setdiff1d(left, group[ended])
        return found

    def _apart(
        self, run: CrossingParts, group: Integers, end: int, limits: Array
    ) -> npt.NDArray[np.bool_]:
        """Return which links of a run have the costs of a run from their end alone.

        Those within whose limit no cell is nearer to another end. Otherwise the zones of both would
        have a crossing of at most twice the limit.
        """
        sources = self._network.links.labels[group, end]
        crossings = least_of([Crossings(**table) for table in run.tables()])
        met = np.flatnonzero(np.isin(crossings.labels, sources).all(axis=1))
        least = dict.fromkeys(sources.tolist(), math.inf)
        one_way = not self.problem.network.symmetric
        for pair, cost in zip(crossings.labels[met].tolist(), crossings.cost[met].tolist()):
            for source in pair:
                least[source] = min(least[source], 0 if one_way else cost)
        return np.array(list(least.values())) >= 2 * WIDER * limits[group]

    def _around(self, cells: Integers) -> Integers:
        """Return the rows and columns of cells, and of those from which a step leads to them."""
        height, width = self.problem.network.shape
        reach = self.problem.network.distances.distance.halo_width
        move = np.arange(-reach, reach + 1)
        rows, columns = np.divmod(cells, width)
        rows, columns = np.broadcast_arrays(
            rows[:, None, None] + move[:, None], columns[:, None, None] + move
        )
        if self._network.wraps:
            columns = columns % width
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        found: Integers = np.unique(np.stack([rows[inside], columns[inside]], axis=1), axis=0)
        return found

    def _without_alike(self, paths: Iterable[Path]) -> list[Path]:
        """Return the paths without those that share too much with an earlier one of their link."""
        kept, width = list[Path](), self.problem.network.shape[1]
        earlier: list[npt.NDArray[Any]] = []
        for path in sorted(paths, key=lambda path: (path.link, path.number)):
            cells = np.unique(path.cells @ [width, 1])
            if path.number == 1:
                earlier = []
            most = self.problem.alternatives.share * cells.size
            if all(np.isin(cells, other).sum() <= most for other in earlier):
                kept.append(path)
            earlier.append(cells)
        # first the least-cost paths, by whose rows the mosaic refers to links
        return sorted(kept, key=lambda path: path.number > 1)

    # --- the table ------------------------------------------------------------------------------

    def _table(self, paths: Sequence[Path], client: Client | None, cancelled: Event) -> ResultTable:
        """Return the columns of the paths and of their vertices."""
        links, like = self._network.links, next(iter(self._inputs.values()))
        place, wraps = like.georeference, self._network.wraps
        turn = turn_of(like) if wraps else None
        regions = replace(self.problem.network, backend="numba").distances.allocation
        engine = Outlines(regions).engine(
            tuple(self._inputs.values()), self._context.part("outlines")
        )
        with shared(engine, client) as handle:
            engine.run(client, handle, cancelled)
        link = np.array([path.link for path in paths], np.int64)
        straight = straight_distances(engine.tables(), links.labels, place, turn)[link]
        counts = np.array([len(path.cells) for path in paths], np.int64)
        cells = np.concatenate([np.empty((0, 2), np.int64), *(path.cells for path in paths)])
        points = coordinates_of(cells[:, 0], cells[:, 1], place)
        length = line_lengths(unwound(points, turn), counts, place.map_crs)
        cost = np.array([path.cost for path in paths], links.cost.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = [cost / straight, cost / length]
        of_links = {
            "from": links.labels[link, 0], "to": links.labels[link, 1],
            "number": np.array([path.number for path in paths], np.int64), "cost": cost,
            "length": length, "euclidean": straight,
            "cost_to_euclidean": ratios[0], "cost_to_length": ratios[1],
        }  # fmt: skip
        vertex_link = np.repeat(np.arange(len(paths)), counts)
        of_vertices = {
            "vertex_link": vertex_link, "vertex_y": points[:, 1], "vertex_x": points[:, 0]
        }  # fmt: skip
        return {
            **{name: (LINKS, [column]) for name, column in of_links.items()},
            **{name: (VERTICES, [column]) for name, column in of_vertices.items()},
        }

    def table(self) -> ResultTable:
        """Return the table of paths."""
        return self._columns

    def progress(self) -> Progress:
        """Return the progress of the run at work."""
        return self._network.progress()

    def statistics(self) -> dict[str, int]:
        """Return the statistics of the network."""
        return self._network.statistics()


def links_apart(links: Links, limits: Array, left: Integers) -> Integers:
    """Return links whose searches, from their first and second ends, are likely not to meet.

    The first of ``left`` with the greatest limit is among them, and others whose limits are at
    least half of it. Distances are judged by the costs of links.
    """
    beside: dict[int, list[tuple[float, int]]] = {}
    for (one, other), cost in zip(links.labels.tolist(), links.cost.tolist(), strict=True):
        beside.setdefault(one, []).append((cost, other))
        beside.setdefault(other, []).append((cost, one))
    order = left[np.argsort(-limits[left].astype(np.float64), kind="stable")]
    bound, chosen = float(limits[order[0]]), list[int]()
    ends, near = set[int](), (set[int](), set[int]())
    for link in order[limits[order] >= bound / 2].tolist():
        pair = links.labels[link].tolist()
        if ends.isdisjoint(pair) and not any(e in n for e, n in zip(pair, near, strict=True)):
            chosen.append(link)
            ends.update(pair)
            for end, known in zip(pair, near, strict=True):
                known |= _within(beside, end, 2 * DETOUR * float(limits[link]))
    return np.array(chosen, np.int64)


def _within(beside: dict[int, list[tuple[float, int]]], start: int, bound: float) -> set[int]:
    """Return the regions within a cost of one, along links."""
    found, queue = set[int](), [(0.0, start)]
    while queue:
        cost, region = heappop(queue)
        if region not in found:
            found.add(region)
            for step, other in beside[region]:
                if cost + step <= bound:
                    heappush(queue, (cost + step, other))
    return found


def _remove(sink: Sink | None) -> None:
    """Delete the rasters of a mosaic that is not needed any more."""
    if isinstance(sink, StoreSink):
        sink.storage.delete_all()
