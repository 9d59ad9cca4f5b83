"""Allocation (nearest source) and back directions, computed from final distances.

Once all distances are final, labels are carried along the edges that attain them
(`orograph.kernels.shortest_path_tree.tile`), again from tile to tile by the frontier engine, in
the order of cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import is_source
from orograph.distance.links import BACK_LINK, NO_LINK, TileLinks, links_of_tile
from orograph.distance.problem import Distance
from orograph.engines.frontier.links import LinkBorder, LinkNews, Links
from orograph.engines.frontier.problem import FrontierProblem, solve_trial_tile
from orograph.engines.frontier.protocol import Border, Request, Visit
from orograph.kernels.relax.border import facing, inner_of
from orograph.kernels.relax.tile import TileState
from orograph.kernels.shortest_path_tree.pair_code import NOBODY, PairCode
from orograph.kernels.shortest_path_tree.tile import (
    BY_LINK,
    NO_DIRECTION,
    back_directions,
    labels_of,
    resolve_labels,
    spread_labels,
    tight_steps,
)
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

BACK_DIRECTION = Variable(
    "back_direction",
    np.dtype(np.uint8),
    NO_DIRECTION,
    {
        "long_name": "back direction (Esri codes)",
        "flag_values": list(range(BY_LINK + 1)),
        "flag_meanings": "source east south_east south south_west west north_west north north_east "
        "east_south_east south_south_east south_south_west west_south_west west_north_west "
        "north_north_west north_north_east east_north_east link",
    },
)
NO_SOURCE = -1
ALLOCATION = Variable(
    "allocation",
    np.dtype(np.int64),
    NO_SOURCE,
    {"long_name": "nearest source"},
)


@dataclass(slots=True)
class State:
    """A tile with its final distances, and the pairs (label, hops) assigned so far."""

    place: Place
    dist: Array
    pairs: npt.NDArray[np.int64]
    code: PairCode
    changed: npt.NDArray[np.bool_]
    steps: npt.NDArray[np.uint32]
    """Steps that attain each cell's distance, a bit for each direction; see `tight_steps`."""
    reach: int
    """Width of the halo of all arrays, in cells."""
    resolved: bool = False
    """Whether labels have been carried along the steps once."""
    reached: int = -1
    """Number of cells that have a label; -1 before they are counted."""
    links: LinkSteps | None = None


