"""Basins and saddles of a tile join its cells as all of its edges do."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_terrain import neighbours

from orograph.kernels.terrain.basins import FIRST_OF_GROUPS, tile_basins

RING = ((0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1))


def cells_joined(lower: int, connectivity: int) -> list[set[int]]:
    """The groups of lower neighbours, by steps among themselves."""
    cells = {RING[i]: i for i in range(8) if lower >> i & 1}
    groups: list[set[int]] = []
    while cells:
        stack = [next(iter(cells))]
        group = set()
        while stack:
            cell = stack.pop()
            if cell in cells:
                group.add(cells.pop(cell))
                stack += [
                    other
                    for other in cells
                    if max(abs(other[0] - cell[0]), abs(other[1] - cell[1])) == 1
                    and (connectivity == 8 or abs(other[0] - cell[0]) + abs(other[1] - cell[1]) < 2)
                ]
        groups.append(group)
    return groups


@pytest.mark.parametrize("connectivity", [4, 8])
def test_the_first_of_each_group_of_lower_neighbours_is_known(connectivity: int) -> None:
    for lower in range(256):
        groups = cells_joined(lower, connectivity)
        if connectivity == 4:
            groups = [{i for i in group if i % 2 == 0} for group in groups]
        expected = sum(1 << min(group) for group in groups if group)
        assert FIRST_OF_GROUPS[connectivity][lower] == expected


@pytest.mark.parametrize("upside_down", [False, True])
@pytest.mark.parametrize("connectivity", [4, 8])
def test_basins_lead_down_to_their_pits(connectivity: int, upside_down: bool) -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        shape = tuple(rng.integers(1, 15, 2).tolist())
        heights = rng.integers(0, 9, shape).astype(np.int16)
        tile = tile_basins(heights, 0, connectivity, upside_down)
        sign = -1 if upside_down else 1
        order = {c: (sign * int(heights[c]), c) for c in np.ndindex(shape) if heights[c]}
        pits = [c for c in order if all(order.get(n, order[c]) >= order[c]
                                        for n in neighbours(c, shape, connectivity))]  # fmt: skip
        assert tile.pits.tolist() == [y * shape[1] + x for y, x in pits]
        assert (tile.labels > 0).tolist() == (heights != 0).tolist()
        for cell in order:
            if cell not in pits:
                lower = [n for n in neighbours(cell, shape, connectivity)
                         if n in order and order[n] < order[cell]]  # fmt: skip
                assert tile.labels[cell] in {tile.labels[n] for n in lower}
