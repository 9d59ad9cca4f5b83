"""All pairs of vertices against SciPy, in memory, on disk and on a cluster."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import dask.array as da
import networkx
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import xarray as xr
import zarr
from cuda_on_cpu.emulator import Emulator
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.csgraph import bellman_ford, dijkstra, floyd_warshall, johnson

import orograph as og
from orograph.graphs.dense_paths import all_pairs as apsp
from orograph.graphs.dense_paths import blocked as path_blocks
from orograph.graphs.dense_paths import on_devices
from orograph.graphs.dense_paths.edge_matrix import open_edges
from orograph.graphs.dense_paths.negative_cycle import find_negative_cycle, length_of

Array = npt.NDArray[np.generic]
METHODS = ("floyd-warshall", "squaring", "dijkstra")


def random_graph(
    seed: int, n: int, *, signed: bool = False, edges: float = 0.2, whole: bool = False
) -> Array:
    """A matrix of lengths without negative cycles, infinity where there is no edge."""
    rng = np.random.default_rng(seed)
    length = rng.integers(0, 40, (n, n)).astype(float) if whole else rng.random((n, n)) + 0.01
    if signed:
        height = rng.integers(0, 50, n) if whole else rng.random(n)
        length += height[None, :] - height[:, None]
    length[rng.random((n, n)) > edges] = np.inf
    np.fill_diagonal(length, 0)
    return length


def as_sparse(graph: Array) -> sparse.csr_array:
    """Edges of length 0 are kept: SciPy takes a stored zero for an edge."""
    rows, columns = np.nonzero(np.isfinite(graph) & ~np.eye(len(graph), dtype=bool))
    return sparse.csr_array((graph[rows, columns], (rows, columns)), shape=graph.shape)


def check_predecessors(graph: Array, result: xr.Dataset, rtol: float = 1e-12) -> None:
    """Each is the last step of a path that has the length, and leads back to the source."""
    distance, before = result.distance.values, result.predecessor.values
    n = len(graph)
    reached = np.isfinite(distance) & ~np.eye(n, dtype=bool)
    reached &= distance != result.distance.attrs.get("_FillValue", np.inf)
    i, j = np.nonzero(reached)
    last = before[i, j]
    assert (last >= 0).all()
    np.testing.assert_allclose(distance[i, last] + graph[last, j], distance[i, j], rtol, 1e-12)
    assert (before[~reached] == -9999).all()
    way = np.where(before < 0, np.arange(n)[None, :], before)
    for _ in range(n.bit_length()):
        way = np.take_along_axis(way, way, axis=1)
    ends = np.where(reached, np.arange(n)[:, None], np.arange(n)[None, :])
    np.testing.assert_array_equal(way, ends)


@pytest.mark.diagonal
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tile", [1, 7, 40, 64, 200])
def test_equal_to_scipy(method: str, tile: int) -> None:
    n = 9 if tile == 1 else 64
    graph = random_graph(1, n)
    result = og.all_pairs(graph, method=method, tile=tile, predecessors=True)
    np.testing.assert_allclose(result.distance, dijkstra(as_sparse(graph)), rtol=1e-12)
    check_predecessors(graph, result)
    assert result.attrs == {
        "method": method,
        "tile": min(tile, n),
        "vertices": n,
        "edges": as_sparse(graph).nnz,
    }
    assert result.distance.dims == ("source", "target")


@pytest.mark.parametrize("method", METHODS[:2])
def test_negative_lengths(method: str) -> None:
    graph = random_graph(2, 70, signed=True)
    assert graph.min() < -0.5
    result = og.all_pairs(graph, method=method, tile=32, predecessors=True)
    expected = johnson(as_sparse(graph))
    np.testing.assert_allclose(result.distance, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(expected[3], bellman_ford(as_sparse(graph), indices=3), atol=1e-12)
    check_predecessors(graph, result, rtol=1e-9)


@pytest.mark.parametrize("signed", [False, True])
def test_integers_do_not_depend_on_tiles_or_methods(signed: bool) -> None:
    graph = random_graph(3, 75, signed=signed, whole=True)
    expected = johnson(as_sparse(graph))
    unreached = 2**60 if signed else -1  # which may be a distance where lengths are negative
    expected = np.where(np.isinf(expected), unreached, expected)
    for tile in (10, 33, 75):
        for method in METHODS[: 2 if signed else 3]:
            result = og.all_pairs(
                graph, method=method, tile=tile, dtype="int64", no_edge=np.inf, predecessors=True
            )
            np.testing.assert_array_equal(result.distance, expected)
            check_predecessors(graph, result)
    assert result.distance.attrs["_FillValue"] == unreached


def test_single_precision() -> None:
    graph = random_graph(4, 50)
    result = og.all_pairs(graph, dtype="float32", tile=16)
    assert result.distance.dtype == np.float32
    np.testing.assert_allclose(result.distance, floyd_warshall(graph), rtol=1e-5)


@given(
    n=st.integers(2, 14),
    tile=st.integers(1, 14),
    method=st.sampled_from(METHODS[:2]),
    symmetric=st.booleans(),
    signed=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_predecessors_do_not_go_round_cycles_of_length_zero(
    n: int, tile: int, method: str, symmetric: bool, signed: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = rng.integers(0, 2, (n, n)).astype(float)
    graph = np.minimum(graph, graph.T) if symmetric else graph
    if signed:
        height = rng.integers(0, 3, n)
        graph += height[None, :] - height[:, None]
    graph[rng.random((n, n)) < rng.random()] = np.inf
    np.fill_diagonal(graph, 0)
    result = solve_here(graph, tile, method)
    check_predecessors(graph, result)


def solve_here(graph: Array, tile: int, method: str) -> xr.Dataset:
    """In memory and one task after the other, which is quicker for tiny graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_blocks, "compute", compute_here)
        return og.all_pairs(
            graph, predecessors=True, method=method, dtype="int64", no_edge=np.inf, tile=tile
        )


