"""Sweeps on GPUs over larger tiles than those of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_joined_tiles
import numpy as np
import pytest
import xarray as xr
from cuda_on_cpu.emulator import Emulator, find_compiler
from kill_joined_tiles import JOINED, TILES
from programs import run_script
from watched_raster import Gate, WatchedRaster, wait_until

import orograph as og
from orograph.engines import quadtree_pass
from orograph.engines.quadtree_pass import QuadtreePass, join_on_gpus, join_tiles
from orograph.run.checkpoints import MemoryCheckpoints, StoredCheckpoints
from orograph.run.context import RunContext
from orograph.tiles.errors import Cancelled
from orograph.tiles.grid.quadtree import Node, Quadtree
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ArraySink, StoreSink

OPERATIONS: dict[str, Callable[..., xr.Dataset]] = {
    "forest": og.minimum_spanning_forest,
    "components": lambda cells, **o: og.connected_components(
        cells, outputs=("labels", "component_size"), **o
    ),
    "filling": og.fill_depressions,
    "peaks": og.peaks,
    "directions": og.flow_direction,
    "accumulation": lambda cells, **o: og.flow_accumulation(cells, method="d8", **o),
}
EVERYWHERE = (np.arange(20) / 20).tolist()
SCRIPT = Path(kill_joined_tiles.__file__)


def heights(shape: tuple[int, int] = (75, 90)) -> np.ndarray:
    cells = np.random.default_rng(5).integers(0, 60, shape).astype(np.float32)
    cells[20:40, 50:60] = np.nan
    return cells


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Sides of the trees' tiles over which sweeps went; few cells do not make one tile."""
    monkeypatch.setattr(quadtree_pass, "SMALL_ON_GPUS", 0)
    found: set[int] = set()
    leaf = QuadtreePass._climb

    def noted(run: QuadtreePass, node: Node) -> Any:
        found.add(run.context.quadtree.tile)
        return leaf(run, node)

    monkeypatch.setattr(QuadtreePass, "_climb", noted)
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize("shard", [8, 128], ids=["shards of a tile", "one shard"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_tiles_joined_for_a_gpu_give_the_same_bits(
    name: str, shard: int, tmp_path: Path, sides: set[int], emulated_gpu: Emulator
) -> None:
    store = tmp_path / "heights.zarr"
    og.ingest(heights(), store, tile=8)
    expected = OPERATIONS[name](heights(), backend="numba")
    sides.clear()
    found = OPERATIONS[name](
        store, out=tmp_path / "out.zarr", shard=shard, backend="cuda", overwrite=True
    )
    assert sides == {16}  # five by six of them
    assert emulated_gpu.launches > 0
    for variable in expected:
        np.testing.assert_array_equal(found[variable], expected[variable], strict=True)
    assert og.verify(tmp_path / "out.zarr").ok
    sides.clear()
    again = OPERATIONS[name](store, tile=8, backend="cuda")
    assert sides == {8}  # as asked
    for variable in expected:
        np.testing.assert_array_equal(again[variable], expected[variable], strict=True)


@pytest.mark.parametrize(
    ("gpus", "threads", "gpu_memory", "memory", "expected"),
    [
        (1, 0, 2**40, 2**40, 8192),
        (2, 0, 2**40, 2**40, 8192),
        (3, 0, 2**40, 2**40, 4096),  # of 8192 cells a side there are 16
        (1, 16, 2**40, 2**40, 8192),
        (1, 0, 16 * 30 * 4096**2, 2**40, 4096),  # of three fifths of it each cell takes 18 bytes
        (1, 0, 16 * 30 * 4096**2 - 1, 2**40, 2048),
        (1, 0, 2**40, 16 * 64 * 2048**2, 2048),
        (1, 8, 2**40, 16 * 64 * 2048**2, 2048),
        (0, 0, 0, 2**40, 1024),
    ],
)
def test_tiles_are_joined_as_far_as_memory_allows(
    tmp_path: Path, gpus: int, threads: int, gpu_memory: int, memory: int, expected: int
) -> None:
    tree, shape = Quadtree((32768, 32768), 1024), (32768, 32768)
    (tmp_path / "kept").mkdir()
    for join in join_tiles, join_on_gpus:
        context = RunContext(
            *(tree, 1, StoredCheckpoints(tmp_path / "kept", began_empty=True)),
            *(StoreSink(tmp_path / "out.zarr"), "token", threads),
            gpus=gpus,
            gpu_memory=gpu_memory,
            cluster_threads=0 if threads else 16 * gpus,
            worker_memory=memory,
        )
        joined = join(context)
        assert joined.tree == Quadtree(shape, expected)
        assert joined.shard == (2048 if expected > 2048 else 0)
        found = [
            shard for node in joined.tree.nodes(joined.shard_level) for shard in joined.shards(node)
        ]
        assert sorted(found) == sorted(map(tree.window, tree.nodes(1)))
        (tmp_path / "kept" / "field-5" / "0").unlink(missing_ok=True)


def test_tiles_of_some_sweeps_in_memory_are_joined_for_a_gpu_alone() -> None:
    def joined(join: Callable[[RunContext], RunContext], gpus: int, side: int = 8192) -> int:
        tree, memory = Quadtree((side, side), 256), {"gpus": gpus, "gpu_memory": 2**40}
        context = RunContext(tree, 0, MemoryCheckpoints(), ArraySink({}), "token", 1, **memory)
        return join(context).quadtree.tile

    assert joined(join_tiles, 0) == 8192
    assert joined(join_on_gpus, 0) == 256
    assert joined(join_tiles, 1) == joined(join_on_gpus, 1) == 4096
    assert joined(join_on_gpus, 1, 4096) == 4096  # one tile
    assert joined(join_on_gpus, 1, 20_000) == 4096
    assert joined(join_on_gpus, 1, 25_000) == 8192


@pytest.mark.diagonal
@pytest.mark.parametrize("name", ["forest", "components", "accumulation"])
@pytest.mark.parametrize("order", [("cuda", "numba"), ("numba", "cuda")], ids="-".join)
def test_a_run_is_resumed_on_another_backend_over_the_tiles_that_it_had(
    name: str,
    order: tuple[str, str],
    tmp_path: Path,
    gate: Gate,
    sides: set[int],
    emulated_gpu: Emulator,
) -> None:
    store, out = tmp_path / "heights.zarr", tmp_path / "out.zarr"
    og.ingest(heights(), store, tile=8)
    before, after = order
    gate.shut(after=3)
    watched = WatchedRaster(store, tmp_path / "diary", gate=gate)
    given = {"method": "d8"} if name == "accumulation" else {}
    operation = {
        "forest": og.minimum_spanning_forest,
        "components": og.connected_components,
        "accumulation": og.flow_accumulation,
    }[name]
    run = operation.submit(watched, out=out, shard=8, backend=before, **given)
    wait_until(gate.held)
    run.cancel()
    gate.open()
    with pytest.raises(Cancelled):
        run.result()
    first, expected = set(sides), operation(heights(), backend="numba", **given)
    assert first == ({16} if before == "cuda" else {8})
    sides.clear()
    found = operation(StoreRaster(store), out=out, shard=8, backend=after, resume=True, **given)
    assert first <= sides  # later stages of a run may have others
    for variable in expected:
        np.testing.assert_array_equal(found[variable], expected[variable], strict=True)


@pytest.mark.skipif(
    find_compiler() is None, reason="no C++ compiler to run CUDA kernels on the CPU"
)
@pytest.mark.parametrize(
    ("name", "shares"),
    [
        pytest.param("forest", [0.6, 0.2, 0.9], id="forest"),
        pytest.param("forest", EVERYWHERE, id="forest-20", marks=pytest.mark.long),
        pytest.param("components", EVERYWHERE, id="components-20", marks=pytest.mark.long),
    ],
)
def test_a_killed_run_goes_on_over_its_joined_tiles_on_either_backend(
    name: str, shares: list[float], tmp_path: Path
) -> None:
    killed: list[dict[str, Any]] = run_script(SCRIPT, tmp_path, tmp_path, name, *shares)
    for row in killed:
        assert row["killed"]
        assert row["same_bits"]
        assert row["sides"] == [JOINED] * (TILES - row["summarised"])
    for kind in "summarised", "written":
        assert any(0 < row[kind] < TILES for row in killed)
