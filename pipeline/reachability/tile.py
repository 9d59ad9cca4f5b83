"""The worker's side of a bidirectional search: two fields of hops in each tile.

A tile holds two fields of hops, one from each end, each of them that of
`orograph.distance.hop_distance`. A visit relaxes them up to the levels it is given, and returns the
least sum of the two, the length of a real way, with the first cell midway on it. A visit may also
walk back from a cell to one of the ends, as far as the tile goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orograph.distance.hops import PER_HOP, Hops
from orograph.distance.links import TileLinks, visit_with_links
from orograph.engines.frontier.links import LinkBorder
from orograph.engines.frontier.protocol import Border, Visit
from orograph.engines.tile_states import Tile, TileDefaults, TileStates
from orograph.kernels.backends import get_backend
from orograph.kernels.relax.border import inner_of
from orograph.kernels.relax.resident import ResidentTile
from orograph.kernels.shortest_path_tree.backtrack import descend
from orograph.run.context import RunContext
from orograph.run.shared_data import Handle, load
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.wrap import NO_POLES


@dataclass(frozen=True)
class Trace:
    """Request to follow a path from a cell back to one end."""

    end: int
    row: int
    column: int


@dataclass(frozen=True)
class VisitRequest:
    """Request to visit a tile, with the borders of its neighbours and its own, for each end."""

    tile: Tile
    halo: tuple[Border, Border]
    sent: tuple[Border, Border]
    levels: tuple[float, float]
    """Numbers of hops up to which the fields of the two ends are computed."""
    links: tuple[LinkBorder | None, LinkBorder | None] = (None, None)
    """Last values sent along the tile's steps over a pole, for each end."""
    trace: Trace | None = None


@dataclass(frozen=True)
class BidirectionalVisit:
    """Result of a visit: what changed in each field, and the shortest path seen in the tile."""

    visits: tuple[Visit, Visit]
    least: float
    """Hops of the shortest known path through the tile; infinite if there is none."""
    midway: int
    """Index in the turned grid of the tile's first cell midway on a shortest path, or -1."""
    cells: Array | None = None
    """Rows and columns of the cells on a path that was traced."""
    ahead: tuple[int, int] | None = None
    """Row and column of the cell in another tile where the trace goes on; None if it has ended."""


@dataclass(slots=True)
class PairState:
    """A tile with hops from each of two ends, and its place in the grid."""

    place: Place
    fields: tuple[ResidentTile, ResidentTile]
    links: tuple[TileLinks | None, TileLinks | None]
    """Steps over a pole, each with what it keeps of the field."""


