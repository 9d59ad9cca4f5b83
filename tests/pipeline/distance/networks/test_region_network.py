"""Networks of regions: as trees of all pairs say, and the same bits for any tiling and workers."""

from __future__ import annotations

import os
import pickle
import signal
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import oracle_distance as oracle
import pytest
import rasterio
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.graph import MCP_Geometric
from terrain_cases import properties
from watched_raster import Gate, WatchedRaster, called, mortal_cluster, wait_until

import orograph as og

Array = np.ndarray[Any, Any]
REAL = {"int64": np.int64, "float32": np.float32, "float64": np.float64}
CROSSING = ("from_row", "from_col", "to_row", "to_col")


def assert_same(one: og.VectorLayer, other: og.VectorLayer) -> None:
    assert list(one.columns) == list(other.columns)
    for name, column in one.columns.items():
        assert column.dtype == other.columns[name].dtype
        assert column.tobytes() == other.columns[name].tobytes(), name
    assert [line.wkb for line in one.geometry] == [line.wkb for line in other.geometry]


def sources_of(regions: Array, valid: Array) -> list[oracle.Source]:
    rows, columns = np.nonzero((regions != 0) & valid)
    return [(y, x, int(regions[y, x]), 0) for y, x in zip(rows.tolist(), columns.tolist())]


def all_pairs(steps: Any, regions: Array, valid: Array, dtype: str) -> nx.Graph:
    """The least cost between each two regions, by one run of Dijkstra from each."""
    sources = sources_of(regions, valid)
    network = nx.Graph()
    network.add_nodes_from({label for _, _, label, _ in sources})
    for one, other in combinations(sorted(network), 2):
        mine = [source for source in sources if source[2] == one]
        cost = oracle.heap_distance(steps, regions.shape, mine, REAL[dtype])
        there = cost[(regions == other) & valid]
        if (there >= 0).any():
            network.add_edge(one, other, weight=there[there >= 0].min())
    return network


def neighbours_of(
    steps: Any, shape: tuple[int, int], sources: list[oracle.Source], dtype: str
) -> dict[tuple[int, int], tuple[Any, int, int]]:
    """The least crossing of each pair of zones, over all steps there are."""
    if not sources:
        return {}
    cost = oracle.heap_distance(steps, shape, sources, REAL[dtype])
    floats = np.where(cost < 0, np.nan, cost.astype(np.float64))
    if dtype == "float64":
        floats = oracle.cost_distance(steps, shape, sources).cost
    zone = oracle.cost_distance(steps, shape, sources, cost=floats).allocation.ravel()
    at = cost.ravel()
    found: dict[tuple[int, int], tuple[Any, int, int]] = {}
    for s in steps:
        for tail, head, weight in zip(s.tail.tolist(), s.head.tolist(), s.weight):
            a, b = zone[tail], zone[head]
            if at[tail] < 0 or at[head] < 0 or a >= b:
                continue
            total = at.dtype.type(at.dtype.type(at[tail] + weight) + at[head])
            found[a, b] = min(found.get((a, b), (np.inf,)), (total, tail, head))
    for y, x, label, _ in sources:
        cell = y * shape[1] + x
        if zone[cell] != label:  # another region reaches it at no cost
            pair = int(zone[cell]), label
            found[pair] = min(found.get(pair, (np.inf,)), (at[cell], cell, cell))
    return found


