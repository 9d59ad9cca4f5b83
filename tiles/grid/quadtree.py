"""The quadtree over the tiles of a grid, in z-order; ragged at the right and bottom, never padded.

A node is named by its level and its Morton code. Level 0 are the tiles; the four children of
node ``(level, z)`` are ``(level - 1, 4 * z + i)`` for ``i`` in 0..3, those outside the grid left
out. The lowest bit of a code belongs to the row, as in the order in which zarr-python lays the
inner chunks of a shard out, so that the tiles of a node lie together on disk.

References
----------
G. M. Morton, "A computer oriented geodetic data base and a new technique in file sequencing",
IBM, 1966.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from orograph.tiles.grid.window import Window


def morton_encode(row: int, column: int) -> int:
    """Interleave the bits of ``row`` (even bits) and ``column`` (odd bits).

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
    """Row and column of a Morton code.

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
    """A node of the quadtree: level 0 are tiles, ``z`` is the Morton code within the level."""

    level: int
    z: int


@dataclass(frozen=True, slots=True)
class Sides:
    """On which sides a window touches the rest of the grid."""

    north: bool
    south: bool
    west: bool
    east: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node lies: all that a kernel may need to know of the world outside its tile."""

    node: Node
    window: Window
    sides: Sides
    grid: tuple[int, int]


@dataclass(frozen=True)
class Quadtree:
    """The quadtree of a grid of ``shape`` cells cut into tiles of ``tile`` cells a side."""

    shape: tuple[int, int]
    tile: int

    @cached_property
    def root(self) -> Node:
        """The node that covers the whole grid."""
        tiles = max(-(-self.shape[0] // self.tile), -(-self.shape[1] // self.tile))
        return Node((tiles - 1).bit_length(), 0)

    def window(self, node: Node) -> Window:
        """The cells of ``node``; empty if it lies outside the grid."""
        side = self.tile << node.level
        row, column = morton_decode(node.z)
        return Window(row * side, column * side, side, side).clip(self.shape)

    def place(self, node: Node) -> Place:
        """Where ``node`` lies, and on which sides the grid goes on."""
        window = self.window(node)
        height, width = self.shape
        sides = Sides(
            north=window.y > 0,
            south=window.y + window.height < height,
            west=window.x > 0,
            east=window.x + window.width < width,
        )
        return Place(node, window, sides, self.shape)

    def children(self, node: Node) -> list[Node]:
        """The children of ``node`` that meet the grid, in z-order."""
        below = (Node(node.level - 1, 4 * node.z + i) for i in range(4))
        return [child for child in below if self.window(child).size]

    def nodes(self, level: int, within: Node | None = None) -> Iterator[Node]:
        """The nodes of a level (those below ``within``), in z-order."""
        top = self.root if within is None else within
        if top.level <= level:
            yield top
            return
        for child in self.children(top):
            yield from self.nodes(level, child)

    def count(self, level: int) -> int:
        """How many nodes a level has, without listing them."""
        side = self.tile << level
        return -(-self.shape[0] // side) * -(-self.shape[1] // side)
