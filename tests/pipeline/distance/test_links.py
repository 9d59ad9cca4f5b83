"""Links over a raster: roads, bridges and ferries as edges between its cells."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import oracle_distance as oracle
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_raster import Gate, WatchedRaster, called, mortal_cluster, wait_until

import orograph as og
from orograph.engines.frontier import driver
from orograph.engines.frontier.worker import visit_tiles
from orograph.run.shared_data import load

ALL = ("cost", "back_direction", "allocation")
BY_LINK = 17
REAL = {"int64": np.int64, "float32": np.float32, "float64": np.float64}


def graph_of(edges: Any, weight: Any, size: int, directed: bool) -> og.Graph:
    """A graph whose ids are numbers of cells."""
    matrix = scipy.sparse.coo_array((weight, tuple(np.transpose(edges))), shape=(size, size))
    return og.read_graph(matrix, directed=directed)


def union(
    friction: np.ndarray, edges: np.ndarray, weight: np.ndarray, directed: bool, **given: Any
) -> list[oracle.Steps]:
    """The steps of the grid and along links: of several between two cells the cheapest."""
    steps = oracle.list_steps(friction, **given)
    if given.get("travel") == "to":
        edges = edges[:, ::-1]
    ways = edges if directed else np.concatenate([edges, edges[:, ::-1]])
    costs = np.resize(weight, len(ways)).astype(steps[0].weight.dtype)
    steps.append(oracle.Steps(BY_LINK, *ways.T, costs))
    tail, head, weight = (
        np.concatenate([getattr(s, name) for s in steps]) for name in ("tail", "head", "weight")
    )
    order = np.lexsort((weight, head, tail))
    order = order[(tail != head)[order]]
    first = np.append(True, np.diff(tail[order] * friction.size + head[order]) != 0)[: order.size]
    return [oracle.Steps(0, *(values[order[first]] for values in (tail, head, weight)))]


def trace(result: xr.Dataset, row: int, column: int) -> list[tuple[int, int]]:
    (path,) = og.least_cost_path(result, [(column, row)])
    return [tuple(cell) for cell in path.cells.tolist()]


def assert_is(
    result: xr.Dataset,
    steps: list[oracle.Steps],
    sources: list[oracle.Source],
    max_cost: float = np.inf,
) -> None:
    """Cost and allocation to the bit, and each path back: its steps, its length, its sum."""
    cost, code = result["cost"].values, result["back_direction"].values
    known = oracle.heap_distance(steps, cost.shape, sources, cost.dtype.type)
    known[known > max_cost] = -1
    if cost.dtype.kind == "f":
        known[known < 0] = np.nan
    np.testing.assert_array_equal(cost, known)
    floats = np.where(known < 0, np.nan, known) if known.dtype.kind == "i" else known
    expected = oracle.cost_distance(steps, cost.shape, sources, cost=floats)
    np.testing.assert_array_equal(result["allocation"].values, expected.allocation)
    np.testing.assert_array_equal(code == oracle.UNREACHED, expected.hops < 0)
    np.testing.assert_array_equal(result["back_link"].values >= 0, code == BY_LINK)
    (all_steps,) = steps
    least = dict(zip(zip(all_steps.tail.tolist(), all_steps.head.tolist()), all_steps.weight))
    width = cost.shape[1]
    reached = np.argwhere(expected.hops >= 0)
    for row, column in reached[:: 1 + len(reached) // 300].tolist():
        cells = [y * width + x for y, x in trace(result, row, column)]
        assert len(cells) == expected.hops[row, column] + 1
        for head, tail in pairwise(cells):
            rounded = cost.dtype.type
            assert cost.flat[head] == rounded(cost.flat[tail] + rounded(least[tail, head]))
        assert cells[-1] in {y * width + x for y, x, _, _ in sources}


def assert_same(result: xr.Dataset, other: xr.Dataset) -> None:
    assert set(result.data_vars) == set(other.data_vars)
    for name in result.data_vars:
        np.testing.assert_array_equal(result[name].values, other[name].values, name)
    assert result.attrs["reached_cells"] == other.attrs["reached_cells"]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(st.tuples(st.integers(1, 14), st.integers(2, 14)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    friction = 2.0 * rng.integers(0, 8, shape)
    friction[rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 0.6]))] = np.nan
    friction.flat[rng.integers(friction.size)] = 2
    valid = np.flatnonzero(np.isfinite(friction))
    edges = rng.choice(valid, (draw(st.integers(1, 25)), 2))
    weight = rng.integers(0, draw(st.sampled_from([2, 30])), len(edges))
    dtype = draw(st.sampled_from(["float64", "float32", "int64"]))
    if dtype != "int64" and draw(st.booleans()):
        weight = weight / 7
    starts = rng.choice(valid, draw(st.integers(1, 3)))
    return {
        "friction": friction,
        "edges": edges,
        "weight": weight,
        "directed": draw(st.booleans()),
        "sources": [(*divmod(int(n), shape[1]), i, 0.0) for i, n in enumerate(starts)],
        "dtype": dtype,
        "travel": draw(st.sampled_from(["from", "to"])),
        "connectivity": 4 if dtype == "int64" else draw(st.sampled_from([4, 8, 16])),
        "max_cost": draw(st.sampled_from([np.inf, np.inf, 12.0])),
        "tile": draw(st.integers(2, 14)),
        "field": draw(st.sampled_from([0, 8, 2048])),
    }


@given(cases())
@settings(max_examples=30, deadline=None)
def test_any_tiling_gives_the_shortest_paths_of_the_union(case: dict[str, Any]) -> None:
    friction, edges, weight = case["friction"], case["edges"], case["weight"]
    graph = graph_of(edges, weight, friction.size, case["directed"])
    how = {name: case[name] for name in ("dtype", "travel", "connectivity")}
    points = [(x, y) for y, x, _, _ in case["sources"]]
    with og.config.set(field=case["field"]):
        result = og.cost_distance(
            *(friction, points), links=graph, outputs=ALL, tile=case["tile"],
            max_cost=case["max_cost"], **how,
        )  # fmt: skip
    steps = union(friction, edges, weight, case["directed"], **how)
    assert_is(result, steps, case["sources"], case["max_cost"])
    whole = og.cost_distance(
        *(friction, points), links=graph, outputs=ALL, tile=14, max_cost=case["max_cost"], **how
    )
    assert_same(whole, result)


def test_a_tile_that_only_a_link_reaches_is_read_before_the_front_comes_to_it() -> None:
    """Five cells in a row, where a tile is visited only to be read: its key is kept."""
    friction = np.array([[1.0, 5.0, 4.0, 2.0, 2.0]])
    edges = np.array([[3, 2], [2, 4], [1, 4], [3, 0], [1, 4], [2, 0], [3, 3]])
    weight = np.array([1, 0, 0, 1, 0, 1, 0])
    how = {"dtype": "float64", "travel": "from", "connectivity": 4}
    graph = graph_of(edges, weight, 5, False)
    with og.config.set(field=0, threads=2):
        result = og.cost_distance(friction, [(1, 0)], links=graph, outputs=ALL, tile=2, **how)
    assert_is(result, union(friction, edges, weight, False, **how), [(0, 1, 0, 0.0)])


class Misfortunes:
    """What a driver must bear at any moment, at random; each time of one kind or of several."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.often = self.rng.choice([0.1, 0.5, 0.9])
        self.bounds = self.rng.choice([[-1.0, -1.0], [-1.0, 3.0], [0.0, np.inf]])
        self.losses = self.rng.choice([0.0, 0.0, 0.4])

    def befall(self, one: Any, handle: Any, take_back: Any) -> None:
        """Visit tiles that nothing asks for; lose results, and states, or keep these on disk."""
        for tile in np.ndindex(one.keys.shape):
            if one.away[tile] or self.rng.random() > self.often:
                continue
            requests = [replace(r, key=-np.inf) for r in one._take_out([tile])]
            found = visit_tiles(handle, requests, float(self.rng.choice(self.bounds)))
            take_back(one, tile, None if self.rng.random() < self.losses else found[tile])
            if self.rng.random() < self.losses:
                states = load(handle).states
                state = states.cache.take(tile)
                if self.rng.random() < 0.5:
                    states._spill(tile, state)


