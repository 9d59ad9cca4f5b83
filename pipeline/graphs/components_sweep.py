"""Connected components of a graph in parts, by the quadtree sweep.

A part joins its vertices and hands up the components from which arcs lead to other parts; a node
joins what its children hand up. A component is named by its first vertex in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_problems import Table
from orograph.graphs.columns import GraphTable
from orograph.graphs.parts import Arcs, Integers, Part, join_arcs, span
from orograph.kernels.label.union_find import rem_components
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable

Array = npt.NDArray[Any]


@stored("graph-components-summary")
@dataclass(frozen=True)
class Summary:
    """Components of a node from which arcs leave it, for its parent."""

    border: Integers
    """Its vertices from which arcs leave it, ascending."""
    component: Integers
    """For each of them its component, from 0."""
    first: Integers
    """The first vertex of each of these components, by place in the source."""
    leaving: Arcs
    complete: int
    """How many components lie wholly in the node."""


@stored("graph-components-state")
@dataclass(frozen=True)
class State:
    """Saved state of a node: its components, and to which each child's components belong."""

    members: tuple[Integers, ...]
    """For each child the components here of its components; of a part, of its vertices."""
    first: Integers
    up: Integers
    """Which components it handed up."""
    position: Integers
    """Of a part: the place of each vertex in the source."""


@dataclass(frozen=True)
class GraphComponents:
    """The connected components of a graph as a problem of the quadtree sweep."""

    bounds: tuple[int, ...]
    backend: str

    name = "graph-components"
    outputs: ClassVar[tuple[Variable, ...]] = ()
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "labels": ("vertex",),
        "component_size": ("component",),
    }

    def table_maker(self, run: QuadtreePass) -> GraphTable:
        """Return the builder of the result table, which adds vertex ids."""
        return GraphTable(run)

    def leaf(self, place: Place, part: Part) -> tuple[Summary, State]:
        """Join the vertices of a part; pass up the components with arcs to other parts."""
        first, last = span(self.bounds, place.window)
        inside = (part.heads >= first) & (part.heads < last)
        ends = part.tails[inside], part.heads[inside] - first
        arcs = Arcs(part.tails + first, part.heads, part.weight, part.edge)
        return _join(
            last - first, ends, part.position, arcs.take(~inside), (), np.arange(first, last),
            np.arange(last - first), 0, part.position,
        )  # fmt: skip

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, State]:
        """Join the children's components; pass up those with arcs to other nodes."""
        first, last = span(self.bounds, place.window)
        summaries = [summary for _, summary in children]
        offsets = np.cumsum([0, *(summary.first.size for summary in summaries)])
        vertices = np.concatenate([summary.border for summary in summaries])
        component = np.concatenate(
            [s.component + offset for s, offset in zip(summaries, offsets, strict=False)]
        )
        arcs = join_arcs([summary.leaving for summary in summaries])
        inside = (arcs.head >= first) & (arcs.head < last)
        ends = tuple(
            component[np.searchsorted(vertices, column[inside])]
            for column in (arcs.tail, arcs.head)
        )
        return _join(
            int(offsets[-1]), ends, np.concatenate([s.first for s in summaries]),
            arcs.take(~inside), tuple(offsets[1:-1].tolist()), vertices, component,
            sum(s.complete for s in summaries), np.empty(0, np.int64),
        )  # fmt: skip

    def root(self, summary: Summary) -> tuple[Any, dict[str, Any]]:
        """Return an empty message, as all components are complete, and their number."""
        return np.empty(0, np.int64), {"component_count": summary.complete}

    def down(
        self, place: Place, saved: State, message: Any, children: Sequence[Place]
    ) -> list[Any]:
        """Return for each child the first vertex of each component it passed up."""
        first = _final(saved, message)
        return [first[members] for members in saved.members]

    def finish(self, place: Place, saved: State, message: Any) -> dict[str, Array]:
        """Return no rasters."""
        return {}

    def rows_of_tile(self, place: Place, saved: State, message: Any) -> Table:
        """Return for each vertex of a part the first vertex of its component."""
        return {"place": saved.position, "first": _final(saved, message)[saved.members[0]]}

    def rows_of_node(self, place: Place, saved: State, message: Any) -> Table:
        """Return no rows: all vertices are in parts."""
        return {"place": np.empty(0, np.int64), "first": np.empty(0, np.int64)}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return the label of each vertex, or the size of each component."""
        n = self.bounds[-1]
        first = np.empty(n, np.int64)
        for table in tables:
            first[table["place"]] = table["first"]
        labels = np.cumsum(first == np.arange(n))[first]
        return labels if column == "labels" else np.bincount(labels)[1:]


def _join(
    count: int, ends: tuple[Integers, ...], firsts: Integers, leaving: Arcs, cuts: tuple[int, ...],
    vertices: Integers, component: Integers, complete: int, position: Integers,
) -> tuple[Summary, State]:  # fmt: skip
    """Join components or vertices along edges; pass up those from which arcs leave the node."""
    roots = rem_components(count, *ends)
    known, group = np.unique(roots, return_inverse=True)
    first = np.full(known.size, np.iinfo(np.int64).max)
    np.minimum.at(first, group, firsts)
    border = np.unique(leaving.tail)
    on_border = group[component[np.searchsorted(vertices, border)]]
    up, numbers = np.unique(on_border, return_inverse=True)
    complete += known.size - up.size
    summary = Summary(border, numbers, first[up], leaving, complete)
    return summary, State(tuple(np.split(group, cuts)), first, up, position)


def _final(saved: State, message: Integers) -> Integers:
    """Return the first vertex of each of a node's components, given those passed up."""
    first = saved.first.copy()
    first[saved.up] = message
    return first
