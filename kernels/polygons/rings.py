"""Boundaries of the regions of a tile, and rings made of them.

A region is a set of cells of one label that are connected by their sides. Its boundary consists of
the sides of its cells beyond which there is another label or nodata, walked with the region on the
left: along the south side of a cell to the east, along the east side to the north, and so on. From
the end of a side the boundary turns left, around the same cell, if the cell ahead on the left is of
another label; else it goes straight on, along that cell, if the cell ahead on the right is of
another label; else it turns right, around that one. So at a corner where cells of the label touch
diagonally the boundary stays with its cell.

A *side* is a cell times 4, plus 0 for its south side, 1 east, 2 north, 3 west. A *corner* is the
row-major index of its place among the corners of the grid's cells, of which a row has one more than
the grid has columns. Rings list the corners at which the boundary turns.

Walks depend on nothing but the cells, so neither do rings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.kernels.label.union_find import find_root
from orograph.tiles.arrays import Array, Integers

NONE = -1


class Boundaries(NamedTuple):
    """Boundaries of the regions of a tile, cut where they lead to cells beyond it."""

    corners: Integers
    """Corners of all walks, one walk after the other."""
    starts: Integers
    """Place in ``corners`` at which each walk begins, and the end of the last one."""
    first: Integers
    """The side of the grid with which each begins."""
    onward: Integers
    """The side of the grid on which each goes on, which is its first one where it is closed."""
    region: Integers
    """The number of its region in the tile, from 0."""


@compiled
def number_regions(cells: Array, there: Array, numbers: Array, first: Integers) -> int:
    """Number the regions of a tile in the order of their first cells; return how many there are.

    cells, there : (h, w), the labels, and which cells have one.
    numbers : (h, w) int64; becomes the number of each cell's region from 0, -1 without one.
    first : (h * w,); becomes the first cell of each region.
    """
    height, width = cells.shape
    parent = first  # no longer needed when first cells are written, in the same order
    count = 0
    for y in range(height):
        for x in range(width):
            if not there[y, x]:
                numbers[y, x] = NONE
                continue
            up = y > 0 and there[y - 1, x] and cells[y - 1, x] == cells[y, x]
            left = x > 0 and there[y, x - 1] and cells[y, x - 1] == cells[y, x]
            if up and left:
                a, b = find_root(parent, numbers[y - 1, x]), find_root(parent, numbers[y, x - 1])
                numbers[y, x] = min(a, b)
                parent[max(a, b)] = min(a, b)
            elif up:
                numbers[y, x] = numbers[y - 1, x]
            elif left:
                numbers[y, x] = numbers[y, x - 1]
            else:
                numbers[y, x] = count
                parent[count] = count
                count += 1
    names = np.empty(count, np.int64)
    regions = 0
    for i in range(count):
        # The root of a set is its smallest number, so it has been named before all others.
        root = find_root(parent, i)
        if root == i:
            names[i] = regions
            regions += 1
        else:
            names[i] = names[root]
    found = 0
    for y in range(height):
        for x in range(width):
            if numbers[y, x] >= 0:
                numbers[y, x] = names[numbers[y, x]]
                # Names follow the first cells of regions, so a new name means a first cell.
                if numbers[y, x] == found:
                    first[found] = y * width + x
                    found += 1
    return regions


@compiled(inline=True)
def _walk_on(cells, there, i, side, ahead, right):
    """Return the cell and the side on which a boundary goes on."""
    label = cells[i]
    a = i + ahead[side]
    if not there[a] or cells[a] != label:
        return i, (side + 1) % 4
    b = a + right[side]
    if not there[b] or cells[b] != label:
        return a, side
    return b, (side + 3) % 4


@compiled(inline=True)
def _comes_from(cells, there, i, side, ahead, right):
    """Return the cell from which a boundary comes."""
    label = cells[i]
    q = i - ahead[side]
    if not there[q] or cells[q] != label:
        return i
    r = q + right[side]
    if not there[r] or cells[r] != label:
        return q
    return r


@compiled(inline=True)
def _is_inside(cells, there, i, across):
    """Return whether all four neighbours of a cell have its label."""
    label = cells[i]
    same = (cells[i - 1] == label) & (cells[i + 1] == label)
    same &= (cells[i - across] == label) & (cells[i + across] == label)
    return same & there[i - 1] & there[i + 1] & there[i - across] & there[i + across]


@compiled
def _grown(array, count):
    if count < array.size:
        return array
    larger = np.empty(2 * array.size, np.int64)
    larger[: array.size] = array
    return larger


@compiled
def _trace(cells, there, height, width, top, left, columns, numbers):
    """Walk along all boundaries of the inner cells of a tile with a ring around it."""
    across = width + 2
    ahead = np.array([1, -across, -1, across])
    right = np.array([across, 1, -across, -1])
    down, east = np.array([1, 0, 0, 1]), np.array([1, 1, 0, 0])
    seen = np.zeros(cells.size, np.uint8)
    corners, walks = np.empty(1024, np.int64), np.empty(1024, np.int64)
    starts = np.zeros(1024, np.int64)
    count = done = 0
    # first those that come from beyond the tile, then what is left, which is closed
    for closed in range(2):
        for y in range(1, height + 1):
            for x in range(1, width + 1):
                i = y * across + x
                if not closed and 1 < x < width and 1 < y < height:
                    continue
                if not there[i] or _is_inside(cells, there, i, across):
                    continue
                for side in range(4):
                    beyond = i + right[side]
                    if seen[i] >> side & 1 or (there[beyond] and cells[beyond] == cells[i]):
                        continue
                    if not closed:
                        # A walk that comes from a cell of the tile begins further back.
                        before = _comes_from(cells, there, i, side, ahead, right)
                        v, u = before // across, before % across
                        if 0 < v <= height and 0 < u <= width:
                            continue
                    j, k = i, side
                    walks = _grown(walks, 3 * count + 2)
                    walks[3 * count] = ((y - 1 + top) * columns + x - 1 + left) * 4 + side
                    while True:
                        seen[j] |= 1 << k
                        n, m = _walk_on(cells, there, j, k, ahead, right)
                        v, u = j // across - 1 + top, j % across - 1 + left
                        # Corners are listed only where the boundary turns.
                        if m != k:
                            corners = _grown(corners, done)
                            corners[done] = (v + down[k]) * (columns + 1) + u + east[k]
                            done += 1
                        j, k = n, m
                        v, u = j // across, j % across
                        if not (0 < v <= height and 0 < u <= width) or seen[j] >> k & 1:
                            break
                    walks[3 * count + 1] = ((v - 1 + top) * columns + u - 1 + left) * 4 + k
                    walks[3 * count + 2] = numbers[y - 1, x - 1]
                    count += 1
                    starts = _grown(starts, count)
                    starts[count] = done
    return corners[:done].copy(), starts[: count + 1].copy(), walks[: 3 * count].copy()


def trace_boundaries(
    cells: Array, there: Array, top: int, left: int, columns: int, numbers: Integers
) -> Boundaries:
    """Walk along the boundaries of the regions of a tile.

    Parameters
    ----------
    cells, there : (h + 2, w + 2)
        The labels, and which cells have one, of a tile and of the cells around it.
    top, left : int
        The place of the tile in the grid.
    columns : int
        Of the grid.
    numbers : (h, w) int64
        The region of each cell, by `number_regions`.
    """
    height, width = numbers.shape
    corners, starts, walks = _trace(
        cells.reshape(-1), there.reshape(-1), height, width, top, left, columns, numbers
    )
    return Boundaries(corners, starts, *walks.reshape(-1, 3).T)


@compiled
def join_walks(
    corners: Integers, starts: Integers, onward: Integers, joined: Integers, ends: Integers
) -> tuple[int, int]:
    """Join walks to closed ones; return how many there are, and of how many corners.

    onward : the walk on which each goes on.
    joined : as large as ``corners``; becomes the corners of the closed walks, each of which begins
        with the first of its walks in their order.
    ends : (walks, 2); becomes the end of each closed walk in ``joined``, and its first walk.
    """
    seen = np.zeros(onward.size, np.bool_)
    count = done = 0
    for first in range(onward.size):
        if seen[first]:
            continue
        i = first
        while not seen[i]:
            seen[i] = True
            size = starts[i + 1] - starts[i]
            joined[done : done + size] = corners[starts[i] : starts[i + 1]]
            done += size
            i = onward[i]
        ends[count, 0], ends[count, 1] = done, first
        count += 1
    return count, done


@compiled
def split_rings(
    corners: Integers, ends: Integers, columns: int, rings: Integers, found: Integers
) -> int:
    """Cut closed walks where they touch themselves; return the number of rings.

    A ring passes no corner twice. It begins with its first corner, row-major.

    corners, ends : as by `join_walks`; of ``ends`` a row for each closed walk.
    columns : of the grid.
    rings : as large as ``corners``; becomes the corners of the rings.
    found : (corners // 4, 3); becomes for each ring its end in ``rings``, its walk, and twice its
        area in cells, less than 0 where it is a hole.
    """
    stack = np.empty(corners.size, np.int64)
    count = done = begin = 0
    for walk in range(ends.shape[0]):
        end = ends[walk, 0]
        order = np.argsort(corners[begin:end])
        # a corner is passed at most twice: where it was first, and its place in the stack
        before, placed = np.full((2, end - begin), NONE)
        for n in range(1, order.size):
            one, other = order[n - 1], order[n]
            if corners[begin + one] == corners[begin + other]:
                before[max(one, other)] = min(one, other)
        height = 0
        for k in range(begin, end + 1):
            # where a corner is passed again, what lies between is a ring; at last all that is left
            low = 0 if k == end else height
            if k < end and before[k - begin] >= 0:
                low = placed[before[k - begin]]
            if low < height:
                size = height - low
                least = low + np.argmin(stack[low:height])
                area = 0
                for n in range(size):
                    own = stack[low + (least - low + n) % size]
                    after = stack[low + (least - low + n + 1) % size]
                    rings[done + n] = own
                    y, x = own // (columns + 1), own % (columns + 1)
                    v, u = after // (columns + 1), after % (columns + 1)
                    # Twice the area by the shoelace formula; its sign tells outer rings from holes.
                    area += u * y - x * v
                done += size
                found[count, 0], found[count, 1], found[count, 2] = done, walk, area
                count += 1
                height = low
            if k < end:
                stack[height] = corners[k]
                placed[k - begin] = height
                height += 1
        begin = end
    return count


@compiled
def match_runs(
    first: Integers, last: Integers, other_first: Integers, other_last: Integers
) -> Integers:
    """Return the pairs of runs of two sorted lists that overlap, shape (n, 2)."""
    pairs = np.empty((first.size + other_first.size, 2), np.int64)
    count = i = j = 0
    while i < first.size and j < other_first.size:
        if first[i] <= other_last[j] and other_first[j] <= last[i]:
            pairs[count, 0], pairs[count, 1] = i, j
            count += 1
        # Of two runs the one that ends first meets none of those that follow.
        if last[i] < other_last[j]:
            i += 1
        else:
            j += 1
    return pairs[:count].copy()


def compile_kernels(dtype: np.dtype[Any]) -> None:
    """Compile, or load from the cache, the functions for tiles of a dtype and for their rings."""
    cells, there = np.zeros((3, 3), dtype), np.zeros((3, 3), np.bool_)
    there[1, 1] = True
    numbers = np.empty((1, 1), np.int64)
    number_regions(cells[1:-1, 1:-1], there[1:-1, 1:-1], numbers, np.empty(1, np.int64))
    number_regions(cells[:1, :1].copy(), there[1:-1, 1:-1].copy(), numbers, np.empty(1, np.int64))
    found = trace_boundaries(cells, there, 0, 0, 1, numbers)
    joined, ends = np.empty_like(found.corners), np.empty((1, 2), np.int64)
    join_walks(found.corners, found.starts, np.zeros(1, np.int64), joined, ends)
    split_rings(joined, ends, 1, joined.copy(), np.empty((1, 3), np.int64))
    one = np.zeros(1, np.int64)
    match_runs(one, one, one, one)
