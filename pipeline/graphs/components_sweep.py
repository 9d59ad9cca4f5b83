"""Connected components of a graph in parts, by the quadtree sweep.

A part joins its vertices and hands up the components from which arcs lead to other parts; a node
joins what its children hand up. A component is named by its first vertex in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_problems import Table
from orograph.graphs.columns import GraphTable
from orograph.graphs.parts import Part, span
from orograph.kernels.graph.components import number_places, write_firsts
from orograph.kernels.label.union_find import rem_components
from orograph.kernels.stages import kernel
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable


@stored("graph-components-summary")
class Summary:
    """Components of a node from which arcs leave it, for its parent."""

    border: Integers
    """Vertices of the node from which arcs leave it, ascending."""
    component: Integers
    """Component of each vertex in ``border``, numbered from 0."""
    first: Integers
    """First vertex of each component that arcs leave, by place in the source."""
    leaving: Integers
    """Tails and heads of the arcs that lead to other nodes, as vertices of the whole graph."""
    complete: int
    """Number of components that lie wholly in the node."""


@stored("graph-components-state")
class State:
    """Saved state of a node: its components, and to which each child's components belong."""

    members: tuple[Integers, ...]
    """Component of each of a child's components, child by child; in a part, of each vertex."""
    first: Integers
    up: Integers
    """Indices of the components that were passed up to the parent."""
    position: Integers
    """Place of each vertex in the source; empty above the parts."""
    size: Integers
    """Number of vertices of each component; empty above the parts."""


@dataclass(frozen=True)
class GraphComponents:
    """The connected components of a graph as a problem of the quadtree sweep."""

    bounds: tuple[int, ...]
    backend: str

    name = "graph-components"
    weighted = False
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
        first, _ = span(self.bounds, place.window)
        member, firsts, sizes, leaving = kernel("part_components", self.backend)(
            part.indptr, part.heads, first, part.position
        )
        border = np.unique(leaving[0])
        return _summarise(
            firsts, border, member[border - first].astype(np.int64), leaving, (member,), 0,
            part.position, sizes,
        )  # fmt: skip

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, State]:
        """Join the children's components; pass up those with arcs to other nodes."""
        first, last = span(self.bounds, place.window)
        summaries = [summary for _, summary in children]
        # Components of the children are numbered one child after the other, and joined by the arcs
        # between them.
        offsets = np.cumsum([0, *(summary.first.size for summary in summaries)])
        vertices = np.concatenate([summary.border for summary in summaries])
        component = np.concatenate(
            [s.component + offset for s, offset in zip(summaries, offsets, strict=False)]
        )
        leaving = np.concatenate([summary.leaving for summary in summaries], axis=1)
        inside = ((leaving >= first) & (leaving < last)).all(0)
        ends = component[np.searchsorted(vertices, leaving[:, inside])]
        roots = rem_components(int(offsets[-1]), *ends)
        known, group = np.unique(roots, return_inverse=True)
        firsts = np.full(known.size, np.iinfo(np.int64).max)
        # A joined component is named by the least of the first vertices.
        np.minimum.at(firsts, group, np.concatenate([s.first for s in summaries]))
        leaving = leaving[:, ~inside]
        border = np.unique(leaving[0])
        return _summarise(
            firsts, border, group[component[np.searchsorted(vertices, border)]], leaving,
            tuple(np.split(group, offsets[1:-1])), sum(s.complete for s in summaries),
            *np.empty((2, 0), np.int64),
        )  # fmt: skip

    def root(self, summary: Summary) -> tuple[Any, dict[str, Any]]:
        """Return an empty message, as all components are complete, and their number."""
        return np.empty(0, np.int64), {"component_count": summary.complete}

    def down(
        self, place: Place, saved: State, message: Integers, children: Sequence[Place]
    ) -> list[Any]:
        """Return for each child the first vertex of each component it passed up."""
        first = _final(saved, message)
        return [first[members] for members in saved.members]

    def finish(self, place: Place, saved: State, message: Integers) -> dict[str, Array]:
        """Return no rasters."""
        return {}

    def rows_of_tile(self, place: Place, saved: State, message: Integers) -> Table:
        """Return a part's vertices and components, and the first vertex of each component."""
        return {
            "place": saved.position,
            "member": saved.members[0],
            "first": _final(saved, message),
            "size": saved.size,
        }

    def rows_of_node(self, place: Place, saved: State, message: Integers) -> Table:
        """Return no rows: all vertices are in parts."""
        return {}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return the label of each vertex, or the size of each component."""
        of_parts = (table for table in tables if table)
        if column == "component_size":
            of_part = [(table["first"], table["size"]) for table in of_parts]
            first, size = (np.concatenate(columns) for columns in zip(*of_part, strict=True))
            is_first = np.zeros(self.bounds[-1], np.bool_)  # a sort of many would take longer
            is_first[first] = True
            firsts = np.flatnonzero(is_first)
            sizes: Integers = np.zeros(firsts.size, np.int64)
            np.add.at(sizes, np.searchsorted(firsts, first), size)
            return sizes
        labels: Integers = np.empty(self.bounds[-1], np.int64)
        for table in of_parts:
            write_firsts(table["place"], table["member"], table["first"], labels)
        number_places(labels)
        return labels


def _summarise(
    firsts: Integers, border: Integers, component: Integers, leaving: Integers,
    members: tuple[Integers, ...], complete: int, position: Integers,
    size: Integers,
) -> tuple[Summary, State]:  # fmt: skip
    """Pass up the components of a node from which arcs leave it, given those of its border."""
    up, numbers = np.unique(component, return_inverse=True)
    # Those that no arc leaves are complete: none above hears of them.
    complete += firsts.size - up.size
    summary = Summary(border, numbers, firsts[up], leaving, complete)
    return summary, State(members, firsts, up, position, size)


def _final(saved: State, message: Integers) -> Integers:
    """Return the first vertex of each of a node's components, given those passed up."""
    first = saved.first.copy()
    first[saved.up] = message
    return first