@given(cases(), st.booleans(), st.integers(0, 2**16))
@settings(max_examples=15, deadline=None)
def test_extra_visits_and_losses_at_any_moment_change_no_bit(
    case: dict[str, Any], linked: bool, seed: int
) -> None:
    """Each visit leaves to the driver all keys that are open, whatever its bound."""
    friction, edges, weight = case["friction"], case["edges"], case["weight"]
    how = {name: case[name] for name in ("dtype", "travel", "connectivity")}
    edges, weight = (edges, weight) if linked else (edges[:0], weight[:0])
    links = graph_of(edges, weight, friction.size, case["directed"]) if linked else None
    points = [(x, y) for y, x, _, _ in case["sources"]]
    misfortunes = Misfortunes(seed)
    settle, take_back = driver._Driver.settle, driver._Driver._take_back
    handles = []

    def settled(self: Any, workers: Any, handle: Any, cancelled: Any) -> None:
        handles.append(handle)
        settle(self, workers, handle, cancelled)

    def taken_back(self: Any, tile: Any, visit: Any) -> None:
        take_back(self, tile, visit)
        misfortunes.befall(self, handles[-1], take_back)

    with pytest.MonkeyPatch.context() as patch, og.config.set(field=0, threads=1):
        patch.setattr(driver._Driver, "settle", settled)
        patch.setattr(driver._Driver, "_take_back", taken_back)
        result = og.cost_distance(
            *(friction, points), links=links, outputs=ALL, tile=max(2, case["tile"] // 2),
            max_cost=case["max_cost"], **how,
        )  # fmt: skip
    if not linked:
        result["back_link"] = result["cost"].copy(data=np.full(friction.shape, -1))
    steps = union(friction, edges, weight, case["directed"], **how)
    assert_is(result, steps, case["sources"], case["max_cost"])


# --- a larger one, whatever does the work -------------------------------------------------


RNG = np.random.default_rng(3)
ISLANDS = RNG.integers(1, 10, (60, 70)).astype(float)
ISLANDS[:, 23:25] = ISLANDS[:, 46] = ISLANDS[31] = np.nan
FERRIES = RNG.choice(np.flatnonzero(np.isfinite(ISLANDS)), (60, 2))
FARES = RNG.integers(1, 60, 60)
SOURCES = [(0, 0, 0, 0.0), (59, 69, 1, 0.0)]
POINTS = [(0, 0), (69, 59)]


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    graph = graph_of(FERRIES, FARES, ISLANDS.size, False)
    result = og.cost_distance(ISLANDS, POINTS, links=graph, outputs=ALL, tile=70)
    assert_is(result, union(ISLANDS, FERRIES, FARES, False), SOURCES)
    return result


def test_scipys_dijkstra_of_the_union_graph_has_the_same_costs(expected: xr.Dataset) -> None:
    (steps,) = union(ISLANDS, FERRIES, FARES, False)
    ways = steps.tail, steps.head
    matrix = scipy.sparse.csr_array((steps.weight, ways), shape=(ISLANDS.size, ISLANDS.size))
    starts = [y * ISLANDS.shape[1] + x for y, x, _, _ in SOURCES]
    cost = scipy.sparse.csgraph.dijkstra(matrix, indices=starts, min_only=True)
    cost[np.isinf(cost)] = np.nan
    np.testing.assert_array_equal(expected["cost"].values.ravel(), cost)


@pytest.mark.diagonal
@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("tile", [7, 33])
def test_threads_and_tiles_change_no_bit(
    tmp_path: Path, expected: xr.Dataset, tile: int, stored: bool
) -> None:
    graph = graph_of(FERRIES, FARES, ISLANDS.size, False)
    out = tmp_path / "cost.zarr" if stored else None
    with og.config.set(field=0):
        result = og.cost_distance(ISLANDS, POINTS, links=graph, outputs=ALL, tile=tile, out=out)
    assert_same(result, expected)
    if out is not None:
        assert_same(og.open(out), expected)
        (path,) = og.least_cost_path(out, [(69, 0)])
        (same,) = og.least_cost_path(expected, [(69, 0)])
        assert path == same


def test_workers_change_no_bit(client: Client, tmp_path: Path, expected: xr.Dataset) -> None:
    og.ingest(ISLANDS, tmp_path / "friction.zarr", tile=8, shard=16)
    graph = graph_of(FERRIES, FARES, ISLANDS.size, False)
    result = og.cost_distance(
        tmp_path / "friction.zarr", POINTS, links=graph, outputs=ALL, client=client,
        out=tmp_path / "cost.zarr",
    )  # fmt: skip
    assert_same(result, expected)


@pytest.mark.long
def test_killed_workers_change_no_bit(tmp_path: Path, expected: xr.Dataset, gate: Gate) -> None:
    """Twice, when a third and two thirds of the tiles are done: a cluster of real processes."""
    og.ingest(ISLANDS, tmp_path / "friction.zarr", tile=8, shard=16)
    graph = graph_of(FERRIES, FARES, ISLANDS.size, False)
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        raster = WatchedRaster(tmp_path / "friction.zarr", tmp_path / "diary.txt", gate=gate)
        run = called(
            gate, og.cost_distance.submit, raster, POINTS, links=graph, outputs=ALL, client=client,
            out=tmp_path / "cost.zarr",
        )  # fmt: skip
        victims: set[int] = set()
        for share in (1 / 3, 2 / 3):
            wait_until(
                gate.until(lambda share=share: run.progress().done >= share * 72),
                lambda: run.status == "running",
            )
            workers = [w.pid for w in cluster.workers.values() if w.pid not in victims]
            victims.add(workers[0])
            os.kill(workers[0], signal.SIGKILL)
            client.wait_for_workers(2)
        gate.open()
        assert_same(run.result(), expected)


def test_a_raster_of_sources_takes_links_too(expected: xr.Dataset) -> None:
    raster = np.full(ISLANDS.shape, -1)
    raster[0, 0], raster[59, 69] = 0, 1
    sources = xr.DataArray(raster + 1, dims=("y", "x"))
    graph = graph_of(FERRIES, FARES, ISLANDS.size, False)
    result = og.cost_distance(ISLANDS, sources, links=graph, outputs=ALL, tile=9)
    np.testing.assert_array_equal(result["cost"], expected["cost"])
    np.testing.assert_array_equal(result["back_link"], expected["back_link"])


# --- where links lead -------------------------------------------------------------------------


def graph_with_an_end_in_the_river() -> og.Graph:
    edge = pd.DataFrame({"source": ["w"], "target": ["e"], "weight": [2]})
    return og.read_graph(edge, coordinates=[[131.0, 19.0], [117.0, 21.0]], directed=False)


def test_vertices_lie_at_their_coordinates_and_paths_name_their_edges() -> None:
    """Two shores, a river of nodata, and a bridge between them that costs 2."""
    friction = np.ones((3, 5))
    friction[:, 2] = np.nan
    axes = {"y": [30.0, 20.0, 10.0], "x": [100.0, 110.0, 120.0, 130.0, 140.0]}
    ground = xr.DataArray(friction, axes, ("y", "x"))
    bridges = pd.DataFrame({"source": ["w", "w"], "target": ["e", "n"], "weight": [2, 99]})
    graph = og.read_graph(
        bridges, coordinates=[[131.0, 19.0], [130.0, 30.0], [111.0, 21.0]], directed=False
    )
    both = ("cost", "back_direction")
    result = og.cost_distance(ground, [(100, 20)], links=graph, outputs=both, cell_size=1)
    assert result["cost"].values[1].tolist()[:2] == [0, 1]
    assert result["cost"].values[1].tolist()[3:] == [3, 4]
    assert result["back_direction"].values[1, 3] == BY_LINK
    assert result["back_link"].values[1, 3] == 0
    assert result["link_x"].values[0].tolist() in ([111, 131], [131, 111])
    (path,) = og.least_cost_path(result, [(140, 20)])
    assert path.cells.tolist() == [[1, 4], [1, 3], [1, 1], [1, 0]]
    # along a link the line leads from where it begins to where it ends
    assert path.coordinates.tolist() == [[140, 20], [130, 20], [110, 20], [100, 20]]
    assert path.line.tolist() == [[140, 20], [131, 19], [111, 21], [100, 20]]
    assert list(path.geometry.coords) == [tuple(point) for point in path.line.tolist()]
    assert path.length == pytest.approx(np.hypot(9, 1) + np.hypot(20, 2) + np.hypot(11, 1))
    assert np.array_equal(og.path_mask([path], ground).values[1], [1, 1, 0, 1, 1])
    # of an end that is moved to another cell it is that cell's centre
    moved = graph_with_an_end_in_the_river()
    result = og.cost_distance(
        ground, [(100, 20)], links=moved, snap=True, outputs=both, cell_size=1
    )
    (path,) = og.least_cost_path(result, [(140, 20)])
    assert path.line.tolist() == [[140, 20], [131, 19], [110, 20], [100, 20]]
    assert path.cost == 4
    east = result.isel(x=slice(3, 5))
    with pytest.raises(og.InputError, match=r"leaves it.*along link 0.*a part of a result"):
        og.least_cost_path(east, [(140, 20)])
    with pytest.raises(og.InputError, match="no back_link"):
        og.least_cost_path(result.drop_vars("back_link"), [(140, 20)])


def test_ends_on_nodata_are_snapped_as_points_are() -> None:
    friction = np.array([[1.0, np.nan, np.nan, 1.0]])
    graph = graph_of([[1, 2]], [5], 4, False)
    with pytest.raises(og.InputError, match=r"links: .*nodata.*snap=True"):
        og.cost_distance(friction, [(0, 0)], links=graph)
    result = og.cost_distance(friction, [(0, 0)], links=graph, snap=1)
    np.testing.assert_array_equal(result["cost"].values, [[0, np.nan, np.nan, 5]])


def test_weights_are_costs_in_integers_too() -> None:
    friction = np.full((1, 4), 2)
    how = {"dtype": "int64", "connectivity": 4}
    graph = graph_of([[0, 3]], [3], 4, False)
    result = og.cost_distance(friction, [(0, 0)], links=graph, **how)
    assert result["cost"].values.tolist() == [[0, 2, 4, 3]]


BAD: dict[str, tuple[Any, Any, str, str]] = {
    "a cell beyond the raster": ([[0, 9]], [1], "float64", "vertex 9 is not a cell.*0 to 3"),
    "a negative weight": ([[0, 1], [2, 1]], [1, -2], "float64", r"edge 1 \(2 to 1\).*weight -2"),
    "a half": ([[0, 1]], [1.5], "int64", "weight 1.5.*must be whole"),
    "more than float32": ([[0, 1]], [1e300], "float32", "weight 1e.300.*at most"),
    "more than int64": ([[0, 1]], [2.0**61], "int64", "weight.*at most"),
}


@pytest.mark.parametrize("case", BAD)
def test_links_that_are_refused(case: str) -> None:
    edges, weight, dtype, says = BAD[case]
    graph = graph_of(edges, weight, max(4, int(np.max(edges)) + 1), True)
    with pytest.raises(og.InputError, match=re.compile(says, re.DOTALL)) as caught:
        og.cost_distance(np.full((1, 4), 2), [(0, 0)], links=graph, dtype=dtype, connectivity=4)
    assert str(caught.value).startswith("links: ")


@pytest.mark.parametrize("tile", [2, 7])
@pytest.mark.parametrize(("dtype", "weight"), [("int64", 3 * 2**57), ("float32", 1.6e38)])
def test_a_cost_that_its_dtype_does_not_hold_is_refused(
    dtype: str, weight: float, tile: int
) -> None:
    """Four islands in a row, each a tile or all in one: the fourth is too far by links alone."""
    ground = np.full((1, 14), np.nan)
    ground[0, ::4] = 2
    ends, how = [[0, 4], [4, 8], [8, 12]], {"dtype": dtype, "connectivity": 4, "tile": tile}
    far = graph_of(ends, [weight] * 3, 14, True)
    with og.config.set(field=0):
        with pytest.raises(og.RunError, match=r"row 0, column 12 .*link of edge 2; give smaller"):
            og.cost_distance(ground, [(0, 0)], links=far, **how)
        bounded = og.cost_distance(ground, [(0, 0)], links=far, max_cost=2 * weight, **how)
        assert bounded.attrs["reached_cells"] == 3
        another = graph_of([*ends, [0, 12]], [weight] * 4, 14, True)
        both = og.cost_distance(ground, [(0, 0)], links=another, **how)
        expected = np.array([0, weight, 2 * weight, weight])
        np.testing.assert_array_equal(both["cost"].values[0, ::4], expected.astype(dtype))


def test_vertices_that_are_names_and_vertices_outside_are_refused() -> None:
    table = pd.DataFrame({"source": ["a"], "target": ["b"]})
    ground = np.ones((2, 2))
    with pytest.raises(og.InputError, match=r"links: vertex a is not a cell.*coordinates="):
        og.cost_distance(ground, [(0, 0)], links=og.read_graph(table, directed=False))
    far = og.read_graph(table, directed=False, coordinates=[[0, 0], [7, 0]])
    with pytest.raises(og.InputError, match=r"links: point 1.*outside the grid"):
        og.cost_distance(ground, [(0, 0)], links=far)


def test_corridors_of_other_links_are_refused() -> None:
    ground = np.ones((1, 4))
    linked = og.cost_distance(ground, [(0, 0)], links=graph_of([[0, 3]], [1], 4, False))
    with pytest.raises(og.InputError, match="corridor: links is 2 and None"):
        og.corridor(linked, og.cost_distance(ground, [(3, 0)]))
