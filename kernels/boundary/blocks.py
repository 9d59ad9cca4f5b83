"""Boundary matrices of the blocks of an index: by elimination up to a size, then merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from orograph.kernels.boundary.dissection import Rectangle
from orograph.kernels.boundary.elimination import BlockCosts, boundary_matrix
from orograph.kernels.boundary.merge import merge_blocks

Array = npt.NDArray[Any]


def solve_blocks(
    costs: BlockCosts, parts: Sequence[Rectangle], block: int
) -> Iterator[tuple[int, Array]]:
    """The boundary matrices of parts of a raster, one after the other.

    Parameters
    ----------
    costs : BlockCosts
        Of the raster.
    parts : sequence of Rectangle
        Counted without the halo.
    block : int
        Cells a side up to which elimination is used; larger parts are merged from such blocks as
        the quadtree has it.

    Yields
    ------
    int
        Place in ``parts``; in whatever order.
    (n, n) array
        As `orograph.kernels.boundary.elimination.boundary_matrix`.
    """
    for number, part in enumerate(parts):
        yield number, block_matrix(costs, part, block)


def block_matrix(costs: BlockCosts, part: Rectangle, block: int) -> Array:
    """The boundary matrix of one part."""
    return _solve(costs, part, block)[1]


def _solve(costs: BlockCosts, part: Rectangle, block: int) -> tuple[Rectangle, Array]:
    top, left, height, width = part
    if max(height, width) <= block:
        return part, boundary_matrix(costs, part)
    # cut where the quadtree does; of a quadrant's two cuts the one across the longer side first
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
