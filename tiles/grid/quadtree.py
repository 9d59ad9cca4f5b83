"""Quadtree over the tiles of a grid in z-order, clipped to the grid.

A node is identified by its level and its Morton code. The tiles have level 0; the children of node
``(level, z)`` are those of the nodes ``(level - 1, 4 * z + i)``, ``i`` in 0..3, that overlap the
grid. The lowest bit of a code belongs to the row. zarr-python orders the inner chunks of a shard in
the same way, so the tiles of a node are contiguous on disk.

References
----------
G. M. Morton, "A computer oriented geodetic data base and a new technique in file sequencing",
IBM, 1966.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from orograph.tiles.grid.window import Window


def morton_encode(row: int, column: int) -> int:
    """Return the Morton code: bits of ``row`` at even positions, of ``column`` at odd ones.

    Examples
    --------
    >>> [morton_encode(r, c) for c in (0, 1) for r in (0, 1)]
    [0, 1, 2, 3]
    """
    code = 0
    for bit in range(max(row.bit_length(), column.bit_length())):
        code |= (row >> bit & 1) << (2 * bit) | (column >> bit & 1) << (2 * bit + 1)
    return code


def morton_decode(code: int) -> tuple[int, int]:
    """Return the row and column of a Morton code.

    Examples
    --------
    >>> morton_decode(6)
    (2, 1)
    """
    row = column = 0
    for bit in range((code.bit_length() + 1) // 2):
        row |= (code >> (2 * bit) & 1) << bit
        column |= (code >> (2 * bit + 1) & 1) << bit
    return row, column


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """Node of the quadtree: its level, 0 for a tile, and its Morton code within the level."""

    level: int
    z: int


@dataclass(frozen=True, slots=True)
class Sides:
    """Sides of a window on which the grid continues, as four booleans."""

    north: bool
    south: bool
    west: bool
    east: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A node's window in its grid, and on which sides the grid continues."""

    node: Node
    window: Window
    sides: Sides
    grid: tuple[int, int]
    wraps: bool = False
    """Whether it is as wide as a grid that wraps, and holds the seam of the last column."""
    poles: tuple[bool, bool] = (False, False)
    """Whether it holds the edges over a pole of its first and of its last row, and its children
    do not."""


class Tree(Protocol):
    """Interface of a tree whose leaves are tiles, for the sweep engine.

    Level 0 is that of the tiles. All nodes of a level are disjoint and cover the grid.
    """

    @property
    def root(self) -> Node:
        """Node that covers the whole grid."""

    def window(self, node: Node) -> Window:
        """Return the window of ``node``."""

    def place(self, node: Node) -> Place:
        """Return the window of ``node`` and the sides on which the grid continues."""

    def children(self, node: Node) -> list[Node]:
        """Return the children of ``node`` in visiting order."""

    def nodes(self, level: int, within: Node | None = None) -> Iterator[Node]:
        """Yield the nodes of a level in visiting order, or only those below ``within``."""

    def count(self, level: int) -> int:
        """Return the number of nodes of a level."""


@dataclass(frozen=True)
class Quadtree:
    """Quadtree of a grid of ``shape`` cells, divided into tiles of ``tile`` cells a side.

    Where the grid ``wraps``, its last column has the first as its eastern neighbour. The seam
    between the two is within each node as wide as the grid, from the level above the tiles on;
    nodes below have a neighbour on either side, which may be the node itself. Where ``poles`` says
    so of the first and of the last row, cells of such a row half a turn apart are neighbours over
    the pole: the same nodes hold these edges.
    """

    shape: tuple[int, int]
    tile: int
    wraps: bool = False
    poles: tuple[bool, bool] = (False, False)

    @cached_property
    def root(self) -> Node:
        """Node that covers the whole grid."""
        # The least level at which a node spans all tiles: the binary logarithm, rounded up.
        level = (max(self.tiles) - 1).bit_length()
        return Node(max(level, self.wraps), 0)

    @property
    def tiles(self) -> tuple[int, int]:
        """Number of rows and of columns of tiles."""
        return -(-self.shape[0] // self.tile), -(-self.shape[1] // self.tile)

    @cached_property
    def closing(self) -> int:
        """Least level above the tiles whose nodes are as wide as the grid."""
        return max((self.tiles[1] - 1).bit_length(), 1)

    def window(self, node: Node) -> Window:
        """Return the window of ``node``; empty if it lies outside the grid."""
        side = self.tile << node.level
        row, column = morton_decode(node.z)
        return Window(row * side, column * side, side, side).clip(self.shape)

    def place(self, node: Node) -> Place:
        """Return the window of ``node`` and the sides on which the grid continues."""
        window = self.window(node)
        height, width = self.shape
        is_open = self.wraps and node.level < self.closing
        sides = Sides(
            north=window.y > 0 or (is_open and self.poles[0]),
            south=window.y + window.height < height or (is_open and self.poles[1]),
            west=window.x > 0 or is_open,
            east=window.x + window.width < width or is_open,
        )
        closes = self.wraps and node.level == self.closing
        poles = (
            closes and self.poles[0] and window.y == 0,
            closes and self.poles[1] and window.y + window.height == height,
        )
        wraps = self.wraps and node.level >= self.closing
        return Place(node, window, sides, self.shape, wraps, poles)

    def beside(self, tile: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
        """Return the row and column of the tile a step away; beyond the grid there is none."""
        row, column = tile[0] + step[0], tile[1] + step[1]
        return row, column % self.tiles[1] if self.wraps else column

    def frame(self, window: Window, halo: int) -> Window:
        """Return a window and the cells around it, as far as the grid goes.

        Where the grid wraps, the columns go on beyond it: see `read_frame`.
        """
        frame = window.grow(halo)
        height = self.shape[0]
        width = frame.x + frame.width if self.wraps else self.shape[1]
        left = min(frame.x, 0) if self.wraps else 0
        return frame.overlap(Window(0, left, height, width - left))

    def children(self, node: Node) -> list[Node]:
        """Return the children of ``node`` that overlap the grid, in z-order."""
        below = (Node(node.level - 1, 4 * node.z + i) for i in range(4))
        return [child for child in below if self.window(child).size]

    def nodes(self, level: int, within: Node | None = None) -> Iterator[Node]:
        """Yield the nodes of a level in z-order, or only those below ``within``."""
        top = self.root if within is None else within
        if top.level <= level:
            yield top
            return
        for child in self.children(top):
            yield from self.nodes(level, child)

    def count(self, level: int) -> int:
        """Return the number of nodes of a level."""
        side = self.tile << level
        return -(-self.shape[0] // side) * -(-self.shape[1] // side)