@dataclass(frozen=True)
class EndPair(TileDefaults):
    """Hops from two ends as one problem: opening, visiting and saving its tiles."""

    hops: tuple[Hops, Hops]
    orientation: Orientation = NORTH_UP
    """Orientation of the grid, by which ties are broken."""
    poles: tuple[bool, bool] = NO_POLES
    """Whether cells of the first and of the last row are neighbours over a pole."""

    @property
    def backend(self) -> str:
        """Backend that relaxes the tiles."""
        return self.hops[0].backend

    @property
    def cells_a_visit(self) -> int:
        """Fixed cost of a visit, as the number of cells relaxed in the same time."""
        return self.hops[0].cells_a_visit

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> PairState:
        """Return the initial state of a tile: only the ends in it are reached."""
        surface = self.hops[0].surface(place, cells, frame)
        # The two fields share the mask; only what a search changes is kept for each.
        dist, keys, fresh = (a.copy() for a in (surface.dist, surface.keys, surface.fresh))
        surfaces = surface, replace(surface, dist=dist, keys=keys, fresh=fresh)
        first, second = (
            problem.open_on(own, place, cells, frame)
            for problem, own in zip(self.hops, surfaces, strict=True)
        )
        return PairState(place, (first.tile, second.tile), (first.links, second.links))

    def visit(self, state: PairState, request: VisitRequest) -> BidirectionalVisit:
        """Relax hops from both ends up to given levels; return what changed and the least sum."""
        first, second = (self._relax(state, request, end) for end in (0, 1))
        if request.trace is not None:
            cells, ahead = self._walk(state, request.trace)
            return BidirectionalVisit((first, second), math.inf, -1, cells, ahead)
        least, midway = math.inf, -1
        if first.reached and second.reached:
            least, midway = self._meet(state)
        return BidirectionalVisit((first, second), least, midway)

    def _relax(self, state: PairState, request: VisitRequest, end: int) -> Visit:
        """Relax the hops from one end; return what changed."""
        tile, links, border = state.fields[end], state.links[end], request.links[end]
        to = request.halo[end], request.sent[end], PER_HOP * request.levels[end]
        if links is None or border is None:
            return Visit(*tile.exchange(*to))
        changed, news = visit_with_links(tile, links, border, *to)
        return Visit(*changed, links=news)

    def _meet(self, state: PairState) -> tuple[float, int]:
        """Return the length of the shortest path through the tile, and its middle cell."""
        first, second = (inner_of(field.state.dist, self.halo_width) for field in state.fields)
        unreached = state.fields[0].state.unreached  # their sum stays below 2**63
        total = first + second
        least = int(total.min())
        if least >= unreached:
            return math.inf, -1
        hops = least // PER_HOP
        # Cells on a shortest path whose distance from the first end is half its length, rounded
        # down.
        on_way = (total == least) & (first == PER_HOP * (hops // 2))
        midway = np.flatnonzero(self.orientation.turn(on_way))
        # The middle of the path lies in another tile, which reports it.
        if not midway.size:
            return hops, -1
        place = state.place
        window = self.orientation.turn_window(place.window, place.grid)
        row, column = divmod(int(midway[0]), window.width)
        return hops, (window.y + row) * place.grid[1] + window.x + column

    def _walk(self, state: PairState, trace: Trace) -> tuple[Array, tuple[int, int] | None]:
        window = state.place.window
        dist = get_backend(self.backend).to_host(state.fields[trace.end].state.dist)
        corner = np.array([window.y, window.x])
        row, column = trace.row - window.y, trace.column - window.x
        connectivity = self.hops[0].connectivity
        cells, last = descend(dist, PER_HOP, connectivity, row, column, self.orientation)
        y, x = cells[-1].tolist()
        # The next cell lies beyond the tile: its owner goes on from there.
        if last != (y, x):
            # Beyond the last column of a grid that wraps lies the first one.
            column = (last[1] + window.x) % state.place.grid[1]
            return cells + corner, (last[0] + window.y, column)
        # The walk has stopped though it is not at an end, which has distance 0. (``dist`` has a
        # halo of one cell.)
        if dist[y + 1, x + 1]:
            height, width = state.place.grid
            for row, joined in zip((0, height - 1), self.poles, strict=True):
                if joined and y + window.y == row:
                    return cells + corner, (row, (x + window.x + width // 2) % width)
            raise RunError(
                f"is-connected: no cell around row {y + window.y}, column {x + window.x} is a hop "
                "nearer; this is a fault of orograph, please report it"
            )
        return cells + corner, None

    def pack(self, state: PairState) -> Any:
        """Return the hops from both ends, to save."""
        return [field.pack() for field in state.fields]

    def unpack(self, state: PairState, packed: Sequence[tuple[Any, ...]]) -> None:
        """Restore the hops from both ends."""
        for field, kept in zip(state.fields, packed, strict=True):
            field.unpack(*kept)

    def size(self, state: PairState) -> int:
        """Return the bytes of memory that a tile's state occupies."""
        # The mask is there once but counted with each field.
        shared = int(state.fields[0].state.friction.nbytes)
        return sum(field.nbytes for field in state.fields) - shared


@dataclass(frozen=True)
class BidirectionalTasks:
    """Data that all tasks of a search between two ends need."""

    problem: EndPair
    rasters: tuple[Raster, ...]
    context: RunContext

    @property
    def states(self) -> TileStates:
        """Access to the tile states held in this process."""
        return TileStates(self.problem, self.rasters, self.context)


def visit_tiles(handle: Handle, requests: Sequence[VisitRequest]) -> list[BidirectionalVisit]:
    """Visit several tiles one after the other and return the results."""
    run: BidirectionalTasks = load(handle)
    states, found = run.states, []
    with get_backend(run.problem.backend).array_memory():
        for request in requests:
            run.context.stop_if_cancelled()
            state = states.take(request.tile)
            found.append(run.problem.visit(state, request))
            states.keep(request.tile, state)
    return found
