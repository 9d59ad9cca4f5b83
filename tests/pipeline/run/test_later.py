"""Results that Dask computes later: `.lazy` of every operation that makes rasters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array
import distributed
import numpy as np
import pandas as pd
import pytest
import rasterio
import rioxarray  # noqa: F401  (adds .rio)
import xarray as xr
from dask.delayed import Delayed
from verbs import call

import orograph as og
from orograph.run import launch

GRID = np.random.default_rng(3).integers(1, 9, (24, 20)).astype(np.float32)
AXES = {"y": 5_000_000 - 10.0 * np.arange(24), "x": 500_000 + 10.0 * np.arange(20)}
RASTER = xr.DataArray(GRID, AXES, ("y", "x")).rio.write_crs("EPSG:32633")
START = [(500_000, 5_000_000)]
EDGE = pd.DataFrame({"source": [0], "target": [30], "weight": [1.0]})
CUT = {"tile": 4, "shard": 8}

OPERATIONS: dict[str, Callable[..., Any]] = {
    "forest": lambda raster, **o: call(og.minimum_spanning_forest, raster, **CUT, **o),
    "components": lambda raster, **o: call(og.connected_components, raster > 2, **CUT, **o),
    "cost": lambda raster, **o: call(
        og.cost_distance,
        raster,
        START,
        outputs=("cost", "back_direction", "allocation"),
        **CUT,
        **o,
    ),
    "hops": lambda raster, **o: call(og.hop_distance, raster > 0, START, **CUT, **o),
    "filling": lambda raster, **o: call(
        og.fill_depressions, raster, outputs=("filled", "depth"), **CUT, **o
    ),
    "flood": lambda raster, **o: call(og.flood_level, raster, START, **CUT, **o),
}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The runs that have begun in this process."""
    runs: list[Any] = []

    class Noted(og.Run[Any]):
        def __init__(self, *given: Any, **how: Any) -> None:
            runs.append(self)
            super().__init__(*given, **how)

    monkeypatch.setattr(launch, "Run", Noted)
    return runs


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["NumPy", "Dask"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_runs_until_it_is_computed_and_then_once(
    name: str, kind: str, begun: list[Any]
) -> None:
    raster = RASTER if kind == "NumPy" else RASTER.chunk(7)
    expected = OPERATIONS[name](raster)
    begun.clear()
    later = OPERATIONS[name](raster, verb="lazy")
    assert not begun
    for variable in later.data_vars.values():
        assert variable.chunks == ((8, 8, 8), (8, 8, 4))
        assert variable.dtype == expected[variable.name].dtype
    found = later.compute()
    assert len(begun) == 1
    counted = {n for n in expected.attrs if n.endswith(("_cells", "_count", "total_weight"))}
    assert found.attrs == {n: v for n, v in expected.attrs.items() if n not in counted}
    expected.attrs = found.attrs
    xr.testing.assert_identical(found, expected)


def test_what_follows_is_lazy_too(begun: list[Any], tmp_path: Path) -> None:
    later = OPERATIONS["cost"](RASTER, verb="lazy")
    far = later["cost"].max()
    assert dask.is_dask_collection(far)
    writing = later.to_zarr(tmp_path / "r.zarr", consolidated=False, compute=False)
    assert not begun
    dask.compute(far, writing)
    assert len(begun) == 1
    expected = OPERATIONS["cost"](RASTER)
    with xr.open_zarr(tmp_path / "r.zarr", consolidated=False) as back:
        assert np.array_equal(back["cost"], expected["cost"])
        end = [(500_150, 4_999_800)]
        assert og.least_cost_path(back, end) == og.least_cost_path(expected, end)
    assert og.least_cost_path(later, end) == og.least_cost_path(expected, end)


def test_pieces_come_from_a_temporary_store_that_goes(begun: list[Any], tmp_path: Path) -> None:
    expected = OPERATIONS["cost"](RASTER)
    with og.config.set(scratch=str(tmp_path)):
        later = OPERATIONS["cost"](RASTER.chunk(7), verb="lazy")
        part = later["cost"][3:9, 5:].compute()
        assert np.array_equal(part, expected["cost"][3:9, 5:])
        assert not list(tmp_path.iterdir())
        far, near = dask.compute(later["cost"].max(), later["allocation"].min())
        assert (far, near) == (expected["cost"].max(), expected["allocation"].min())
        assert len(begun) == 3  # one to compare with, and one for each compute
        kept = later.persist()
        assert not list(tmp_path.iterdir())
        for name in expected.data_vars:
            assert np.array_equal(kept[name], expected[name], equal_nan=True)
        assert len(begun) == 4


def test_processes_of_dask_compute_it(begun: list[Any]) -> None:
    later = OPERATIONS["hops"](RASTER.chunk(7), verb="lazy")
    expected = OPERATIONS["hops"](RASTER)
    with dask.config.set(scheduler="processes", num_workers=1):
        assert np.array_equal(later["hops"].compute(), expected["hops"])


@pytest.mark.parametrize("name", [*OPERATIONS, "peaks", "depressions", "passes"])
def test_with_out_it_is_written_later(name: str, begun: list[Any], tmp_path: Path) -> None:
    operations = {
        **OPERATIONS,
        "peaks": lambda raster, **o: call(og.peaks, raster, **o),
        "depressions": lambda raster, **o: call(og.depressions, raster, labels=True, **o),
        "passes": lambda raster, **o: call(
            og.pass_elevation, raster, [*START, (500_150, 4_999_800)], **o
        ),
    }
    out = tmp_path / "r.zarr"
    later = operations[name](RASTER, out=out, verb="lazy")
    assert isinstance(later, Delayed)
    assert not begun
    assert not list(tmp_path.iterdir())
    found = later.compute()
    assert len(begun) == 1
    expected = operations[name](RASTER)
    xr.testing.assert_equal(found, expected)
    assert found.attrs == expected.attrs
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        operations[name](RASTER, out=out, verb="lazy")


MATRIX = pd.DataFrame([[0, 4, 1], [0, 0, 0], [0, 2, 0]], list("abc"), list("abc"))


def test_all_pairs_are_lazy_arrays(begun: list[Any]) -> None:
    later = og.all_pairs.lazy(MATRIX, predecessors=True, tile=2)
    assert not begun
    assert later["distance"].chunks == ((2, 1), (2, 1))
    xr.testing.assert_identical(later.compute(), og.all_pairs(MATRIX, predecessors=True, tile=2))
    assert len(begun) == 2


PAIR = START, [(500_150, 4_999_800)]
ON_GRAPHS: dict[str, Callable[..., Any]] = {
    "paths": lambda graph, **o: call(og.shortest_paths, graph, [0, 9], **o),
    "components": lambda graph, **o: call(og.connected_components, graph, **o),
    "forest": lambda graph, **o: call(og.minimum_spanning_forest, graph, **o),
    "hops": lambda graph, **o: call(og.hop_distance, graph, [0], **o),
    "some rows": lambda graph, **o: call(og.all_pairs, graph, sources=[0], **o),
    "all pairs": lambda graph, **o: call(og.all_pairs, graph, **o),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", ON_GRAPHS)
def test_results_of_graphs_are_written_later(
    name: str, parts: int, begun: list[Any], tmp_path: Path
) -> None:
    ends = np.arange(20)
    edges = pd.DataFrame({"source": ends, "target": ends + 1, "weight": ends % 3 + 1.0})
    graph = og.read_graph(edges, directed=False, parts=parts)
    later = ON_GRAPHS[name](graph, out=tmp_path / "r.zarr", verb="lazy")
    assert isinstance(later, Delayed)
    assert not begun
    assert not list(tmp_path.iterdir())
    found = later.compute()
    xr.testing.assert_equal(found, ON_GRAPHS[name](graph))
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        ON_GRAPHS[name](graph, out=tmp_path / "r.zarr", verb="lazy")


def test_answers_of_is_connected_come_later(begun: list[Any]) -> None:
    graph = og.read_graph(EDGE, directed=False)
    for mask, s, t in ((RASTER > 1, *PAIR), (graph, 0, 30)):
        later: Any = og.is_connected.lazy(mask, s, t)
        assert isinstance(later, Delayed)
        assert not begun
        now = og.is_connected(mask, s, t)
        begun.clear()
        found = later.compute()
        assert np.array_equal(found.hops, now.hops)
        assert found.paths == now.paths
        begun.clear()


def test_an_index_is_built_later(begun: list[Any], tmp_path: Path) -> None:
    later: Any = og.DistanceIndex.build.lazy(RASTER, tmp_path / "i", block=8)
    assert isinstance(later, Delayed)
    assert not begun
    assert not list(tmp_path.iterdir())
    index = later.compute()
    here, there = PAIR
    expected = og.cost_distance(RASTER, here)["cost"].sel(x=there[0][0], y=there[0][1])
    assert float(index.distance_matrix(here, there)[0, 0]) == pytest.approx(float(expected))
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        og.DistanceIndex.build.lazy(RASTER, tmp_path / "i", block=8)


def test_a_table_of_components_counts_what_a_lazy_result_has_not(begun: list[Any]) -> None:
    later = og.connected_components.lazy(RASTER > 4)
    expected = og.component_table(og.connected_components(RASTER > 4))
    begun.clear()
    assert og.component_table(later).equals(expected)
    assert len(begun) == 1


def test_a_geotiff_is_written_later(tmp_path: Path) -> None:
    later = og.cost_distance.lazy(RASTER, START, out=tmp_path / "c.tif")
    assert not list(tmp_path.iterdir())
    expected = og.cost_distance(RASTER, START)["cost"]
    assert np.array_equal(dask.compute(later)[0]["cost"], expected)
    with rasterio.open(tmp_path / "c.tif") as written:
        assert np.array_equal(written.read(1), expected)
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        og.cost_distance.lazy(RASTER, START, out=tmp_path / "c.tif")


@pytest.mark.parametrize("where", ["in memory", "in a store"])
def test_a_cluster_of_one_thread_computes_it(where: str, tmp_path: Path) -> None:
    """The run is a task, and has tasks of its own, which wait for no thread that it holds."""
    raster: Any = RASTER
    if where == "in a store":
        raster = og.ingest(RASTER, tmp_path / "dem.zarr", tile=8)
    with distributed.Client(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ):
        later = og.cost_distance.lazy(raster, START)
        found = later["cost"].compute()
    assert np.array_equal(found, og.cost_distance(RASTER, START)["cost"])


REFUSED: dict[str, Callable[..., Any]] = {
    "component_size": lambda: og.connected_components.lazy(
        RASTER > 2, outputs=("labels", "component_size")
    ),
    "peaks": lambda: og.peaks.lazy(RASTER),
    "passes": lambda: og.pass_elevation.lazy(RASTER, START),
    "depressions": lambda: og.depressions.lazy(RASTER, labels=True),
    "links": lambda: og.cost_distance.lazy(
        RASTER,
        START,
        links=og.read_graph(EDGE, directed=False),
        outputs=("cost", "back_direction"),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_tables_are_not_lazy(what: str) -> None:
    with pytest.raises(og.InputError, match=r"\.lazy: the result \w+ a table.*out="):
        REFUSED[what]()


def test_what_is_of_no_use_with_it_is_refused() -> None:
    graph = og.read_graph(EDGE, directed=False)
    for operation in (og.connected_components, og.minimum_spanning_forest):
        with pytest.raises(og.InputError, match=r"\.lazy: the result is a table.*out="):
            operation.lazy(graph)
    with pytest.raises(og.InputError, match=r"\.lazy: the result is a table.*out="):
        og.shortest_paths.lazy(graph, 0)
    with (
        distributed.Client(n_workers=1, processes=False, dashboard_address=None) as client,
        pytest.raises(og.InputError, match=r"client: not for \.lazy, .*use \.submit"),
    ):
        og.connected_components.lazy(GRID, client=client)
    with pytest.raises(og.InputError, match=r"folder .* does not exist"):
        og.connected_components.lazy(GRID, out="nowhere/c.zarr")