def compute_here(tasks: dict, keys: list, client: object, cancelled: object) -> object:
    results: dict = {}
    for key, task in tasks.items():
        results[key] = task(results)
    return results[keys[0]]


def test_auto_takes_dijkstra_for_few_edges() -> None:
    n = 15_000
    i = np.arange(n - 1)
    few = sparse.csr_array((np.ones(n - 1), (i, i + 1)), shape=(n, n))
    assert apsp._choose(open_edges(few, "float64", 0), "auto") == "dijkstra"
    assert apsp._choose(open_edges(-few, "float64", 0), "auto") == "floyd-warshall"
    assert og.all_pairs(random_graph(1, 30)).attrs["method"] == "floyd-warshall"


def test_what_means_no_edge() -> None:
    graph = np.array([[0.0, 3.0, 0.0], [np.nan, 0.0, 2.0], [np.inf, np.inf, 0.0]])
    for options in ({}, {"no_edge": 0}, {"no_edge": np.float32(0)}):
        none = og.all_pairs(graph, **options).distance.values
        np.testing.assert_array_equal(none[0], [0, 3, 5])
    zero_is_an_edge = og.all_pairs(graph, no_edge=np.inf).distance.values
    np.testing.assert_array_equal(zero_is_an_edge[0], [0, 3, 0])
    whole = og.all_pairs(np.array([[0, 4], [-1, 0]]), no_edge=-1, dtype="int64").distance.values
    np.testing.assert_array_equal(whole, [[0, 4], [-1, 0]])


@pytest.mark.parametrize("method", METHODS)
def test_matrices_of_networkx_and_scipy_mean_the_same_here(method: str) -> None:
    graph = networkx.karate_club_graph()
    expected = networkx.floyd_warshall_numpy(graph)
    matrix = networkx.to_numpy_array(graph)
    np.testing.assert_array_equal(floyd_warshall(matrix), expected)
    for given_as in (matrix, networkx.to_scipy_sparse_array(graph), pd.DataFrame(matrix)):
        found = og.all_pairs(given_as, method=method)
        np.testing.assert_array_equal(found.distance, expected)
        assert found.attrs["edges"] == 2 * graph.number_of_edges()


def test_parallel_edges_and_stored_zeros() -> None:
    ends = ([0, 0, 1, 1], [1, 1, 2, 0])
    graph = sparse.coo_array(([5.0, 3.0, 0.0, 9.0], ends), shape=(3, 3))
    for method in METHODS:
        found = og.all_pairs(graph, method=method).distance.values
        np.testing.assert_array_equal(found[0], [0, 3, 3])


