"""Plans for GPUs have the tiles and tasks of runs there, and no less memory than runs took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from cuda_on_cpu.emulator import Emulator

import orograph as og
from orograph.cli.main import main
from orograph.components.components import Components
from orograph.engines import quadtree_pass
from orograph.engines.frontier import field
from orograph.engines.frontier.driver import Frontier
from orograph.engines.frontier.field import bytes_held
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.graphs.device.choice import choose_for_graph
from orograph.kernels.device import memory_for_tiles
from orograph.kernels.relax import cuda as relax_cuda
from orograph.plans import grid
from orograph.plans.grid import whole_gpu_memory
from orograph.plans.plan import GPU_CONTEXT_BYTES, MIB
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.cluster import clusters
from orograph.run.context import RunContext
from orograph.run.options import RunSpec
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.store.sink import StoreSink

CELLS = np.random.default_rng(6).integers(1, 60, (75, 90)).astype(np.float32)
FEW_CELLS = CELLS[:40, :44]
MIDDLE = [(20, 24)]
FIELD = 2048  # as it is by default
SWEEPS: dict[str, Any] = {
    "forest": (og.minimum_spanning_forest, {}),
    "components": (og.connected_components, {}),
    "filling": (og.fill_depressions, {"outputs": ("filled", "depth")}),
    "peaks": (og.peaks, {}),
    "depressions": (og.depressions, {}),
    "accumulation": (og.flow_accumulation, {}),
}
DISTANCES: dict[str, Any] = {
    "cost": (og.cost_distance, {}),
    "allocation": (og.cost_distance, {"outputs": ("cost", "allocation")}),
    "walking time": (og.walking_time, {"dtype": "float32", "connectivity": 16}),
    "hops": (og.hop_distance, {}),
}


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, emulated_gpu: Emulator) -> dict[str, Any]:
    """The context of the last run on a GPU of 16 GiB, for which few cells make several tiles."""
    monkeypatch.setattr(quadtree_pass, "SMALL_ON_GPUS", 0)
    monkeypatch.setattr(type(emulated_gpu), "free_bytes", lambda _: 2**34)
    found: dict[str, Any] = {}
    for engine in QuadtreePass, Frontier:
        run = engine.run

        def noted(self: Any, *arguments: Any, run: Any = run) -> Any:
            found.update(tree=self.context.quadtree, level=self.context.shard_level, run=self)
            return run(self, *arguments)

        monkeypatch.setattr(engine, "run", noted)
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize("shard", [8, 32])
@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_has_the_tiles_and_tasks_that_were_planned(
    name: str, shard: int, tmp_path: Path, context: dict[str, Any]
) -> None:
    operation, options = SWEEPS[name]
    if name == "accumulation":
        og.flow_direction(CELLS, out=tmp_path / "cells", tile=8)
    else:
        og.ingest(CELLS, tmp_path / "cells", tile=8)
    memory = whole_gpu_memory(memory_for_tiles())
    how = {**options, "shard": shard}
    planned = operation.plan(tmp_path / "cells", workers=0, gpu_memory=memory, **how)
    operation(tmp_path / "cells", out=tmp_path / "out", backend="cuda", **how)
    assert context["tree"].tile == planned.tile == 16
    assert planned.shard == shard
    assert planned.tiles == context["tree"].count(0) == 30
    tasks, *_ = context["run"].graph("handle")
    assert planned.tasks == len(tasks)
    asked = operation.plan(tmp_path / "cells", workers=0, gpu_memory=memory, tile=8, **how)
    assert asked.tile == 8


@pytest.mark.diagonal
@pytest.mark.parametrize("memory", [2**34, 2**17])
@pytest.mark.parametrize("name", DISTANCES)
def test_a_distance_has_the_tiles_that_were_planned(
    name: str,
    memory: int,
    tmp_path: Path,
    context: dict[str, Any],
    emulated_gpu: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(emulated_gpu), "free_bytes", lambda _: memory)
    operation, options = DISTANCES[name]
    og.ingest(FEW_CELLS, tmp_path / "cells", tile=8)
    whole = whole_gpu_memory(memory_for_tiles())
    with og.config.set(field=FIELD):
        planned = operation.plan(tmp_path / "cells", workers=0, gpu_memory=whole, **options)
        operation(tmp_path / "cells", MIDDLE, out=tmp_path / "out", backend="cuda", **options)
    assert context["tree"].tile == planned.tile
    assert (planned.tiles == 1) == (memory == 2**34)
    assert planned.tasks == 2 * context["tree"].count(context["level"])
    assert GPU_CONTEXT_BYTES < planned.memory_gpu <= whole


@pytest.mark.parametrize(
    ("memory", "tiles", "kept"), [(2**34, 1, True), (250_000, 1, False), (150_000, 4, False)]
)
def test_weights_are_kept_as_planned_where_that_leaves_the_grid_whole(
    memory: int,
    tiles: int,
    kept: bool,
    tmp_path: Path,
    context: dict[str, Any],
    emulated_gpu: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orograph.kernels.backends.memory_for_tiles", lambda: memory)
    # two warps at work in four blocks
    monkeypatch.setattr("orograph.distance.problem.MOST_REWEIGHED", 2 * 32**2)
    monkeypatch.setattr(relax_cuda, "AT_WORK", (2, 2))
    monkeypatch.setattr(field, "TILES_AT_ONCE", 2)
    og.ingest(FEW_CELLS, tmp_path / "cells", tile=32)
    whole = whole_gpu_memory(memory)
    with og.config.set(field=FIELD):
        planned = og.walking_time.plan(
            tmp_path / "cells", workers=0, gpu_memory=whole, dtype="float32"
        )
        found = og.walking_time(tmp_path / "cells", MIDDLE, backend="cuda", dtype="float32")
    assert planned.tiles == context["tree"].count(0) == tiles
    problem = context["run"].problem
    assert problem.keep_weights == kept
    held = bytes_held(context["run"].context, problem.gpu_bytes)
    assert planned.memory_gpu == GPU_CONTEXT_BYTES + min(held, memory)
    expected = og.walking_time(FEW_CELLS, MIDDLE, backend="numba", dtype="float32")
    np.testing.assert_array_equal(found["time"], expected["time"], strict=True)


@pytest.mark.parametrize("name", ["directions", "accumulation", "breached"])
def test_flow_from_heights_is_planned_in_all_its_stages(
    name: str, tmp_path: Path, context: dict[str, Any]
) -> None:
    operation, options = {
        "directions": (og.flow_direction, {"depressions": "keep"}),
        "accumulation": (og.flow_accumulation, {"method": "d8"}),
        "breached": (og.flow_accumulation, {"method": "d8", "depressions": "breach"}),
    }[name]
    plan: Any = operation.plan
    og.ingest(CELLS, tmp_path / "cells", tile=8)
    whole = whole_gpu_memory(memory_for_tiles())
    planned = plan(tmp_path / "cells", workers=0, gpu_memory=whole, **options)
    operation(tmp_path / "cells", out=tmp_path / "out", backend="cuda", **options)  # type: ignore[operator]
    assert context["tree"].tile == planned.tile
    if name == "directions":
        assert planned.tasks == 2 * context["tree"].count(context["level"])
    assert GPU_CONTEXT_BYTES < planned.memory_gpu <= whole
    # workers with GPUs have several threads, which all cross flats and dig trenches
    large = og.RasterSpec((8192, 8192))
    gpu, cpu = plan(large, gpu_memory="80 GiB", **options), plan(large, **options)
    assert gpu.threads_per_worker >= 4
    needed = [each.memory_per_worker - each.memory_kept for each in (gpu, cpu)]
    assert needed[0] > 2 * needed[1]


CONTEXT = 530  # MiB of a GPU that CUDA took before any run
# cells a side; dtype; operation; MiB of the worker, and of the arrays on its GPU: the most in some
# runs by fresh workers of 16 threads on an H100, on 16 cores. Sampled as benchmarks/gpu_memory.py
# does, which has the float32 ones; stores in tiles of 1024 and 4096
MEASURED: list[Any] = [
    (32768, "float32", og.minimum_spanning_forest, {}, 4161, 5607),
    (32768, "float32", og.fill_depressions, {}, 5737, 9199),
    (32768, "float32", og.connected_components, {}, 1984, 10254),
    (32768, "float32", og.hop_distance, {}, 2926, 25761),
    (32768, "float32", og.cost_distance, {"dtype": "float32"}, 6196, 13664),
    (16384, "float32", og.minimum_spanning_forest, {}, 2242, 2143),
    (16384, "float32", og.fill_depressions, {}, 2039, 2243),
    (16384, "float32", og.hop_distance, {}, 1124, 6441),
    (16384, "float32", og.cost_distance, {"dtype": "float32"}, 2773, 3370),
    (16384, "float64", og.minimum_spanning_forest, {}, 1685, 2544),
    (16384, "float64", og.fill_depressions, {}, 13876, 4636),  # of noise
    (16384, "float64", og.fill_depressions, {"outputs": ("filled", "depth", "depression")},
     10780, 3256),
    (16384, "float64", og.cost_distance, {"outputs": ("cost", "allocation", "back_direction")},
     7703, 12590),
    (16384, "float64", og.walking_time, {}, 2967, 33070),
]  # fmt: skip


@pytest.mark.parametrize(("side", "dtype", "operation", "options", "worker", "gpu"), MEASURED)
def test_no_less_memory_is_planned_than_a_gpu_and_its_worker_took(
    side: int,
    dtype: str,
    operation: Any,
    options: dict[str, Any],
    worker: int,
    gpu: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clusters, "cores", lambda: 16)
    monkeypatch.setattr(grid, "memory_of_machine", lambda: 128 * 2**30)
    spec = og.RasterSpec((side, side), dtype)
    with og.config.set(field=FIELD):
        planned = operation.plan(spec, workers=1, gpu_memory="79 GiB", **options)
    assert planned.threads_per_worker == 16
    assert worker < planned.memory_per_worker / MIB
    assert gpu + CONTEXT < planned.memory_gpu / MIB < 3.5 * (gpu + CONTEXT)


@pytest.mark.diagonal
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("shard", [1024, 16384])
def test_a_sweep_of_a_cluster_has_the_tasks_that_were_planned(
    workers: int, shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "cores", lambda: 8 * workers)
    monkeypatch.setattr(grid, "memory_of_machine", lambda: workers * 2**37)
    shape = 65536, 50000
    planned = og.connected_components.plan(
        og.RasterSpec(shape), workers=workers, shard=shard, gpu_memory="80 GiB"
    )
    tree, level = Quadtree(shape, 1024), (shard // 1024).bit_length() - 1
    run = RunContext(
        *(tree, level, MemoryCheckpoints(), StoreSink("nowhere"), "0" * 32),
        gpus=workers,
        gpu_memory=39 * 2**30,
        cluster_threads=8 * workers,
        worker_memory=2**37,
    )
    engine = QuadtreePass(Components(None, 8, 1, "cuda"), (), quadtree_pass.join_on_gpus(run))
    assert planned.tile == engine.context.quadtree.tile > 1024
    assert planned.threads_per_worker == 8
    assert planned.tasks == len(engine.graph("handle")[0])


def test_what_a_plan_for_gpus_depends_on() -> None:
    spec = og.RasterSpec((65536, 65536))

    def forest(**how: Any) -> og.Plan:
        return og.minimum_spanning_forest.plan(spec, **how)

    def hops(side: int = 65536, **how: Any) -> og.Plan:
        with og.config.set(field=FIELD):
            return og.hop_distance.plan(og.RasterSpec((side, side)), **how)

    large, small = forest(gpu_memory="80 GiB"), forest(gpu_memory=2 * 2**30)
    assert large.tile > small.tile >= 1024
    assert small.memory_gpu < 2 * 2**30
    assert forest().memory_gpu == 0
    assert forest().tile == 1024
    assert forest(gpu_memory="80 GiB", workers=0).memory_per_worker == 0
    sources, how = [(4, 4), (9, 9)], {"gpu_memory": "8 GiB", "workers": 0}
    one, several = (
        og.cost_distance.plan(og.RasterSpec((4096, 4096)), sources, source_cost=costs, **how)
        for costs in (None, {"multiplier": [1.0, 2.0]})
    )
    assert several.memory_client > one.memory_client + 2 * one.bytes_written  # results in memory
    one, two = (hops(gpu_memory="80 GiB", workers=n) for n in (1, 2))
    assert one.tiles == two.tiles == 64  # no GPU holds the grid
    assert hops(32768, gpu_memory="80 GiB").tiles == 1
    assert hops(32768, gpu_memory="40 GiB").tiles > 1
    assert "a worker of " in str(one)
    assert "of each GPU" in str(one)
    assert "GPU" not in str(hops())
    assert hops(gpu_memory="1 GiB", workers=2).memory_gpu <= 2**30


@pytest.mark.parametrize(
    ("operation", "options", "says"),
    [
        (og.hop_distance, {"gpu_memory": "much"}, "gpu_memory: 'much'; give bytes, at least 1"),
        (og.peaks, {"gpu_memory": True}, "gpu_memory: True; give bytes"),
        (og.peaks, {"gpu_memory": "0.5 GiB"}, "gpu_memory: '0.5 GiB'; CUDA itself takes"),
        (og.polygonize, {"gpu_memory": "8 GiB"}, "gpu_memory: polygonize is planned for CPUs"),
        (og.hop_distance, {"gpu_memory": "8 GiB", "memory_limit": 9}, "memory_limit: 9; on GPUs"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_for_gpus_is_refused(
    operation: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises((og.InputError, TypeError), match=says):
        operation.plan(og.RasterSpec((9, 9)), **options)


def test_eikonal_distances_have_the_tiles_that_were_planned(
    tmp_path: Path, context: dict[str, Any]
) -> None:
    og.ingest(FEW_CELLS, tmp_path / "cells", tile=16)
    planned = og.cost_distance.plan(
        tmp_path / "cells", workers=0, gpu_memory="8 GiB", cost="eikonal"
    )
    expected = og.cost_distance(FEW_CELLS, MIDDLE, backend="numba", cost="eikonal")
    found = og.cost_distance(tmp_path / "cells", MIDDLE, backend="cuda", cost="eikonal")
    assert context["tree"].tile == planned.tile == 16
    assert planned.memory_gpu >= GPU_CONTEXT_BYTES + 16 * 16**2
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


def test_blocks_of_an_index_and_searches_are_planned_for_gpus() -> None:
    spec = og.RasterSpec((8192, 8192))
    build, connected = og.DistanceIndex.build.plan, og.is_connected.plan
    for plan in build, connected:
        gpu, cpu, alone = (
            plan(spec, workers=workers, gpu_memory=memory)
            for workers, memory in ((1, "80 GiB"), (1, None), (0, "80 GiB"))
        )
        assert gpu.memory_gpu > GPU_CONTEXT_BYTES
        assert (cpu.memory_gpu, cpu.threads_per_worker) == (0, 1)
        assert gpu.threads_per_worker >= 4
        assert alone.memory_gpu > 0 == alone.memory_per_worker
    # states of tiles beyond the memory of the GPU leave it
    assert connected(og.RasterSpec((65536, 65536)), gpu_memory="8 GiB").memory_gpu < 2**33
    assert build(spec, gpu_memory="80 GiB").memory_gpu > 2**30  # as many blocks as fill it at once


@pytest.mark.parametrize("memory", [5 * 2**20, 100 * 2**20])
def test_a_graph_is_planned_where_it_runs(
    memory: int, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(emulated_gpu), "free_bytes", lambda _: memory)
    graph = og.read_graph(
        scipy.sparse.random_array((2000, 2000), density=0.02, rng=3), directed=False
    )
    chosen = choose_for_graph("graph_forest", graph, RunSpec())
    planned = og.minimum_spanning_forest.plan(
        graph, workers=0, gpu_memory=memory + GPU_CONTEXT_BYTES
    )
    assert (planned.memory_gpu > 0) == (chosen == "cuda")
    assert (chosen == "cuda") == (memory == 100 * 2**20)


def test_all_pairs_are_planned_for_gpus() -> None:
    square = og.RasterSpec((8192, 8192))
    held, tiles, cluster = (
        og.all_pairs.plan(square, workers=workers, gpu_memory=memory)
        for workers, memory in ((0, "8 GiB"), (0, "1 GiB"), (1, "8 GiB"))
    )
    assert held.memory_gpu > GPU_CONTEXT_BYTES + 8 * 8192**2 > tiles.memory_gpu
    assert cluster.memory_gpu < held.memory_gpu


def test_a_report_of_a_run_on_a_gpu_compares_it_with_its_plan(
    context: dict[str, Any], tmp_path: Path
) -> None:
    og.ingest(CELLS, tmp_path / "cells", tile=8)
    run = og.minimum_spanning_forest.submit(
        tmp_path / "cells", out=tmp_path / "out", backend="cuda"
    )
    run.result()
    planned = og.minimum_spanning_forest.plan(
        tmp_path / "cells", workers=0, gpu_memory=whole_gpu_memory(memory_for_tiles())
    )
    assert run.report()["memory"]["planned"]["client"] == planned.memory_client


def test_plans_for_gpus_from_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--shape", "32768", "32768", "--gpu-memory", "80 GiB"]
    assert main(["plan", "mst", *shape]) == 0
    assert "of each GPU" in capsys.readouterr().out
