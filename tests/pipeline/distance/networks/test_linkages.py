"""Linkages: as plain loops over an explicit graph say, and the same bits for any tiling."""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import Any

import numpy as np
import oracle_distance as oracle
import pytest
from cuda_on_cpu.emulator import Emulator
from distributed import Client

import orograph as og
from orograph.distance.networks.linkage_run import LinkageEngine

Array = np.ndarray[Any, Any]
Graph = dict[int, list[tuple[int, float]]]
MODELS: dict[str, dict[str, Any]] = {
    "friction": {"connectivity": 8},
    "integers": {"connectivity": 4, "dtype": "int64"},
    "tobler": {"connectivity": 8, "cost": "tobler"},
    "knight's moves": {"connectivity": 16},
    "single precision": {"connectivity": 8, "dtype": "float32"},
}
SHAPE = 13, 17


def landscape(seed: int, model: str) -> tuple[Array, Array]:
    """Friction or heights with holes, and some patches of several cells."""
    rng = np.random.default_rng(seed)
    ground = rng.uniform(1, 9, SHAPE)
    if model == "integers":
        ground = 2.0 * rng.integers(1, 9, SHAPE)
    ground[rng.random(SHAPE) < rng.choice([0, 0.15])] = np.nan
    patches = np.zeros(SHAPE, int)
    for label in range(2, 3 + rng.integers(1, 6)):
        y, x = rng.integers(0, 11), rng.integers(0, 15)
        patches[y : y + rng.integers(1, 3), x : x + rng.integers(1, 3)] = 3 * label
    return ground, patches


def graph_of(ground: Array, model: str) -> Graph:
    how = {"connectivity": MODELS[model]["connectivity"]}
    if model == "tobler":
        steps = oracle.list_steps(None, ground, cost="tobler", **how)
    else:
        steps = oracle.list_steps(ground, **how)
    graph: Graph = {}
    for s in steps:
        for tail, head, weight in zip(s.tail.tolist(), s.head.tolist(), s.weight.tolist()):
            graph.setdefault(tail, []).append((head, weight))
    return graph


def search(graph: Graph, starts: Array) -> tuple[Array, dict[int, int]]:
    """Dijkstra's costs from some cells, and the cell before each."""
    cost, before = np.full(SHAPE[0] * SHAPE[1], np.inf), dict[int, int]()
    queue = [(0.0, cell, cell) for cell in starts.tolist()]
    while queue:
        reached, cell, last = heapq.heappop(queue)
        if reached < cost[cell]:
            cost[cell], before[cell] = reached, last
            for head, weight in graph.get(cell, ()):
                heapq.heappush(queue, (reached + weight, head, cell))
    return cost, before


def path_to(end: int, before: dict[int, int]) -> list[int]:
    path = [end]
    while before[path[-1]] != path[-1]:
        path.append(before[path[-1]])
    return path[::-1]


def turned(graph: Graph) -> Graph:
    found: Graph = {}
    for tail, steps in graph.items():
        for head, weight in steps:
            found.setdefault(head, []).append((tail, weight))
    return found


def expected_links(graph: Graph, ground: Array, patches: Array) -> dict[tuple[int, int], Any]:
    """Of each two patches whose zones touch the least cost, and that through each cell."""
    valid = np.isfinite(ground).ravel()
    cells = {int(k): np.flatnonzero((patches.ravel() == k) & valid) for k in np.unique(patches)}
    cells = {k: of for k, of in cells.items() if k and of.size}
    there = {k: search(graph, of)[0] for k, of in cells.items()}
    back = {k: search(turned(graph), of)[0] for k, of in cells.items()}
    labels = np.array(list(cells))
    costs = np.stack([there[k] for k in cells])
    zone = np.where(np.isfinite(costs.min(0)), labels[costs.argmin(0)], 0)
    pairs = {
        (min(zone[tail], zone[head]), max(zone[tail], zone[head]))
        for tail, steps in graph.items()
        for head, _ in steps
        if zone[tail] != zone[head] and zone[tail] and zone[head]
    }
    found = {}
    for a, b in sorted(pairs):
        least = there[a][cells[b]].min()
        if np.isfinite(least):
            found[int(a), int(b)] = least, there[a] + back[b] - least, cells[a], cells[b]
    return found


def assert_same(one: Any, other: Any) -> None:
    assert one.identical(other)