@pytest.mark.parametrize("kind", ["dask", "zarr", "path", "dataarray", "sparse", "list"])
def test_graphs_of_any_kind(kind: str, tmp_path: Path) -> None:
    graph = random_graph(5, 40)
    stored = zarr.create_array(tmp_path / "graph.zarr", data=graph, chunks=(16, 16))
    given_as = {
        "dask": da.from_array(graph, chunks=13),
        "zarr": stored,
        "path": tmp_path / "graph.zarr",
        "dataarray": xr.DataArray(graph, dims=("from", "to")),
        "sparse": as_sparse(graph),
        "list": graph.tolist(),
    }[kind]
    found = og.all_pairs(given_as, tile=16)
    np.testing.assert_array_equal(found.distance, og.all_pairs(graph, tile=16).distance)


@pytest.mark.diagonal
@pytest.mark.parametrize("name", ["graph.zarr", "graph.zarr/out.zarr", "graph.zarr/out.tif"])
@pytest.mark.parametrize("given", ["path", "URL", "array"])
def test_a_graph_that_is_read_is_not_written(given: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.zarr"
    stored = zarr.create_array(path, data=random_graph(5, 4))
    graph = {"path": path, "URL": f"file://{path}", "array": stored}[given]
    with pytest.raises(og.InputError, match=r"source .*graph\.zarr lies there or around it"):
        og.all_pairs(graph, out=tmp_path / name, overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(path), random_graph(5, 4))


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("method", METHODS[:2])
@given(n=st.integers(2, 40), tile=st.integers(1, 40), seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_the_cycle_that_is_named_is_a_negative_one(
    dtype: str, method: str, n: int, tile: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(seed, n, signed=True, whole=True)
    length = int(rng.integers(2, n + 1))
    cycle = rng.permutation(n)[:length]
    graph[cycle, np.roll(cycle, -1)] = rng.integers(-3, 2, length)
    graph[cycle[0], cycle[1]] = -2 * length
    tile = max(tile, n // 5)
    with pytest.raises(og.NegativeCycle) as caught:
        og.all_pairs(graph, dtype=dtype, method=method, tile=tile, no_edge=np.inf)
    named = caught.value.cycle
    assert len(set(named)) == len(named)
    total = sum(graph[u, v] for u, v in zip(named, [*named[1:], named[0]]))
    assert total < 0
    assert total == caught.value.length
    assert f"has length {caught.value.length}" in str(caught.value)


def test_a_loop_may_be_the_cycle() -> None:
    graph = random_graph(6, 5)
    graph[3, 3] = -0.5
    with pytest.raises(og.NegativeCycle, match=r"the cycle 3 -> 3 has length -0\.5"):
        og.all_pairs(graph)
    graph[3, 3] = 7
    assert og.all_pairs(graph).distance[3, 3] == 0


def test_rounding_makes_no_negative_cycle() -> None:
    """0.1 + 0.2 - 0.3 is not 0 in float64: a round trip over it has no length all the same."""
    graph = np.full((3, 3), np.inf)
    graph[0, 1], graph[1, 2], graph[2, 0] = 0.1, 0.2, -0.1 - 0.2
    graph[2, 0] = np.nextafter(graph[2, 0], -1)
    for method in METHODS[:2]:
        for tile in (1, 3):
            result = og.all_pairs(graph, method=method, tile=tile, predecessors=True)
            assert result.distance.values.diagonal().tolist() == [0, 0, 0]
            check_predecessors(graph, result)


def test_no_cycle_is_named_where_there_is_none() -> None:
    graph = open_edges(random_graph(7, 60, signed=True, whole=True), "int64", np.inf)
    assert find_negative_cycle(graph) is None
    assert length_of(open_edges(np.array([[0, 2], [5, 0]]), "int64", np.inf), [0, 1]) == 7


@pytest.fixture(scope="module")
def clusters(clients: Callable[[int], Client]) -> Iterator[dict[int, Client]]:
    """Clients of a worker that is a thread, and of two that are processes."""
    with (
        LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=":0") as local,
        Client(local, set_as_default=False) as client,
    ):
        yield {1: client, 2: clients(2)}


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bits_in_memory_on_disk_and_on_any_cluster(
    method: str, tmp_path: Path, clusters: dict[int, Client]
) -> None:
    graph = random_graph(8, 90)
    options = {"method": method, "tile": 32, "predecessors": True}
    in_memory = og.all_pairs(graph, **options)
    on_disk = og.all_pairs(graph, **options, out=tmp_path / "disk.zarr")
    assert isinstance(on_disk.distance.data, da.Array)
    results = [on_disk, og.open(tmp_path / "disk.zarr")]
    for workers, client in clusters.items():
        out = tmp_path / f"{workers}.zarr"
        results.append(og.all_pairs(graph, **options, out=out, client=client))
        results.append(og.all_pairs(graph, **options, client=client))
    for result in results:
        for name in ("distance", "predecessor"):
            np.testing.assert_array_equal(result[name], in_memory[name], strict=True)
        assert result.attrs["method"] == method
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.zarr", "2.zarr", "disk.zarr"]


@pytest.mark.long  # `test_all_pairs_take_the_memory_that_was_planned` is a quick form of it
def test_larger_than_the_memory_that_is_used(tmp_path: Path) -> None:
    """From Zarr to Zarr; never more in memory than some tiles, of which there are a hundred.

    Python's own tables, such as that of its strings, may grow by some 8 MB while memory is counted.
    """
    n, tile = 2000, 200
    graph = zarr.create_array(
        tmp_path / "graph.zarr", shape=(n, n), chunks=(tile, tile), dtype="float64"
    )
    rng = np.random.default_rng(9)
    ring = np.full((n, n), np.inf)
    i = np.arange(n)
    ring[i, (i + 1) % n] = rng.integers(1, 9, n)
    ring[i, (i * 7 + 3) % n] = rng.integers(50, 90, n)
    graph[:] = ring
    expected = dijkstra(as_sparse(ring))
    og.all_pairs(ring[:9, :9], method="floyd-warshall", tile=3)  # compiled before memory is counted
    gc.collect()
    tracemalloc.start()
    with og.config.set(threads=1):
        result = og.all_pairs(
            tmp_path / "graph.zarr", method="floyd-warshall", tile=tile, out=tmp_path / "out.zarr"
        )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ring.nbytes / 2
    np.testing.assert_array_equal(result.distance, expected)


class Killed(BaseException):
    """Stands for the death of a process: nothing that mends ordinary errors catches it."""


@pytest.mark.diagonal
@pytest.mark.parametrize("method", METHODS[:2])
@pytest.mark.parametrize("after", [1, 7, 20, 36])
def test_a_run_that_was_killed_goes_on(
    method: str, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(10, 60)
    options = {"method": method, "tile": 20, "predecessors": True, "out": tmp_path / "out.zarr"}
    whole = og.all_pairs(graph, method=method, tile=20, predecessors=True)
    keep = path_blocks.Blocks.keep
    kept = []

    def keep_and_die(self: path_blocks.Blocks, *arguments: object) -> None:
        keep(self, *arguments)
        kept.append(arguments[:3])
        if len(kept) == after:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(path_blocks.Blocks, "keep", keep_and_die)
        with pytest.raises(Killed):
            og.all_pairs(graph, **options)
    assert not (tmp_path / "out.zarr").exists()
    with pytest.raises(og.StoreExistsError, match="resume=True"):
        og.all_pairs(graph, **options)
    with pytest.raises(og.InputError, match="resume: the unfinished run"):
        og.all_pairs(graph * 2, **options, resume=True)
    result = og.all_pairs(graph, **options, resume=True)
    for name in ("distance", "predecessor"):
        np.testing.assert_array_equal(result[name], whole[name], strict=True)


def test_a_run_in_the_background() -> None:
    run = og.all_pairs.submit(random_graph(11, 300), tile=64)
    result = run.result(500)
    assert run.status == "finished"
    progress = run.progress()
    assert progress.done == progress.total > 0
    assert result.sizes == {"source": 300, "target": 300}


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        pytest.param(np.zeros((2, 3)), {}, r"shape \(2, 3\).*square", id="not square"),
        pytest.param(np.zeros((0, 0)), {}, r"shape \(0, 0\)", id="empty"),
        pytest.param([["a"]], {}, "are no lengths", id="no numbers"),
        pytest.param([[0, -np.inf], [1, 0]], {}, "length -inf", id="minus infinity"),
        pytest.param([[0, 0.5], [1, 0]], {"dtype": "int64"}, "length 0.5, no whole", id="half"),
        pytest.param([[0, 2**59], [1, 0]], {"dtype": "int64"}, "-2.*59 and 2.*59", id="too long"),
        pytest.param([[0, 2**57] * 2] * 4, {"dtype": "int64"}, "may pass", id="long paths"),
        pytest.param([[0, 1e308] * 2] * 4, {}, r"4 vertices .* 1e\+308 may pass", id="overflow"),
        pytest.param(
            [[0, 2e38] * 2] * 4,
            {"dtype": "float32"},
            "dtype='float64', .*no_edge=2e",
            id="float32 paths",
        ),
        pytest.param(
            [[0, 1e300], [1, 0]], {"dtype": "float32"}, "length 1e.300, beyond 3.4", id="1e300"
        ),
        pytest.param([[0]], {"no_edge": "x"}, "no_edge: 'x'", id="no_edge a word"),
        pytest.param([[0]], {"no_edge": None}, "no_edge: None.*inf to make", id="no_edge None"),
        pytest.param([[0, -1], [1, 0]], {"method": "dijkstra"}, "no negative", id="dijkstra"),
        pytest.param([[0, -1], [1, 0]], {"dtype": "float32"}, "no correct digit", id="float32"),
        pytest.param([[0]], {"method": "magic"}, "method: 'magic'", id="method"),
        pytest.param([[0]], {"dtype": "int32"}, "dtype: 'int32'", id="dtype"),
        pytest.param([[0]], {"tile": 0}, "tile=0", id="tile"),
        pytest.param([[0]], {"resume": True}, "pass out=", id="resume in memory"),
        pytest.param([[0]], {"client": 3}, "no Dask client", id="client"),
    ],
)
def test_refused_at_the_door(graph: object, options: dict, message: str) -> None:
    with pytest.raises(og.InputError, match=message):
        og.all_pairs(graph, **options)


@pytest.mark.parametrize("method", METHODS[:2])
def test_backend_cuda_gives_the_same_bits(method: str, emulated_gpu: Emulator) -> None:
    graph = random_graph(5, 40)
    options = {"method": method, "tile": 16, "predecessors": True}
    expected = og.all_pairs(graph, backend="numba", **options)
    assert emulated_gpu.launches == 0
    found = og.all_pairs(graph, backend="cuda", **options)
    assert emulated_gpu.launches > 0
    xr.testing.assert_identical(found, expected)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_rows_on_two_gpus_give_the_same_bits(
    dtype: str, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    second = Emulator("reversed")
    monkeypatch.setattr(Emulator, "peers", lambda _: [second])
    monkeypatch.setattr(on_devices, "TILES_A_DEVICE", 1)
    graph = random_graph(5, 50, signed=dtype == "float64", whole=dtype == "int64")
    options: dict[str, object] = {"method": "floyd-warshall", "tile": 16, "predecessors": True}
    options["dtype"] = dtype
    expected = og.all_pairs(graph, backend="numba", **options)
    monkeypatch.setattr(path_blocks.Blocks, "task_rest", None)  # no tasks
    found = og.all_pairs(graph, backend="cuda", **options)
    assert min(emulated_gpu.launches, second.launches) > 0
    xr.testing.assert_identical(found, expected)
    stored = og.all_pairs(graph, backend="cuda", **options, out=tmp_path / "out.zarr")
    xr.testing.assert_equal(stored, expected)
    if dtype == "float64":
        graph[3, 4], graph[4, 3] = 1, -2
        with pytest.raises(og.NegativeCycle):
            og.all_pairs(graph, backend="cuda", **options)


def test_what_no_gpu_holds_goes_through_it_in_tiles(
    emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(5, 50)
    options = {"method": "floyd-warshall", "tile": 16}
    expected = og.all_pairs(graph, backend="numba", **options)
    monkeypatch.setattr(Emulator, "free_bytes", lambda _: 50 * 50 * 8)
    monkeypatch.setattr(apsp, "solve_on_devices", None)
    xr.testing.assert_identical(og.all_pairs(graph, backend="cuda", **options), expected)
    assert emulated_gpu.launches > 0


def test_backend_auto_takes_a_gpu_for_dense_methods_alone(emulated_gpu: Emulator) -> None:
    graph = random_graph(6, 12)
    og.all_pairs(graph, method="dijkstra", backend="auto")
    assert emulated_gpu.launches == 0
    og.all_pairs(graph, method="squaring", backend="auto")
    assert emulated_gpu.launches > 0
