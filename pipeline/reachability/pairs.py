"""Search for paths between many pairs of cells, skipping pairs in different components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import Sources
from orograph.components.components import (
    Components,
    MergeState,
    Message,
    Summary,
    numbers,
)
from orograph.distance.hops import Hops
from orograph.distance.poles import over_poles
from orograph.engines.frontier.links import Links
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_problems import Table
from orograph.engines.tile_states import forget
from orograph.kernels.label.labels import CellLabels
from orograph.kernels.shortest_path_tree.backtrack import descend
from orograph.reachability.search import Here, Search, SearchResult
from orograph.reachability.tile import BidirectionalTasks, EndPair
from orograph.run import shared_data
from orograph.run.cluster.executors import executor
from orograph.run.context import RunContext
from orograph.tiles.arrays import Array
from orograph.tiles.grid.orientation import NORTH_UP
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.wrap import NO_POLES
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    from distributed import Client

    from orograph.run.shared_data import Handle

Cells = npt.NDArray[np.int64]

PAIRS_A_TASK = 16


@dataclass(frozen=True)
class EndSets:
    """Two sets of cells for each pair; a path joins any cell of one to any cell of the other."""

    cells: Cells
    """Rows and columns of the cells, one set after the other, shape (m, 2)."""
    first: Cells
    """Index of the first cell of each set; last, the number of cells."""
    pairs: Cells
    """Numbers of the two sets of each pair, that of s and that of t, shape (n, 2)."""

    @classmethod
    def single(cls, cells: Cells) -> EndSets:
        """Return pairs of single cells, given (row, column, row, column) of each, shape (n, 4)."""
        count = len(cells)
        pairs = np.arange(2 * count).reshape(count, 2)
        return cls(cells.reshape(-1, 2), np.arange(2 * count + 1), pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def places(self, pair: int, side: int) -> slice:
        """Return the slice of ``cells`` that is one end of a pair."""
        at = int(self.pairs[pair, side])
        return slice(int(self.first[at]), int(self.first[at + 1]))

    def joined_by(self, labels: Cells) -> npt.NDArray[np.bool_]:
        """Return for each pair whether its ends share a label, given a label for each cell."""
        # The first cells of both ends decide for single cells; sets of several are compared below.
        one, other = labels[self.first[self.pairs]].T
        joined: npt.NDArray[np.bool_] = one == other
        for pair in np.flatnonzero((np.diff(self.first)[self.pairs] > 1).any(axis=1)).tolist():
            first, second = (labels[self.places(pair, side)] for side in (0, 1))
            joined[pair] = np.isin(first, second).any()
        return joined


@dataclass(frozen=True)
class Query:
    """Data that a task needs to search for paths between pairs."""

    mask: MaskRaster
    ends: EndSets
    connectivity: int
    hops: bool
    path: bool
    context: RunContext
    backend: str = field(default="numba", kw_only=True)
    """Backend that relaxes the tiles: ``"numba"`` or ``"cuda"``."""
    links: Links | None = field(default=None, kw_only=True)
    """Steps over the poles; None without them."""

    def tasks(self, pair: int) -> BidirectionalTasks:
        """Return the data that tasks of the search for one pair share, with its own checkpoints."""
        first, second = (
            self._hops_from(self.ends.cells[self.ends.places(pair, side)]) for side in (0, 1)
        )
        context = self.context.part(f"pair-{pair}")
        problem = EndPair(
            (first, second), self.mask.georeference.orientation, context.quadtree.poles
        )
        return BidirectionalTasks(problem, (self.mask_of(pair),), context)

    def mask_of(self, pair: int) -> MaskRaster:
        """Return the mask of the cells that paths of a pair may use."""
        return self.mask

    def _hops_from(self, cells: Cells) -> Hops:
        count = len(cells)
        end = Sources(cells[:, 0], cells[:, 1], np.zeros(count), np.ones(count, np.int64))
        hops = hops_on(self.mask, self.connectivity)
        return replace(hops, sources=end, backend=self.backend, links=self.links)

    def search(self, pairs: Sequence[int], share: int) -> list[SearchResult]:
        """Search for some pairs, one after the other, and return their results."""
        return [self._search_one(pair, share) for pair in pairs]

    def _search_one(self, pair: int, share: int) -> SearchResult:
        run = self.tasks(pair)
        # The memory for states is divided among the searches that run in this process.
        run.states.cache.divide(share)  # searches beside this one
        try:
            return Search(run, Here(), run, Event()).find(self.hops, self.path)
        finally:
            forget(run.context.token)
            run.context.checkpoints.clear()


def hops_on(mask: MaskRaster, connectivity: int, poles: tuple[bool, bool] = NO_POLES) -> Hops:
    """Return the problem of hops on a mask, over ``poles`` too; it has no sources."""
    hops = Hops.on_mask(mask.shape, {"friction": mask.nodata}, connectivity)
    return over_poles(hops, (mask,), poles)


def search_pairs(handle: Handle, pairs: Sequence[int], share: int) -> Any:
    """Search for some pairs within one task and return their results."""
    return shared_data.load(handle).search(pairs, share)


def search_all(
    query: Query,
    pairs: Cells,
    client: Client | None,
    cancelled: Event,
    found: dict[int, SearchResult],
) -> None:
    """Search for all pairs and store the results: one pair jointly, many one pair a worker."""
    if not pairs.size:
        return
    _warm_up(query)
    with executor(client, "is-connected", query.context.token) as workers:
        if pairs.size == 1:
            (pair,) = pairs.tolist()
            run = query.tasks(pair)
            try:
                with shared_data.shared(run, client) as handle:
                    search = Search(run, workers, handle, cancelled)
                    found[pair] = search.find(query.hops, query.path)
            finally:
                workers.everywhere(forget, run.context.token)
            return
        count = sum(1 for _ in workers.idle())
        # Searches in threads of this process divide its memory for tile states; workers have their
        # own.
        share = 1 if client else count
        # At least four tasks for each worker, so that all end at about the same time.
        many = min(PAIRS_A_TASK, -(-pairs.size // (4 * max(count, 1))))
        away: dict[Any, list[int]] = {}
        todo = pairs.tolist()
        with shared_data.shared(query, client) as handle:
            while todo or away:
                for worker in workers.idle():
                    mine, todo = todo[:many], todo[many:]
                    if mine:
                        ticket = workers.submit(worker, "search", search_pairs, handle, mine, share)
                        away[ticket] = mine
                for ticket, messages in workers.next_done(cancelled):
                    found.update(zip(away.pop(ticket), messages, strict=True))


@dataclass(frozen=True)
class PointLabels(Components):
    """Connected components of single cells, by a sweep that writes no raster."""

    point_rows: Cells = field(default_factory=lambda: np.empty(0, np.int64))
    point_columns: Cells = field(default_factory=lambda: np.empty(0, np.int64))

    name = "is-connected-components"
    output_names: tuple[str, ...] = ()
    outputs: ClassVar[tuple[Variable, ...]] = ()
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {"label": ("point",)}

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Any]:
        """Label the components of a tile, and keep only the labels of the points in it."""
        summary, saved = super().leaf(place, *cells)
        here, window = self._here(place), place.window
        y, x = self.point_rows[here] - window.y, self.point_columns[here] - window.x
        # In place of the labels of the tile: one row with those of the points.
        points = CellLabels(saved.labels.at(y * window.width + x)[None])
        return summary, replace(saved, labels=points)

    def rows_of_tile(self, place: Place, saved: Any, message: Message) -> Table:
        """Return the numbers and component labels of the points in a tile."""
        return {
            "point": self._here(place),
            "label": numbers(saved, message)[saved.labels.labels[0]],
        }

    def rows_of_node(self, place: Place, saved: MergeState, message: Message) -> Table:
        """Return no rows: all points are in tiles."""
        return {"point": np.empty(0, np.int64), "label": np.empty(0, np.int64)}

    def _here(self, place: Place) -> Cells:
        window = place.window
        inside = (self.point_rows >= window.y) & (self.point_rows < window.y + window.height)
        inside &= (self.point_columns >= window.x) & (self.point_columns < window.x + window.width)
        return np.flatnonzero(inside)


def connected_pairs(query: Query, client: Client | None, cancelled: Event) -> npt.NDArray[np.bool_]:
    """Return for each pair whether its ends lie in a common component."""
    rows, columns = query.ends.cells.T
    problem = PointLabels(None, query.connectivity, 1, point_rows=rows, point_columns=columns)
    problem.compile_kernels([query.mask.dtype], several=True)
    run = QuadtreePass(problem, (query.mask,), query.context.part("components"))
    with shared_data.shared(run, client) as handle:
        run.run(client, handle, cancelled)
    labels = np.empty(rows.size, np.int64)
    for table in run.rows_of(run.shards):
        labels[table["point"]] = table["label"]
    return query.ends.joined_by(labels)


def _warm_up(query: Query) -> None:
    """Compile the kernels of a search, so that workers load them from the cache."""
    hops = query._hops_from(np.zeros((1, 2), np.int64))
    hops.compile_kernels([query.mask.dtype], several=True)
    # A tile of one cell with its halo, for walks back along the hops.
    descend(np.zeros((3, 3), np.int64), 1, query.connectivity, 0, 0, NORTH_UP)