SEEDS = [pytest.param(n, marks=() if n < 2 else pytest.mark.long) for n in range(100)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS[:50])
@pytest.mark.parametrize("model", MODELS)
def test_links_and_corridors_are_those_of_plain_loops(model: str, seed: int) -> None:
    ground, patches = landscape(seed, model)
    expected = expected_links(graph_of(ground, model), ground, patches)
    threshold = [4.0, 30.0, np.inf][seed % 3]
    rough = 1e-4 if model == "single precision" else 1e-9
    how = {"threshold": threshold, "cell_size": 1, **MODELS[model]}
    found = og.linkages(ground, patches, **how)
    table = og.to_geodataframe(found)
    assert list(zip(table["from"], table["to"])) == list(expected)
    np.testing.assert_allclose(table["cost"], [e[0] for e in expected.values()], rtol=rough)
    corridors = np.stack([np.full(ground.size, np.inf), *(e[1] for e in expected.values())])
    least = corridors.min(0)
    near = np.abs(least - threshold) < 1e-3  # rounding decides
    integers = model == "integers"
    corridor = found["corridor"].values.ravel().astype(float)
    link = found["link"].values.ravel()
    within = corridor >= 0 if integers else np.isfinite(corridor)
    np.testing.assert_array_equal(within | near, (least <= threshold) & np.isfinite(least) | near)
    np.testing.assert_allclose(corridor[within], least[within], rtol=rough, atol=rough)
    assert ((link >= 0) == within).all()
    of_link = corridors[link[within] + 1, np.flatnonzero(within)]
    np.testing.assert_allclose(of_link, corridor[within], rtol=rough, atol=rough)
    if integers:
        np.testing.assert_array_equal(corridor[within], least[within])
    assert_same(og.linkages(ground, patches, tile=[3, 5, 8][seed % 3], **how), found)
    # each line lies in its corridor, from one patch to the other
    width = SHAPE[1]
    for row, line in enumerate(table.geometry):
        x, y = np.array(line.coords).astype(int).T
        assert (patches[y[0], x[0]], patches[y[-1], x[-1]]) == tuple(table.loc[row, ["from", "to"]])
        np.testing.assert_allclose(corridors[row + 1][y * width + x], 0, atol=rough)
        a, b = (np.argwhere(patches == table.loc[row, end]) for end in ("from", "to"))
        a, b = (cells[np.isfinite(ground[tuple(cells.T)])] for cells in (a, b))
        apart = np.sqrt(((a[:, None] - b) ** 2).sum(-1)).min()
        assert table["euclidean"][row] == pytest.approx(apart)
        assert table["length"][row] == pytest.approx(line.length)
        assert table["cost_to_length"][row] == pytest.approx(
            table["cost"][row] / line.length, rel=rough
        )
        assert table["cost_to_euclidean"][row] == pytest.approx(
            table["cost"][row] / apart, rel=rough
        )


def alternatives_of(
    ground: Array, model: str, a: Array, b: Array, width: float, penalty: float, count: int
) -> list[tuple[float, list[int]]]:
    """The paths between two patches, each on ground that costs more near those before it."""
    plain = {tail: dict(steps) for tail, steps in graph_of(ground, model).items()}
    y, x = np.indices(SHAPE)
    found, dearer = list[tuple[float, list[int]]](), np.ones(SHAPE)
    for _ in range(count + 1):
        steps = oracle.list_steps(ground * dearer, connectivity=8)
        if model == "tobler":
            steps = oracle.list_steps(dearer, ground, cost="tobler", connectivity=8)
        graph: Graph = {}
        for s in steps:
            for tail, head, weight in zip(s.tail.tolist(), s.head.tolist(), s.weight.tolist()):
                graph.setdefault(tail, []).append((head, weight))
        cost, before = search(graph, a)
        path = path_to(int(b[cost[b].argmin()]), before)
        found.append((sum(plain[u][v] for u, v in pairwise(path)), path))
        for cell in path:
            row, column = divmod(cell, SHAPE[1])
            dearer[(y - row) ** 2 + (x - column) ** 2 <= width**2] = penalty
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", ["friction", "tobler"])
def test_alternatives_avoid_what_lies_near_earlier_paths(model: str, seed: int) -> None:
    ground, patches = landscape(seed + 100, model)
    width, penalty, share = [0.0, 1.0, 1.5, 2.3][seed % 4], [1.5, 4.0, 20.0][seed % 3], 0.6
    links = expected_links(graph_of(ground, model), ground, patches)
    expected = []
    for (one, other), (_, _, a, b) in links.items():
        paths = alternatives_of(ground, model, a, b, width, penalty, 2)
        for n, (cost, path) in enumerate(paths):
            shared = [len(set(path) & set(p)) / len(set(path)) for _, p in paths[:n]]
            if all(part <= share for part in shared):
                expected.append((n > 0, one, other, n + 1, cost, path))
    expected.sort(key=lambda row: row[:4])
    how = {
        "alternatives": 2,
        "width": width,
        "penalty": penalty,
        "share": share,
        "cell_size": 1,
        "threshold": 1,
    }
    found = og.linkages(ground, patches, **how, **MODELS[model])
    table = og.to_geodataframe(found)
    rows = list(zip(table["from"], table["to"], table["number"], strict=True))
    assert rows == [row[1:4] for row in expected]
    np.testing.assert_allclose(table["cost"], [row[4] for row in expected], rtol=1e-9)
    for line, (*_, path) in zip(table.geometry, expected, strict=True):
        x, y = np.array(line.coords).astype(int).T
        assert (y * SHAPE[1] + x).tolist() == path
    assert_same(og.linkages(ground, patches, tile=4, **how, **MODELS[model]), found)


