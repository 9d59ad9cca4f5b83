"""Shortest paths in a graph in parts, as a problem of the frontier engine.

A visit brings a part to its fixpoint up to a bound, by delta-stepping on a CPU or a GPU
(`orograph.kernels.graph.near_far`). Parts exchange costs
along links: one leads from a part to each vertex of another part to which its arcs lead, and
carries the least cost that these arcs offer. In the rows of a part these vertices stand behind its
own, and no arc leaves them; so the kernels know no parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.links import LinkNews, Links
from orograph.engines.frontier.protocol import FrontierDefaults, Request, Table, Visit
from orograph.engines.tile_states import Tile
from orograph.graphs.columns import Columns, vertex_columns
from orograph.graphs.unreached import mark_unreached
from orograph.kernels.graph.near_far import HostPart, arcs_outside
from orograph.kernels.graph.spread import unreached
from orograph.kernels.stages import kernel
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.graph.graph import Graph, Rows
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

VERTICES_A_VISIT = {"numba": 10_000, "cuda": 500_000}
"""Fixed cost of a visit by backend, as the number of vertices settled in the same time."""


@dataclass(slots=True)
class PartState:
    """Searches in a part and to the vertices its links lead to, which stand behind its own."""

    part: HostPart
    """Searches in the part, on the host or a GPU."""
    arriving: Integers
    """The vertex at the end of each link that leads to the part."""


@dataclass(frozen=True)
class PartPaths(FrontierDefaults):
    """Shortest paths from each of several sources as a problem of the frontier engine."""

    name = "shortest-paths"
    halo_width = 0
    outputs: ClassVar[tuple[Variable, ...]] = ()
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {"cost": ("source", "vertex")}

    bounds: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]
    """Sources as stored vertices; of those in one tuple the nearest counts."""
    dtype: np.dtype[Any]
    width: Any
    """Width of a bucket within a part."""
    most: Any
    links: Links | None = field(default=None, kw_only=True)
    backend: str
    fill: int | None
    """Value that marks unreached vertices in the result; None: infinity."""

    @property
    def cells_a_visit(self) -> int:
        """Fixed cost of a visit, in vertices."""
        return VERTICES_A_VISIT[self.backend]

    @property
    def link_blank(self) -> list[Any]:
        """The unreached cost, once for each source."""
        return [unreached(self.dtype)] * len(self.sources)

    def bucket_width(self, tile: int) -> BucketWidth:
        """Return the initial width of buckets, for the vertices of the largest part."""
        return BucketWidth(int(np.diff(self.bounds).max()), self.cells_a_visit)

    def complete(self, columns: Columns, rasters: Sequence[Any]) -> Columns:
        """Return the columns in the order of the graph's source, with ids of the vertices."""
        graph: Graph = rasters[0].graph
        found = vertex_columns(graph, self.listed)
        for name, (dims, column) in columns.items():
            found[name] = dims, column[..., graph.stored]
        return found

    def starts(self, tile: int) -> dict[Tile, float]:
        """Return the parts that contain sources, each with initial cost 0."""
        return {(self._part_of(vertex), 0): 0.0 for group in self.sources for vertex in group}

    def open(self, place: Place, cells: Sequence[Any], frame: Window) -> PartState:
        """Return the initial state of a part: only its sources are reached."""
        part = place.window.y
        first, last = self.bounds[part : part + 2]
        own = last - first
        indptr, indices, weight = cells[0]
        # Vertices of other parts get the numbers behind the part's own. What the subtraction makes
        # of them is replaced, and their rows are empty.
        outside = arcs_outside(indptr, indices, first)
        beyond, number = np.unique(indices[outside], return_inverse=True)
        local = (indices - indices.dtype.type(first)).astype(np.uint32, copy=False)
        local[outside] = own + number
        indptr = np.append(indptr, np.full(beyond.size, local.size, indptr.dtype))
        sources = [
            np.array([vertex - first for vertex in group if first <= vertex < last], np.int64)
            for group in self.sources
        ]
        part = kernel("open_part", self.backend)(
            (indptr, local, weight), own, sources, self.dtype, self.width, self.most
        )
        assert self.links is not None
        return PartState(part, self.links.edge[self.links.of_tile(place.window).arriving] - first)

    def pack(self, state: PartState) -> tuple[Array, list[Array]]:
        """Return the costs, and for each source the vertices that wait to be relaxed."""
        return state.part.save()

    def unpack(self, state: PartState, packed: tuple[Array, list[Array]]) -> None:
        """Restore what `pack` returned."""
        state.part.restore(*packed)

    def visit(self, state: PartState, request: Request, bound: float) -> Visit:
        """Read the costs that arrive along links, relax up to ``bound``; return what changed."""
        links, nothing = request.links, unreached(self.dtype)
        assert links is not None
        # keys are float64: the least cost may be above the bound by rounding alone
        upto = self.dtype.type(min(math.nextafter(bound, math.inf), float(self.most)))
        settled, pending = 0, math.inf
        for number, arrived in enumerate(links.arriving):
            count, least = state.part.go_on(number, state.arriving, arrived, upto)
            settled += count
            pending = pending if least == nothing else min(pending, float(least))
        beyond, values = state.part.beyond(), []
        keys = np.full(beyond.shape[1], np.inf)
        # A link has one key: the least of its new costs. A state that was rebuilt may know less
        # than was sent before, so the lesser cost counts.
        for cost, before in zip(beyond, links.sent, strict=True):
            keys = np.minimum(keys, np.where(cost < before, cost.astype(np.float64), np.inf))
            values.append(np.minimum(cost, before))
        return Visit(
            pending,
            [math.inf] * len(NEIGHBOURS),
            [None] * len(NEIGHBOURS),
            settled,
            state.part.reached(),
            links=LinkNews(values, keys) if np.isfinite(keys).any() else None,
        )

    def finish(self, state: PartState) -> tuple[dict[str, Array], dict[str, float]]:
        """Return no rasters and no counts."""
        return {}, {}

    def rows_of_tile(self, place: Place, state: PartState) -> Table:
        """Return the costs of the vertices of a part."""
        part = np.array([place.window.y])
        own = self.bounds[place.window.y + 1] - self.bounds[place.window.y]
        return {"part": part, "cost": state.part.cost[:, :own]}

    def join_rows(self, tables: Iterable[Table], column: str) -> Array:
        """Return the costs of all stored vertices, ``fill`` where unreached."""
        cost = np.empty((len(self.sources), self.bounds[-1]), self.dtype)
        for table in tables:
            part = int(table["part"][0])
            cost[:, self.bounds[part] : self.bounds[part + 1]] = table["cost"]
        mark_unreached(cost, self.fill)
        return cost

    @property
    def listed(self) -> list[int]:
        """Stored vertices of the sources, which the result lists."""
        return [vertex for (vertex,) in self.sources]

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the method as the only attribute of the result."""
        return {"method": "delta-stepping"}

    def _part_of(self, vertex: int) -> int:
        return int(np.searchsorted(self.bounds, vertex, side="right")) - 1


@dataclass(frozen=True)
class PartHops(PartPaths):
    """Hop counts from the nearest of several sources: shortest paths with all weights 1."""

    name = "graph-hops"
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {"hops": ("vertex",)}

    @property
    def listed(self) -> list[int]:
        """An empty list: the result does not list the sources."""
        return []

    def finish(self, state: PartState) -> tuple[dict[str, Array], dict[str, float]]:
        """Return no rasters, and the number of reached vertices."""
        return {}, {"reached_vertices": float(state.part.reached())}

    def join_rows(self, tables: Iterable[Table], column: str) -> Array:
        """Return the hops of all stored vertices, -1 where unreached."""
        hops: Array = super().join_rows(tables, column)[0]
        return hops.astype(np.int32 if hops.size < 2**31 else np.int64)

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the numbers of reached and unreached vertices."""
        reached = int(counts["reached_vertices"])
        return {"reached_vertices": reached, "unreached_vertices": self.bounds[-1] - reached}