def assert_lines(links: og.VectorLayer, steps: Any, regions: Array, dtype: str) -> None:
    """Each line goes from one region to the other, over its crossing, and costs what is said."""
    width = regions.shape[1]
    price = {
        pair: weight
        for s in steps
        for *pair, weight in zip(s.tail.tolist(), s.head.tolist(), s.weight.tolist())
        for pair in [tuple(pair)]
    }
    for number, line in enumerate(links.geometry):
        of = {name: column[number] for name, column in links.columns.items()}
        x, y = np.array(line.coords).T.astype(int)
        assert (regions[y[0], x[0]], regions[y[-1], x[-1]]) == (of["from"], of["to"])
        cells = (y * width + x).tolist()
        total = sum(price[pair] for pair in pairwise(cells))
        assert total == pytest.approx(of["cost"], rel=1e-5 if dtype == "float32" else 1e-12)
        first, second = np.reshape([of[name] for name in CROSSING], (2, 2)) @ [width, 1]
        assert cells.index(first) < cells.index(second) or first == second == cells[-1]
        assert of["length"] == pytest.approx(line.length)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(st.tuples(st.integers(1, 16), st.integers(1, 16)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    connectivity = draw(st.sampled_from([4, 8, 16]))
    dtype = draw(st.sampled_from(["float64", "float32", "int64"]))
    # few levels, so that there are ties and ground that costs nothing
    friction = 4.0 * rng.integers(0, draw(st.sampled_from([2, 9])), shape)
    if dtype == "float64" and draw(st.booleans()):
        friction = rng.random(shape)
    friction[rng.random(shape) < draw(st.sampled_from([0, 0.2, 0.5]))] = np.nan
    regions = np.where(
        rng.random(shape) < draw(st.sampled_from([0.03, 0.2, 1])),
        rng.integers(-3, 4, shape) * 7 + 2,
        0,
    )
    friction[0, 0], regions[0, 0] = 4, 2
    return {
        "friction": friction,
        "regions": regions,
        "connectivity": connectivity if dtype == "float64" else 4,
        "dtype": dtype,
        "tile": draw(st.sampled_from([2, 3, 5, 16])),
    }


@settings(properties, max_examples=40)
@given(cases())
def test_links_are_those_of_their_definition(case: dict[str, Any]) -> None:
    friction, regions, dtype = case["friction"], case["regions"], case["dtype"]
    how = {name: case[name] for name in ("connectivity", "dtype")}
    steps = oracle.list_steps(friction, connectivity=how["connectivity"], dtype=dtype)
    valid = np.isfinite(friction)
    expected = neighbours_of(steps, regions.shape, sources_of(regions, valid), dtype)
    whole = {"cell_size": 1, **how}
    links = og.region_network(friction, regions, connections="neighbours", **whole)
    pairs = list(zip(links.columns["from"].tolist(), links.columns["to"].tolist()))
    assert pairs == sorted(expected)
    assert links.columns["cost"].dtype == REAL[dtype]
    least = all_pairs(steps, regions, valid, dtype)
    exact = dtype == "int64" or (np.nan_to_num(friction) % 1 == 0).all()
    width = regions.shape[1]
    if exact and how["connectivity"] == 4:  # every way to write a step's cost rounds alike
        ends = np.stack([links.columns[name] for name in CROSSING], axis=1).reshape(-1, 2, 2)
        found = zip(links.columns["cost"].tolist(), *(ends @ [width, 1]).T.tolist())
        for pair, (cost, *cells) in zip(pairs, found, strict=True):
            assert cost == least.edges[pair]["weight"]
            if cost == expected[pair][0]:
                assert (cost, *cells) == expected[pair]
    else:
        costs = [least.edges[pair]["weight"] for pair in pairs]
        assert links.columns["cost"].tolist() == pytest.approx(costs, rel=1e-5, abs=1e-9)
    assert_lines(links, steps, regions, dtype)
    again = og.region_network(
        friction, regions, connections="neighbours", tile=case["tile"], **whole
    )
    assert_same(again, links)

    tree = og.region_network(friction, regions, tile=case["tile"], **whole)
    forest = nx.minimum_spanning_tree(least)
    assert len(tree) == forest.number_of_edges()
    weight = sum(w for _, _, w in forest.edges(data="weight"))
    if dtype == "int64":
        assert tree.columns["cost"].sum() == weight
    assert float(tree.columns["cost"].sum()) == pytest.approx(float(weight), rel=1e-5, abs=1e-9)
    joined = nx.Graph(list(zip(tree.columns["from"].tolist(), tree.columns["to"].tolist())))
    assert nx.is_forest(joined) if len(joined) else not len(tree)
    assert {frozenset(c) for c in nx.connected_components(joined)} == {
        frozenset(c) for c in nx.connected_components(forest) if len(c) > 1
    }


@settings(properties, max_examples=15)
@given(cases(), st.floats(0, 30), st.sampled_from(["mst", "neighbours"]))
def test_max_cost_leaves_out_what_costs_more(
    case: dict[str, Any], limit: float, connections: str
) -> None:
    """Also a limit that a link just meets, or just fails."""
    given = {"connections": connections, "cell_size": 1} | case
    every = og.region_network(**given)
    costs = every.columns["cost"].tolist()
    limits = [limit, *costs[:3], *(float(np.nextafter(cost, 0)) for cost in costs[:3])]
    for most in limits:
        found = og.region_network(**given, max_cost=most)
        kept = every.columns["cost"] <= np.float64(most)
        assert found.columns["cost"].tolist() == every.columns["cost"][kept].tolist()
        assert [line.wkb for line in found.geometry] == [
            line.wkb for line, here in zip(every.geometry, kept, strict=True) if here
        ]


@pytest.mark.parametrize("connections", ["neighbours", "neighbors"])
def test_of_links_that_cost_the_same_the_first_cells_and_labels_count(connections: str) -> None:
    """Three regions along a row of equal cells, each as far from the next."""
    regions = np.array([[3, 0, 0, 1, 0, 0, 2]])
    every = og.region_network(np.ones((1, 7)), regions, connections=connections)
    assert every.columns["from"].tolist() == [1, 1]
    assert every.columns["to"].tolist() == [2, 3]
    assert every.columns["cost"].tolist() == [3, 3]
    # between rows that are alike the first one
    both = og.region_network(np.ones((5, 7)), np.tile(regions, (5, 1)))
    assert both.columns["from_row"].tolist() == both.columns["to_row"].tolist() == [0, 0]
    # of a triangle of equal sides the side of the greatest labels is left out
    triangle = np.array([[1, 2], [3, 0]])
    found = og.region_network(np.array([[1.0, 1.0], [1.0, np.nan]]), triangle, cell_size=1)
    assert list(zip(found.columns["from"].tolist(), found.columns["to"].tolist())) == [
        (1, 2), (1, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("as_points", [False, True])
def test_a_path_through_a_third_region_may_be_the_link(as_points: bool) -> None:
    """The zones of the two outer regions meet on dear ground; a cheap way leads past the third."""
    friction = np.full((5, 9), 1000.0)
    friction[0] = 10
    friction[:, 0] = friction[:, 8] = friction[4] = 1
    regions = np.zeros((5, 9), int)
    regions[0, 0], regions[0, 8], regions[4, 4] = 1, 2, 3
    points = [(0, 0), (8, 0), (4, 4)]
    for tile in (3, 16):
        links = og.region_network(
            friction, points if as_points else regions, connections="neighbours",
            connectivity=4, cell_size=1, tile=tile,
        )  # fmt: skip
        assert links.columns["cost"].tolist() == [16, 8, 8]
        assert len(links.geometry[0].coords) == 17
        ends = [int(links.columns[name][0]) for name in CROSSING]
        assert ends == [4, 0, 4, 8]  # it leaves the first zone, and enters the second one


@pytest.mark.long
def test_links_of_many_regions_are_those_of_a_run_from_each() -> None:
    """A hundred regions on uneven ground, of which searches settle most pairs at once."""
    rng = np.random.default_rng(3)
    friction = rng.uniform(1, 30, (90, 110))
    friction[rng.random(friction.shape) < 0.1] = np.nan
    regions = np.zeros(friction.shape, int)
    regions.flat[rng.choice(regions.size, 100, replace=False)] = np.arange(1, 101)
    links = og.region_network(friction, regions, connections="neighbours", tile=16)
    for one in np.unique(links.columns["from"]).tolist():
        cost = og.cost_distance(friction, regions, source_values=[one])["cost"].values
        of_one = links.columns["from"] == one
        others, found = links.columns["to"][of_one], links.columns["cost"][of_one]
        least = [np.nanmin(cost[regions == other]) for other in others.tolist()]
        np.testing.assert_allclose(found, least, rtol=1e-13)


def test_heights_as_costs() -> None:
    rng = np.random.default_rng(0)
    heights, regions = rng.integers(0, 50, (20, 30)), np.zeros((20, 30), int)
    regions.flat[rng.choice(600, 9, replace=False)] = np.arange(1, 10)
    steps = oracle.list_steps(None, heights.astype(float), cost="absolute_difference")
    tree = nx.minimum_spanning_tree(
        all_pairs(steps, regions, np.ones(regions.shape, bool), "float64")
    )
    found = og.region_network(heights, regions, cost="absolute_difference", dtype="int64")
    assert found.columns["cost"].sum() == tree.size("weight")
    assert_lines(found, steps, regions, "int64")


# --- as others compute it -----------------------------------------------------------------------


def resistances(shared_data: Path) -> tuple[Array, Array]:
    with rasterio.open(shared_data / "friction/lm_resistances.tif") as file:
        friction = file.read(1)
    with rasterio.open(shared_data / "reference/lm_cores_rasterised.tif") as file:
        cores = file.read(1)
    return np.where(friction < 0, np.nan, friction), np.where(cores > 0, cores, 0)


def test_the_tree_of_six_habitat_cores_is_that_of_six_runs(shared_data: Path) -> None:
    friction, cores = resistances(shared_data)
    network = nx.Graph()
    filled = np.where(np.isnan(friction), -1, friction).astype(float)
    for core in range(1, 7):
        costs, _ = MCP_Geometric(filled).find_costs(np.argwhere(cores == core))
        for other in range(core + 1, 7):
            network.add_edge(core, other, weight=costs[cores == other].min())
    expected = nx.minimum_spanning_tree(network)
    found = og.region_network(friction, cores, cell_size=1)
    assert found.columns["cost"].sum() == 487.85773554820133
    pairs = zip(found.columns["from"].tolist(), found.columns["to"].tolist(), strict=True)
    assert set(pairs) == {(min(e), max(e)) for e in expected.edges}
    assert expected.size("weight") == pytest.approx(487.85773554820133, rel=1e-12)
    assert_same(og.region_network(friction, cores, cell_size=1, tile=100), found)
    links = og.region_network(friction, cores, cell_size=1, connections="neighbours")
    for one, other, cost in zip(*(links.columns[k] for k in ("from", "to", "cost")), strict=True):
        assert cost == pytest.approx(network.edges[one, other]["weight"], rel=1e-9)
    # from the files, in metres, and areas in place of cells
    stored = og.region_network(
        shared_data / "friction/lm_resistances.tif",
        shared_data / "friction/lm_cores.shp",
        label="core_id",
    )
    again = zip(stored.columns["from"].tolist(), stored.columns["to"].tolist(), strict=True)
    assert set(again) == {(min(e), max(e)) for e in expected.edges}
    side = 399.89
    assert stored.columns["cost"].sum() == pytest.approx(487.857735548 * side, rel=0.02)
    assert "Albers" in str(stored.crs)


# --- tilings, threads, workers, backends --------------------------------------------------------

SHAPE = (60, 70)


def landscape() -> tuple[Array, Array]:
    """Random friction with barriers, and a dozen regions of one to nine cells."""
    rng = np.random.default_rng(7)
    friction = rng.uniform(1, 10, SHAPE)
    friction[rng.random(SHAPE) < 0.2] = np.nan
    regions = np.zeros(SHAPE, np.int32)
    for label in range(1, 13):
        y, x = rng.integers(0, 57), rng.integers(0, 67)
        regions[y : y + rng.integers(1, 4), x : x + rng.integers(1, 4)] = 100 - label
    return friction, regions


@pytest.fixture(scope="module")
def expected() -> og.VectorLayer:
    return og.region_network(*landscape(), connections="neighbours")


@pytest.mark.parametrize("tile", [7, *(pytest.param(n, marks=pytest.mark.long) for n in (16, 64))])
def test_stored_rasters_on_threads(tile: int, tmp_path: Path, expected: og.VectorLayer) -> None:
    friction, regions = landscape()
    og.ingest(friction, tmp_path / "friction.zarr", tile=tile)
    og.ingest(regions, tmp_path / "regions.zarr", tile=10)
    found = og.region_network(
        tmp_path / "friction.zarr", tmp_path / "regions.zarr", connections="neighbours", shard=tile
    )
    assert_same(found, expected)
    with og.config.set(field=64):  # tiles are joined to one
        found = og.region_network(friction, regions, connections="neighbours", tile=tile)
    assert_same(found, expected)


def test_knights_moves_cross_tiles_too() -> None:
    how = {"connections": "neighbours", "connectivity": 16}
    friction, regions = landscape()
    for tile, part in ((2, np.s_[30:, 35:]), (7, np.s_[:]), (32, np.s_[:])):
        rasters = friction[part], regions[part]
        whole = og.region_network(*rasters, **how)
        assert_same(og.region_network(*rasters, tile=tile, **how), whole)


def test_workers_of_a_cluster(client: Client, tmp_path: Path, expected: og.VectorLayer) -> None:
    friction, regions = landscape()
    og.ingest(friction, tmp_path / "friction.zarr", tile=8)
    found = og.region_network(
        tmp_path / "friction.zarr", regions, connections="neighbours", client=client, shard=16
    )
    assert_same(found, expected)


@pytest.mark.long  # distances, which do the work, have a quick one in engines/test_workers.py
def test_killed_workers_change_no_bit(tmp_path: Path, expected: og.VectorLayer, gate: Gate) -> None:
    friction, regions = landscape()
    og.ingest(friction, tmp_path / "friction.zarr", tile=8)
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        raster = WatchedRaster(tmp_path / "friction.zarr", tmp_path / "diary.txt", gate=gate)
        run = called(
            gate, og.region_network.submit, raster, regions, connections="neighbours",
            client=client, shard=16,
        )  # fmt: skip
        wait_until(gate.until(lambda: run.progress().done >= 20), lambda: run.status == "running")
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
        client.wait_for_workers(2)
        gate.open()
        assert_same(run.result(), expected)


def test_a_gpu_gives_the_same_bits(emulated_gpu: Emulator, expected: og.VectorLayer) -> None:
    friction, regions = landscape()
    found = og.region_network(friction, regions, connections="neighbours", backend="cuda", tile=16)
    assert_same(found, expected)
    assert emulated_gpu.launches > 0


def test_tasks_do_not_carry_rasters_in_memory() -> None:
    """What a worker is sent has no cell of the rasters, which lie in files on a cluster."""
    job: Any = og.region_network.describe(*landscape())
    engine = job.engine(job.rasters, None, "numba")
    assert len(pickle.dumps(engine._stages)) < landscape()[1].nbytes // 2