@dataclass(frozen=True)
class AllocationProblem(FrontierProblem):
    """Allocation and back directions as a problem of the frontier engine.

    The rasters are those of the distances, and their cost at the end.
    """

    name = "allocation"
    backend = "numba"
    may_wrap = True

    distance: Distance
    wanted: tuple[str, ...]
    names: Sequence[str] | None = field(default=None, kw_only=True)
    """Names for which the integer labels stand; None: labels are plain numbers."""
    orientation: Orientation = field(default=NORTH_UP, kw_only=True)
    """Orientation of the grid, which turns back directions into those of the compass."""

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels by solving a tile of four by four cells, with costs of 4."""
        solve_trial_tile(self, dtypes, [*self.distance.trial_values, 4], several=False)

    @property
    def halo_width(self) -> int:
        """Number of rows and columns that the longest step crosses, 1 or 2."""
        return self.distance.halo_width

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Requested rasters among back directions, back links and allocation."""
        wanted = set(self.wanted)
        if self.links is not None and self.links.of_graph and BACK_DIRECTION.name in wanted:
            wanted.add(BACK_LINK.name)
        allocation = ALLOCATION
        if self.names is not None:
            attrs = {**allocation.attrs, "source_names": list(self.names)}
            allocation = replace(allocation, attrs=attrs)
        return tuple(v for v in (BACK_DIRECTION, BACK_LINK, allocation) if v.name in wanted)

    @property
    def links(self) -> Links | None:
        """The links over which distances were computed."""
        return self.distance.links

    @property
    def may_start_nowhere(self) -> bool:
        """Whether no cell of the raster need be a source."""
        return self.distance.may_start_nowhere

    @property
    def link_blank(self) -> list[Any]:
        """An infinite distance and the unassigned pair (label, hops)."""
        return [*self.distance.link_blank, NOBODY, NOBODY]

    def starts(self, tile: int) -> dict[tuple[int, int], float] | None:
        """Return the tiles that contain sources, and the least initial cost in each."""
        return self.distance.starts(tile)

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> State:
        """Return the initial state of a tile: only its sources are labelled."""
        *surface, cost = cells
        reach = self.halo_width
        tile = self.distance.surface(place, surface, frame)
        window = place.window
        y, x = frame.y - window.y + reach, frame.x - window.x + reach
        known = tile.dist[y : y + frame.height, x : x + frame.width]
        if cost.dtype.kind == "f":
            np.fmin(known, cost, out=known)  # NaN where there is none
        else:
            np.copyto(known, cost, where=cost >= 0)
        rows, columns, values, own = self.sources_in(window, frame, surface)
        # A source keeps its label only if its initial cost is the final distance of its cell; else
        # another source reaches the cell at less cost.
        attained = tile.dist[rows + reach, columns + reach] == values
        at, own = (rows[attained] + reach, columns[attained] + reach), own[attained]
        # In this order: the steps are found from the costs, whose memory the pairs then take over.
        steps, pairs = tight_steps(tile), _in_place_of_costs(tile)
        code = PairCode.of_tile(self.distance.cells, self._labels)
        code.admit(own, pairs)
        # Of several sources in one cell the smallest label wins, as along paths of equal cost.
        np.minimum.at(pairs, at, code.pairs(own, 0))
        changed = np.zeros(tile.dist.shape, np.bool_)
        changed[at] = True
        state = State(place, tile.dist, pairs, code, changed, steps, reach)
        links = links_of_tile(self.links, window)
        if links is not None:
            state.links = LinkSteps(links, state, self.distance.link_blank)
        return state

    @cached_property
    def _labels(self) -> npt.NDArray[np.int64]:
        """The labels of all point sources; empty if a raster gives the sources."""
        sources = self.distance.sources
        return np.empty(0, np.int64) if sources is None else np.unique(sources.labels)

    def sources_in(
        self, window: Window, frame: Window, cells: Sequence[Array]
    ) -> tuple[Array, Array, Array, npt.NDArray[np.int64]]:
        """Return rows, columns, initial costs and labels of the sources in a tile."""
        distance = self.distance
        if distance.sources is not None:
            rows = distance.sources.rows - window.y
            columns = distance.sources.columns - window.x
            here = (rows >= 0) & (rows < window.height) & (columns >= 0) & (columns < window.width)
            costs = distance.sources.costs[here].astype(distance.dtype)
            return rows[here], columns[here], costs, distance.sources.labels[here]
        values = cells[-1][window.within(frame)]
        rows, columns = np.nonzero(is_source(values, distance.nodata["sources"], distance.targets))
        labels = source_labels(values, rows, columns, window)
        return rows, columns, distance.initial_costs(values[rows, columns]), labels

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Spread labels from the neighbours' borders through the tile; return what changed.

        A bound below zero leaves labels where they are, to be carried by a later visit.
        """
        sent, links = request.sent, request.links
        _take_in(state, request.halo)
        if state.links is not None and links is not None:
            state.links.take(links)
        settled = 0
        if bound >= 0:
            settled = self._spread(state)
            while state.links is not None and state.links.spread():
                settled += self._spread(state)
        pending = state.dist[state.changed]
        pairs, cost = (inner_of(part, state.reach) for part in (state.pairs, state.dist))
        border: Border = []
        outward = []
        parts = zip(*(facing(part, state.reach) for part in (pairs, cost)), strict=True)
        for k, (own, dist) in enumerate(parts):
            # Each tile encodes pairs by a table of its own labels, so tiles exchange labels and
            # hops.
            labels, hops = state.code.labels_and_hops(own)
            known: Any = NOBODY if sent[k] is None else sent[k]
            new = labels < NOBODY
            if sent[k] is not None:
                new = (labels < known[0]) | ((labels == known[0]) & (hops < known[1]))
            # The key is the least cost among the changed cells. Visits in the order of cost carry
            # labels downstream, so that few are replaced by smaller ones later.
            key = float(dist[new].min()) if new.any() else math.inf
            border.append(np.where(new, (labels, hops), known) if new.any() else None)
            outward.append(key)
        news = None
        if state.links is not None and links is not None:
            news = state.links.news(links.sent)
        if state.reached < 0 or state.links is not None:
            state.reached = int(np.count_nonzero(pairs < NOBODY))
        least = float(pending.min()) if pending.size else math.inf
        return Visit(least, outward, border, settled, state.reached, links=news)

    def _spread(self, state: State) -> int:
        """Spread labels within the tile until none changes; return how many cells changed."""
        settled = 0
        if not state.resolved:
            # Walks back along the steps do most of the work, at the first visit alone; later ones
            # spread what is new.
            state.resolved = True
            settled, state.reached = resolve_labels(
                state.dist, state.steps, state.reach, state.pairs, state.changed
            )
        spread = spread_labels(state.steps, state.reach, state.pairs, state.changed)
        if spread:
            state.reached = -1
        return settled + spread

    def pack(self, state: State) -> Any:
        """Return labels and hops; distances are read again."""
        return state.pairs, state.code.labels, state.changed

    def unpack(self, state: State, packed: tuple[Array, Array, Array]) -> None:
        """Restore labels and hops."""
        state.pairs[:], state.code.labels, changed = packed
        state.changed |= changed

    def size(self, state: State) -> int:
        """Return the bytes of memory that a tile's state occupies."""
        arrays = state.dist, state.pairs, state.changed, state.steps
        return sum(array.nbytes for array in arrays)

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the output cells of a converged tile; its state may not be used again."""
        outputs: dict[str, Array] = {}
        if BACK_DIRECTION.name in self.wanted:
            linked = state.links is not None
            # Directions follow from the final pairs, so they are the same for any order of visits.
            codes = back_directions(
                *(state.steps, state.reach, state.pairs, state.code, linked, self.orientation)
            )
            outputs[BACK_DIRECTION.name] = codes
            back = np.full(codes.shape, NO_LINK)
            if state.links is not None:
                state.links.mark(codes, back)
            if BACK_LINK in self.outputs:
                outputs[BACK_LINK.name] = back
        if ALLOCATION.name in self.wanted:
            outputs[ALLOCATION.name] = labels_of(state.pairs, state.reach, state.code, NO_SOURCE)
        return outputs, {}


class LinkSteps:
    """Links on least-cost paths within and into a tile, along which labels spread."""

    def __init__(self, links: TileLinks, state: State, blank: list[Any]) -> None:
        self._state, self._links = state, links
        tail, head = links.inside
        nothing = blank[0]
        cost = self._at(state.dist, tail)
        cost[cost < nothing] += links.inside_cost[cost < nothing]
        # As with steps, only links that attain the distance of their head carry labels.
        on = (cost < nothing) & (cost == self._at(state.dist, head))
        self._tail, self._head, self._edge = tail[on], head[on], links.inside_edge[on]
        nobody = np.full(len(links.arriving), NOBODY)
        self._arrived = nobody, nobody

    def _at(self, values: Array, cells: Array) -> Array:
        """Return array values at cells whose indices do not count the halo."""
        there: Array = values[tuple(cells.T + self._state.reach)]
        return there

    def take(self, known: LinkBorder) -> None:
        """Assign the labels that arrive along links on least-cost paths to their heads."""
        state, (cost, labels, hops) = self._state, known.arriving
        # A cost other than the final distance of the head is not that of a least-cost path.
        off = cost != self._at(state.dist, self._links.arriving)
        self._arrived = np.where(off, NOBODY, labels), np.where(off, NOBODY, hops)
        _admit(state, self._arrived[0])
        self._lower(self._links.arriving, state.code.pairs(*self._arrived))

    def spread(self) -> bool:
        """Spread labels along the tile's inner links; return whether any cell changed."""
        improved = False
        while self._lower(self._head, self._at(self._state.pairs, self._tail)):
            improved = True
        return improved

    def _lower(self, cells: Array, before: Array) -> bool:
        """Assign to cells their predecessors' pairs with one more hop, where that is less."""
        state = self._state
        # A link counts as one hop, as any step.
        new = np.flatnonzero(before + 1 < self._at(state.pairs, cells))
        where = tuple(cells[new].T + state.reach)
        np.minimum.at(state.pairs, where, before[new] + 1)
        state.changed[where] = True
        return bool(new.size)

    def news(self, sent: list[Array]) -> LinkNews | None:
        """Return the distances and labels to send along leaving links, or None if unchanged."""
        state, links = self._state, self._links
        labels, hops = state.code.labels_and_hops(self._at(state.pairs, links.leaving))
        new = (labels < sent[1]) | ((labels == sent[1]) & (hops < sent[2]))
        if not new.any():
            return None
        cost = self._at(state.dist, links.leaving)
        cost[new] += links.leaving_cost[new]
        values = [np.where(new, a, b) for a, b in zip((cost, labels, hops), sent, strict=True)]
        return LinkNews(values, np.where(new, cost, np.inf).astype(np.float64))

    def mark(self, codes: npt.NDArray[np.uint8], back: npt.NDArray[np.int64]) -> None:
        """Write to ``codes`` which paths come by a link, and to ``back`` the number of its edge.

        Of several links the edge of the least number counts.
        """
        state = self._state
        arrived = state.code.pairs(*self._arrived)
        before = np.concatenate([self._at(state.pairs, self._tail), arrived])
        heads = np.concatenate([self._head, self._links.arriving])
        edges = np.concatenate([self._edge, self._links.arriving_edge])
        own = self._at(state.pairs, heads)
        # A step of the grid takes precedence: only cells that have no direction came by a link. A
        # step over a pole is one of the grid, and of these the least code counts.
        direction = codes[tuple(heads.T)]
        free = (direction == NO_DIRECTION) | ((edges < 0) & (direction > -edges))
        order = np.flatnonzero(free & (own < NOBODY) & (before + 1 == own))
        # Written in descending order, the least number of an edge is written last and stays; those
        # of poles are negative.
        order = order[np.argsort(edges[order])[::-1]]
        where, edge = tuple(heads[order].T), edges[order]
        back[where] = np.where(edge < 0, NO_LINK, edge)
        codes[where] = np.where(edge < 0, -edge, BY_LINK)