@dataclass(frozen=True)
class PartRows:
    """A graph read part by part, as tiles of a grid with one column."""

    graph: Graph
    unweighted: bool = False
    """Whether each arc counts as 1."""
    endless: ClassVar[bool] = True
    """Parts have no columns: see `orograph.tiles.raster.interface.is_inside`."""
    tile: ClassVar[None] = None
    """No side of a tile: a part is read as one."""

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of the rows of a part, on average: a part is a cell of the grid."""
        graph = self.graph
        return 8 * (graph.vertex_count + 2 * graph.arc_count) // graph.part_count

    def read(self, window: Window) -> Rows:
        """Return the CSR rows of the part that stands at a window's row."""
        rows = self.graph.part_rows(window.y, not self.unweighted)
        ones = np.ones(rows.indices.size, np.int32)
        return rows._replace(weight=ones) if self.unweighted else rows


def links_between(graph: Graph) -> Links:
    """Return the links between parts: from a part to each vertex its arcs reach elsewhere."""
    tails, heads = [], []
    for part in range(graph.part_count):
        indptr, of_part = graph.part_heads(part)
        beyond = np.unique(of_part[arcs_outside(indptr, of_part, graph.bounds[part])])
        # Parts ascend, so the links are sorted by their tails, as `Links` says.
        heads.append(beyond)
        tails.append(np.full(beyond.size, part))
    vertex = np.concatenate(heads).astype(np.int64)
    to = np.searchsorted(graph.bounds, vertex, side="right") - 1
    tail, head = (np.stack([n, np.zeros_like(n)], 1) for n in (np.concatenate(tails), to))
    return Links(tail, head, np.empty(0), vertex)
