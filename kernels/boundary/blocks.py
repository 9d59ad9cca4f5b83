"""Boundary matrices of the blocks of an index: elimination up to a block size, then merging."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.elimination import BlockCosts, boundary_matrix
from orograph.kernels.boundary.merge import merge_blocks
from orograph.tiles.arrays import Array


def solve_blocks(
    costs: BlockCosts, parts: Sequence[Rectangle], block: int
) -> Iterator[tuple[int, Array]]:
    """Yield the boundary matrices of parts of a raster.

    Parameters
    ----------
    costs : BlockCosts
        The raster and its cost rules.
    parts : sequence of Rectangle
        In coordinates without the halo.
    block : int
        Largest side, in cells, of a block that is solved by elimination. Larger parts are merged
        from such blocks, cut as in the quadtree.

    Yields
    ------
    int
        Index in ``parts``; in any order.
    (n, n) array
        As from `orograph.kernels.boundary.elimination.boundary_matrix`.
    """
    for number, part in enumerate(parts):
        yield number, block_matrix(costs, part, block)


def block_matrix(costs: BlockCosts, part: Rectangle, block: int) -> Array:
    """Return the boundary matrix of one part."""
    return _solve(costs, part, block)[1]


def _solve(costs: BlockCosts, part: Rectangle, block: int) -> tuple[Rectangle, Array]:
    top, left, height, width = part
    if max(height, width) <= block:
        return part, boundary_matrix(costs, part)
    # cut as in the quadtree, first across the longer side
    half = block
    while 2 * half < max(height, width):
        half *= 2
    if height >= width:
        first = Rectangle(top, left, half, width)
        second = Rectangle(top + half, left, height - half, width)
    else:
        first = Rectangle(top, left, height, half)
        second = Rectangle(top, left + half, height, width - half)
    return merge_blocks(costs, _solve(costs, first, block), _solve(costs, second, block))