def source_labels(
    values: Array, rows: Array, columns: Array, window: Window, name: str = "sources"
) -> npt.NDArray[np.int64]:
    """Return the values of a raster at source cells as labels; refuse unusable values."""
    own = values[rows, columns]
    labels = own.astype(np.int64)
    bad = (labels != own) | (labels == NO_SOURCE) | (labels >= NOBODY)
    if bad.any():
        at = int(bad.argmax())
        raise InputError(
            f"{name}: {own[at]} at row {window.y + rows[at]}, column {window.x + columns[at]} "
            f"is not a label for allocation; labels must be whole numbers below {NOBODY}, and not "
            f"{NO_SOURCE}, which marks cells without a source: round or renumber them first"
        )
    return labels


def _in_place_of_costs(tile: TileState) -> npt.NDArray[np.int64]:
    """Return an array of unassigned pairs, reusing the memory of a tile's costs if it fits.

    The costs are not needed any more, and new memory takes longer than all that is done in it.
    """
    costs = tile.friction if tile.friction.size else tile.elevation
    pairs = costs.view(np.int64) if costs.itemsize == 8 else np.empty(costs.shape, np.int64)
    pairs.fill(NOBODY)
    return pairs


def _admit(state: State, labels: Array) -> None:
    """Add labels that arrive in a tile to its table of labels."""
    state.code.admit(labels[labels < NOBODY], state.pairs)


def _take_in(state: State, halo: Border) -> None:
    """Copy smaller pairs from the neighbours' borders into the halo, and mark them as changed."""
    reach = state.reach
    height, width = (n - 2 * reach for n in state.pairs.shape)
    starts = {-1: 0, 0: reach, 1: reach + height}, {-1: 0, 0: reach, 1: reach + width}
    arrived = [part[0].ravel() for part in halo if part is not None]
    _admit(state, np.concatenate([[NOBODY], *arrived]))
    for k, (dy, dx) in enumerate(NEIGHBOURS):
        if halo[k] is None:
            continue
        pairs = state.code.pairs(*halo[k])
        # A neighbour at the end of the grid may be narrower than the halo: its strip then lies next
        # to the tile, not at the outer edge of the halo.
        y = starts[0][dy] + (reach - pairs.shape[0] if dy < 0 else 0)
        x = starts[1][dx] + (reach - pairs.shape[1] if dx < 0 else 0)
        place = slice(y, y + pairs.shape[0]), slice(x, x + pairs.shape[1])
        new = pairs < state.pairs[place]
        state.pairs[place][new] = pairs[new]
        state.changed[place] |= new