def many_patches(count: int, shape: tuple[int, int]) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    friction = rng.uniform(1, 10, shape)
    patches = np.zeros(shape, int)
    patches.flat[rng.choice(patches.size, count, replace=False)] = np.arange(1, count + 1)
    friction[(rng.random(shape) < 0.1) & (patches == 0)] = np.nan
    return friction, patches


HOW: dict[str, Any] = {"threshold": 9, "alternatives": 1, "width": 2, "connectivity": 4}


def test_corridors_of_many_links_are_those_of_runs_from_each_patch() -> None:
    """Most links share runs with others."""
    friction, patches = many_patches(20, (50, 60))
    found = og.linkages(friction, patches, **HOW)
    costs = {
        k: og.cost_distance(friction, patches, source_values=[k], connectivity=4)
        for k in np.unique(patches).tolist()[1:]
    }
    first = found["number"].values == 1
    pairs = list(zip(found["from"].values[first].tolist(), found["to"].values[first].tolist()))
    network = og.region_network(friction, patches, connections="neighbours", connectivity=4)
    assert pairs == list(zip(network.columns["from"], network.columns["to"]))
    expected = og.corridor(costs, pairs=pairs, normalize=True, threshold=9)
    np.testing.assert_allclose(found["corridor"].values, expected.values, atol=1e-9)


def test_workers_of_a_cluster(tmp_path: Any, client: Client) -> None:
    friction, patches = many_patches(3, (20, 25))
    out, found = tmp_path / "workers.zarr", og.linkages(friction, patches, **HOW)
    stored = og.linkages(friction, patches, out=out, tile=16, client=client, **HOW)
    assert_same(stored.load().drop_attrs(), found.drop_attrs())
    assert [path.name for path in tmp_path.iterdir()] == ["workers.zarr"]
    assert len(og.to_geodataframe(out)) == found.attrs["link_count"]


def test_an_interrupted_run_goes_on(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    friction, patches = many_patches(3, (20, 25))
    out, added = tmp_path / "out.zarr", LinkageEngine._add_corridors

    def interrupted(*arguments: Any) -> Any:
        added(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LinkageEngine, "_add_corridors", interrupted)
        with pytest.raises(KeyboardInterrupt):
            og.linkages(friction, patches, out=out, tile=8, **HOW)
    found = og.linkages(friction, patches, out=out, tile=8, resume=True, **HOW)
    assert_same(found.load().drop_attrs(), og.linkages(friction, patches, **HOW).drop_attrs())


def test_names_of_patches_and_patches_without_links() -> None:
    import geopandas
    from shapely.geometry import Point

    friction = np.ones((3, 9))
    friction[:, 5] = np.nan
    layer = geopandas.GeoDataFrame(
        {"name": ["east", "west", "apart"]}, geometry=[Point(4, 1), Point(0, 1), Point(8, 1)]
    )
    found = og.linkages(friction, layer, label="name", threshold=2)
    table = og.to_geodataframe(found)
    assert table[["from", "to"]].values.tolist() == [["east", "west"]]
    more = 2 * 2**0.5 - 2
    expected = [2**0.5, more, more, more, 2**0.5]
    assert found["corridor"].values[0, :5].tolist() == pytest.approx(expected)
    assert np.isnan(found["corridor"].values[:, 5:]).all()
    alone = og.linkages(friction, [(0, 0)])
    assert alone.sizes["links"] == 0
    assert np.isnan(alone["corridor"].values).all()


def test_grids_that_wrap() -> None:
    """Rolled rasters give the rolled result, and paths and straight distances go around."""
    friction, patches = many_patches(5, (14, 20))
    how = {"threshold": 12, "alternatives": 1, "width": 1.5, "wrap": True, "cell_size": 1}
    found = og.linkages(friction, patches, **how)
    rolled = og.linkages(np.roll(friction, 7, 1), np.roll(patches, 7, 1), tile=5, **how)
    for name in ("corridor", "link"):
        np.testing.assert_array_equal(np.roll(found[name].values, 7, 1), rolled[name].values)
    for name in ("from", "to", "cost", "length", "euclidean"):
        np.testing.assert_allclose(found[name].values, rolled[name].values, rtol=1e-12)
    kinds = og.to_geodataframe(found).geometry.geom_type
    assert (kinds == "MultiLineString").any()


def test_a_gpu_gives_the_same_bits(emulated_gpu: Emulator) -> None:
    friction, patches = many_patches(3, (20, 25))
    found = og.linkages(friction, patches, backend="cuda", tile=16, **HOW)
    assert emulated_gpu.launches > 0
    assert_same(found, og.linkages(friction, patches, backend="numba", **HOW))
