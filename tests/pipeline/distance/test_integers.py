"""Distances in int64: in the units of the user, exact, against Dijkstra in Python's integers."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import orograph as og
from orograph.cli.main import main

SHAPE = 23, 31
KNIGHTS = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]
STEPS = {
    4: [(0, 1), (1, 0), (0, -1), (-1, 0)],
    16: [*((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if y or x), *KNIGHTS],
}
Cell = tuple[int, int]


def friction_of(unit: int = 2, seed: int = 0) -> np.ndarray:
    """Return multiples of a unit, with plains of cost zero, and barriers of -1."""
    rng = np.random.default_rng(seed)
    friction = unit * rng.integers(0, 5, SHAPE)
    friction[rng.random(SHAPE) < 0.2] = -1
    friction[0, 0] = friction[-1, -1] = unit
    return friction


def dijkstra(
    friction: np.ndarray,
    starts: dict[Cell, int],
    connectivity: int = 4,
    side: int = 1,
    links: Iterable[tuple[Cell, Cell, int]] = (),
    max_cost: float = math.inf,
) -> np.ndarray:
    """Return the least costs as a contract in fractions says them; -1 where unreached."""
    cells = friction.tolist()
    ways: dict[Cell, list[tuple[Cell, int]]] = {}
    for one, other, weight in links:
        ways.setdefault(one, []).append((other, weight))
        ways.setdefault(other, []).append((one, weight))
    found: dict[Cell, int] = {}
    heap = [(cost, cell) for cell, cost in starts.items()]
    heapq.heapify(heap)
    while heap:
        cost, cell = heapq.heappop(heap)
        if cell in found or cost > max_cost:
            continue
        found[cell] = cost
        y, x = cell
        for dy, dx in STEPS[connectivity]:
            passed = [cell, (y + dy, x + dx)]
            if abs(dy) == 2:
                passed += [(y + dy // 2, x), (y + dy // 2, x + dx)]
            elif abs(dx) == 2:
                passed += [(y, x + dx // 2), (y + dy, x + dx // 2)]
            inside = all(0 <= i < SHAPE[0] and 0 <= j < SHAPE[1] for i, j in passed)
            if not inside or any(cells[i][j] < 0 for i, j in passed):
                continue
            length = int(np.hypot(dy * float(side), dx * float(side)))
            step = Fraction(sum(cells[i][j] for i, j in passed), len(passed)) * length
            assert step.denominator == 1
            heapq.heappush(heap, (cost + int(step), passed[1]))
        for end, weight in ways.get(cell, ()):
            heapq.heappush(heap, (cost + weight, end))
    costs = np.full(SHAPE, -1, np.int64)
    for cell, cost in found.items():
        costs[cell] = cost
    return costs


HOW: dict[str, Any] = {"dtype": "int64", "connectivity": 4, "nodata": -1}


@pytest.mark.diagonal
@pytest.mark.parametrize("backend", ["numba", "cuda"])
@pytest.mark.parametrize("max_cost", [math.inf, 40, 41.5])
def test_costs_are_those_of_the_frictions(
    backend: str, max_cost: float, request: pytest.FixtureRequest
) -> None:
    if backend == "cuda":
        request.getfixturevalue("emulated_gpu")
    friction, start = friction_of(), [3, 0]
    sources = [(0, 0), (SHAPE[1] - 1, SHAPE[0] - 1)]
    weights = [(sources[0][::-1], (9, 9), 7), ((9, 9), (20, 4), 0)]
    friction[9, 9] = friction[20, 4] = 2
    edges = np.array([[y * SHAPE[1] + x for y, x in ends] for *ends, _ in weights]).T
    matrix = scipy.sparse.coo_array(([7, 1], tuple(edges)), shape=(friction.size,) * 2)
    matrix.data[1] = 0
    graph = og.read_graph(matrix, directed=False)
    expected = dijkstra(
        friction, {(0, 0): 3, (SHAPE[0] - 1, SHAPE[1] - 1): 0}, links=weights, max_cost=max_cost
    )
    how = {**HOW, "max_cost": max_cost, "initial_cost": start, "links": graph, "backend": backend}
    for tile in (40, 5):
        with og.config.set(field=0):
            result = og.cost_distance(friction, sources, tile=tile, **how)
        np.testing.assert_array_equal(result["cost"].values, expected, strict=True)


@pytest.mark.parametrize("backend", ["numba", "cuda"])
def test_sixteen_neighbours_take_means_of_two_and_of_four(
    backend: str, request: pytest.FixtureRequest
) -> None:
    """Of such a side all lengths are whole in float64; of no small one they are."""
    if backend == "cuda":
        request.getfixturevalue("emulated_gpu")
    friction, side = friction_of(unit=4).clip(-1, 4), 2**53
    result = og.cost_distance(
        friction, [(0, 0)], **{**HOW, "connectivity": 16}, cell_size=side, tile=9, backend=backend
    )
    expected = dijkstra(friction, {(0, 0): 0}, connectivity=16, side=side)
    np.testing.assert_array_equal(result["cost"].values, expected, strict=True)


def test_bounds_and_initial_costs_beyond_float64_are_exact() -> None:
    friction = np.full((1, 3), 2)
    how = {"dtype": "int64", "connectivity": 4, "initial_cost": 2**53 + 1}
    whole = og.cost_distance(friction, [(0, 0)], **how)
    assert whole["cost"].values.tolist() == [[2**53 + 1, 2**53 + 3, 2**53 + 5]]
    bounded = og.cost_distance(friction, [(0, 0)], max_cost=2**53 + 3, **how)
    assert bounded["cost"].values.tolist() == [[2**53 + 1, 2**53 + 3, -1]]
    less = og.cost_distance(friction, [(0, 0)], max_cost=2**53 + 2, **how)
    assert less["cost"].values.tolist() == [[2**53 + 1, -1, -1]]


def test_paths_and_corridors_cost_what_the_frictions_say() -> None:
    friction = friction_of(seed=3)
    ends = [(0, 0), (SHAPE[1] - 1, SHAPE[0] - 1)]
    both = [
        og.cost_distance(friction, [end], outputs=("cost", "back_direction"), tile=8, **HOW)
        for end in ends
    ]
    expected = int(dijkstra(friction, {(0, 0): 0})[-1, -1])
    assert expected > 0
    (path,) = og.least_cost_path(both[0], [ends[1]])
    assert (path.cost, type(path.cost)) == (expected, int)
    cells = [friction[tuple(cell)] for cell in path.cells]
    assert sum(a + b for a, b in pairwise(cells)) == 2 * expected
    corridor = og.corridor(*both)
    assert corridor.dtype == np.int64
    assert corridor.values[corridor.values >= 0].min() == expected


def test_an_index_has_the_costs_of_the_frictions(tmp_path: Path) -> None:
    friction = friction_of(seed=4)
    index = og.DistanceIndex.build(friction, tmp_path / "i", block=4, levels=1, **HOW)
    for _ in range(2):
        reached = np.argwhere(dijkstra(friction, {(0, 0): 0}) >= 0)
        points = [(0, 0), *(tuple(cell[::-1].tolist()) for cell in reached[::71])]
        table = np.array(
            [[dijkstra(friction, {one[::-1]: 0})[to[::-1]] for to in points] for one in points]
        )
        np.testing.assert_array_equal(index.distance_matrix(points).values, table, strict=True)
        near = index.nearest(points, 1)["cost"].values[:, 0]
        others = np.where(np.eye(len(points), dtype=bool), 2**60, table)
        np.testing.assert_array_equal(near, others.min(axis=1), strict=True)
        path = index.path(points[0], points[-1])
        assert (path.cost, type(path.cost)) == (table[0, -1], int)
        field = index.query([(0, 0)])["cost"].values
        np.testing.assert_array_equal(field, dijkstra(friction, {(0, 0): 0}), strict=True)
        new = np.array([[8, 2, 4], [0, 6, 2]])
        index.update((0, 0, 2, 3), new)
        friction[:2, :3] = new
    with pytest.raises(og.InputError, match=r"friction: 3 at row 5, column 7; .*multiple of 2"):
        index.update((5, 6, 1, 2), np.array([[4, 3]]))


def odd(*cells: tuple[int, int, int]) -> np.ndarray:
    friction = friction_of(unit=4)
    for y, x, value in cells:
        friction[y, x] = value
    return friction


@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32"])
def test_the_first_friction_that_is_no_multiple_is_named(dtype: str, tmp_path: Path) -> None:
    friction = odd((9, 20, 5), (10, 2, 3), (22, 0, 1))
    nodata = 255 if dtype == "uint8" else -1
    friction = np.where(friction == -1, nodata, friction).astype(dtype)
    how = {**HOW, "nodata": nodata}
    says = r"friction: 5(\.0)? at row 9, column 20; with dtype='int64' it must be a multiple of 2"
    with pytest.raises(og.InputError, match=says):
        og.cost_distance(friction, [(0, 0)], **how)
    with pytest.raises(og.InputError, match=says):
        og.DistanceIndex.build(friction, tmp_path / "i", **how)
    store = tmp_path / "friction.zarr"
    og.ingest(friction, store, tile=4, shard=8, nodata=nodata)
    with pytest.raises(og.InputError, match=says):
        og.cost_distance(store, [(0, 0)], out=tmp_path / "c.zarr", **how)
    quarter = {**HOW, "connectivity": 16, "cell_size": 2**53}
    with pytest.raises(og.InputError, match=r"friction: 2.*column 3; .*multiple of 4"):
        og.cost_distance(odd((2, 3, 2)).clip(-1, 4), [(0, 0)], **quarter)


def test_the_shell_counts_in_the_units_of_the_frictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    og.ingest(np.full((1, 5), 4), tmp_path / "f.zarr")
    files = str(tmp_path / "f.zarr"), str(tmp_path / "c.zarr")
    options = ["--point", "0", "0", "--dtype", "int64", "--connectivity", "4", "--max-cost", "12"]
    assert main(["cost", *files, *options, "--workers", "1"]) == 0
    assert og.open(files[1])["cost"].values.tolist() == [[0, 4, 8, 12, -1]]
    og.ingest(np.full((1, 5), 3), tmp_path / "f.zarr", overwrite=True)
    assert main(["cost", *files, *options, "--workers", "1", "--overwrite"]) == 2
    said = capsys.readouterr().err
    assert re.search("orograph: friction: 3 at row 0, column 0; .*must be a multiple of 2", said)
