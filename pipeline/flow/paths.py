"""Flow paths through the nodes of the quadtree, from border cell to border cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from orograph.flow.flow_problem import refuse_circle
from orograph.kernels.flow.accumulate import exits_of
from orograph.kernels.flow.codes import OUT, SINK, STEPS, Codes, leave_at_border
from orograph.kernels.flow.route import OUTSIDE, follow, order_leaving
from orograph.tiles.arrays import Integers
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells, join_borders
from orograph.tiles.grid.quadtree import Place


@stored("flow-paths")
class Paths:
    """Flow paths from a node's border cells, as the border cell at which each leaves the node."""

    exits: Integers
    """Index of the border cell where each one's path leaves the node; -1 where it ends inside."""
    numbers: Codes
    """Step of a cell that leads out of the node; `SINK` of all others."""


class WithPaths(Protocol):
    """A summary that has the paths of a node among others."""

    @property
    def paths(self) -> Paths:
        """Flow paths from the node's border cells."""


@stored("flow-junction")
class Junction:
    """Border cells of a node's children, and the flow paths that connect them."""

    exits: Integers
    onward: Integers
    order: Integers
    """Cells where paths leave a child, upstream cells first; for ``exits`` and ``onward`` see
    `orograph.kernels.flow.route`."""
    members: tuple[Integers, ...]
    """Indices of each child's border cells among those of all children."""
    border: Integers
    """Indices of the node's own border cells among those of its children."""

    def follow(self, ends: Integers, leaving: Integers) -> tuple[Integers, Integers]:
        """Follow each path out of a child; return where it leaves the node, or -1, and its label.

        ``ends`` is the label of the end of each path that ends in its child, ``leaving`` that of
        what leaves the node, for each of its border cells.
        """
        last, label = np.full((2, self.exits.size), -1)
        label[self.border] = leaving
        follow(self.order, self.exits, self.onward, ends, last, label)
        return last, label


def paths_of_tile(place: Place, numbers: Codes, tile: Codes, ends: Integers | None = None) -> Paths:
    """Return the flow paths from a tile's border cells, as the cell where each leaves the tile.

    ``ends`` are the last cells of the paths from border cells, where they are known.
    """
    border = border_cells(*place.window.shape, place.sides)
    inner, outer = tile.reshape(-1), numbers.reshape(-1)
    ends = exits_of(tile, border) if ends is None else ends
    exits = np.where(inner[ends] == OUT, np.searchsorted(border, ends), -1)
    # From ``numbers``, since in ``tile`` an outlet at the border may have become a sink.
    leaving = leave_at_border(numbers).reshape(-1)[border] == OUT
    return Paths(exits, np.where(leaving, outer[border], SINK).astype(np.uint8))


def join_paths(place: Place, children: Sequence[tuple[Place, WithPaths]]) -> tuple[Junction, Paths]:
    """Join the flow paths of the children's summaries into those of their parent."""
    height, width = place.window.shape
    cells, members = join_borders(place.window, [child for child, _ in children])
    exits, onward = np.full((2, cells.size), -1)
    numbers = np.full(cells.size, SINK, np.uint8)
    for member, (_, summary) in zip(members, children, strict=True):
        own = summary.paths
        # From indices among the child's border cells to indices among those of all children.
        exits[member] = np.where(own.exits >= 0, member[own.exits], -1)
        numbers[member] = own.numbers
    leading = np.flatnonzero(numbers < SINK)
    dy, dx = np.array(STEPS)[numbers[leading]].T
    y, x = np.divmod(cells[leading], width)
    y, x = y + dy, x + dx
    if place.wraps:
        x %= width
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    # A step out of one child leads to a border cell of another, so the bisection finds its index.
    target = np.searchsorted(cells, np.where(inside, y * width + x, 0))
    onward[leading] = np.where(inside, target, OUTSIDE)
    order, circle = order_leaving(exits, onward)
    refuse_circle(int(cells[circle]) if circle >= 0 else -1, place.window)
    own_border = border_cells(height, width, place.sides)
    border = np.searchsorted(cells, own_border)
    junction = Junction(exits, onward, order, tuple(members), border)
    nothing = np.zeros(cells.size, np.int64)
    # ``last`` is asked at the cell where a path leaves its child, from which it goes on.
    last, _ = junction.follow(nothing, nothing[border])
    last = np.where(exits < 0, -1, last[exits])[border]
    beyond = onward[border] == OUTSIDE
    return junction, Paths(
        np.where(last >= 0, np.searchsorted(border, last), -1),
        np.where(beyond, numbers[border], SINK).astype(np.uint8),
    )
