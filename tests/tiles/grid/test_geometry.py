"""Quadtree, borders and seams: pure geometry, against definitions spelt out cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orograph.tiles.grid.border import DIRECTION_STEPS, border_cells, join_borders, seam_edges
from orograph.tiles.grid.quadtree import Node, Quadtree, Sides, morton_decode, morton_encode
from orograph.tiles.grid.window import Window

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@given(st.integers(0, 2**31), st.integers(0, 2**31))
def test_morton_codes_go_there_and_back(row: int, column: int) -> None:
    assert morton_decode(morton_encode(row, column)) == (row, column)


def test_morton_order_has_the_row_in_its_lowest_bit() -> None:
    assert [morton_decode(z) for z in range(4)] == [(0, 0), (1, 0), (0, 1), (1, 1)]


@given(SHAPES, st.integers(1, 45))
def test_every_level_covers_each_cell_once(shape: tuple[int, int], tile: int) -> None:
    tree = Quadtree(shape, tile)
    for level in range(tree.root.level + 1):
        seen = np.zeros(shape, int)
        nodes = list(tree.nodes(level))
        for node in nodes:
            seen[tree.window(node).slices] += 1
        assert (seen == 1).all()
        assert nodes == sorted(nodes, key=lambda node: node.z)
        assert len(nodes) == tree.count(level)


@given(SHAPES, st.integers(1, 45))
def test_children_tile_their_parent(shape: tuple[int, int], tile: int) -> None:
    tree = Quadtree(shape, tile)
    for level in range(1, tree.root.level + 1):
        for node in tree.nodes(level):
            children = tree.children(node)
            assert sum(tree.window(c).size for c in children) == tree.window(node).size
            assert all(c.z // 4 == node.z and c.level == level - 1 for c in children)


def test_a_grid_of_more_than_two_to_the_31_cells_has_exact_windows() -> None:
    tree = Quadtree((100_000, 3_000_000), 4096)
    window = tree.window(Node(0, morton_encode(24, 732)))
    assert window == Window(24 * 4096, 732 * 4096, 100_000 - 24 * 4096, 3_000_000 - 732 * 4096)


@given(
    st.integers(1, 9), st.integers(1, 9), st.tuples(*[st.booleans()] * 4).map(lambda s: Sides(*s))
)
def test_border_cells_are_those_of_the_open_sides(height: int, width: int, sides: Sides) -> None:
    y, x = np.indices((height, width))
    touches = np.zeros((height, width), bool)
    touches |= sides.north & (y == 0)
    touches |= sides.south & (y == height - 1)
    touches |= sides.west & (x == 0)
    touches |= sides.east & (x == width - 1)
    assert border_cells(height, width, sides).tolist() == np.flatnonzero(touches).tolist()


@given(height=st.integers(1, 20), width=st.integers(1, 20), tile=st.integers(1, 7))
def test_borders_of_children_are_joined_in_row_order(height: int, width: int, tile: int) -> None:
    tree = Quadtree((height, width), tile)
    for level in range(1, tree.root.level + 1):
        for node in tree.nodes(level):
            window, children = tree.window(node), list(map(tree.place, tree.children(node)))
            cells, positions = join_borders(window, children)
            assert sorted(cells.tolist()) == cells.tolist()
            assert sorted(np.concatenate(positions).tolist()) == list(range(cells.size))
            for child, position in zip(children, positions, strict=True):
                own = border_cells(*child.window.shape, child.sides)
                y, x = np.divmod(own, child.window.width)
                there = np.divmod(cells[position], window.width)
                assert (there[0] + window.y).tolist() == (y + child.window.y).tolist()
                assert (there[1] + window.x).tolist() == (x + child.window.x).tolist()


@pytest.mark.parametrize("connectivity", [4, 8])
@given(height=st.integers(1, 8), width=st.integers(1, 8), data=st.data())
def test_seams_are_the_edges_between_children(
    connectivity: int, height: int, width: int, data: st.DataObject
) -> None:
    row, column = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    first, second, direction = seam_edges(height, width, (row, column), connectivity)
    found = sorted(zip(first.tolist(), second.tolist(), direction.tolist(), strict=True))
    expected = []
    for y in range(height):
        for x in range(width):
            for d, (dy, dx) in enumerate(DIRECTION_STEPS):
                v, u = y + dy, x + dx
                if connectivity == 4 and d in (1, 3):
                    continue
                if not (v < height and 0 <= u < width):
                    continue
                if (y < row, x < column) != (v < row, u < column):
                    expected.append((y * width + x, v * width + u, d))
    assert found == sorted(expected)
