"""What is planned is what comes: numbers of an index to the byte, its disk and memory nearly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
import pytest
from any_model import build
from scipy import sparse

import orograph as og
from orograph.cli.main import main
from orograph.components.components import Components
from orograph.engines.frontier.field import join_tiles
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.graphs.dense_paths import blocked
from orograph.index.distance_index import DistanceIndex
from orograph.index.store import IndexStore
from orograph.operations.plan import plan_job
from orograph.plans.formulas import Request
from orograph.plans.grid import open_grid
from orograph.plans.plan import CLIENT_BYTES
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.run.context import RunContext
from orograph.run.options import BYTES_A_SHARD
from orograph.run.problem import ProblemFacts
from orograph.tiles.grid.quadtree import Quadtree
from orograph.tiles.store.create import Layout
from orograph.tiles.store.sink import ArraySink, StoreSink

Array = npt.NDArray[Any]


OPERATIONS: list[Any] = [
    og.minimum_spanning_forest, og.cost_distance, og.walking_time, og.hop_distance,
    og.connected_components, og.is_connected, og.all_pairs,
    og.fill_depressions, og.flood_level, og.pass_elevation, og.peaks, og.depressions,
    og.breach_depressions, og.flow_direction, og.flow_accumulation, og.watersheds,
    og.flow_distance, og.height_above_drainage, og.upstream, og.upstream_length, og.streams,
    og.drainage_network, og.downstream,
    og.polygonize, og.isochrones, og.region_network, og.linkages, og.zonal,
    og.catchments, og.site, og.floating_catchments,
    og.DistanceIndex.build,
]  # fmt: skip


def fractal(shape: tuple[int, int]) -> Array:
    """Smooth heights, some hundred metres high."""
    rng = np.random.default_rng(3)
    frequency = np.fft.fftfreq(shape[0])[:, None] ** 2 + np.fft.rfftfreq(shape[1])[None] ** 2
    frequency[0, 0] = 1
    spectrum = np.fft.rfft2(rng.standard_normal(shape)) * frequency**-1.1
    heights = np.fft.irfft2(spectrum, s=shape)
    return 600 * (heights - heights.min()) / np.ptp(heights)


def rough(shape: tuple[int, int]) -> Array:
    """Friction without any order."""
    return np.random.default_rng(4).uniform(1, 10, shape)


FORMS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "whole blocks": ((32, 48), {"block": 4, "levels": 2}),
    "ragged at both edges": ((45, 61), {"block": 4, "levels": 1}),
    "one ragged block": ((13, 7), {"block": 32, "levels": 0}),
    "a last row and column of one cell": ((33, 17), {"block": 8, "levels": 0}),
    "one row": ((1, 50), {"block": 8, "levels": 0}),
    "blocks of one cell": ((5, 6), {"block": 1, "levels": 0}),
    "single precision": ((45, 61), {"block": 8, "dtype": "float32"}),
    "whole numbers": ((45, 61), {"block": 8, "dtype": "int64", "connectivity": 4}),
    "sums left out": ((45, 61), {"block": 8, "sparsify": True}),
}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("cost", "form"),
    [(cost, form) for cost in ("friction", "absolute_difference", "tobler") for form in FORMS
     if (cost, form) != ("tobler", "whole numbers")],
)  # fmt: skip
def test_an_index_has_the_numbers_that_were_planned(cost: str, form: str, tmp_path: Path) -> None:
    shape, options = FORMS[form]
    heights = None if cost == "friction" else np.floor(fractal(shape))
    friction = None if cost == "absolute_difference" else 2 * np.floor(rough(shape))
    index = build(friction, tmp_path / "i", elevation=heights, cost=cost, cell_size=1, **options)
    given = {"friction": og.RasterSpec(shape)} if cost == "tobler" else {}
    planned = og.DistanceIndex.build.plan(og.RasterSpec(shape), cost=cost, **given, **options)
    assert planned.bytes_written == index.bytes_uncompressed
    assert planned.bytes_per_cell == index.bytes_uncompressed / (shape[0] * shape[1])
    assert planned.tiles == index.blocks
    # counted from what is stored, block by block
    store = IndexStore.open(tmp_path / "i")
    blocks = [store.read(number)[:2] for number in range(index.blocks)]
    cells = shape[0] * shape[1] * len(store.rasters)
    numbers = sum(matrix.size + leaving.size for matrix, leaving in blocks) + cells
    if options.get("sparsify"):
        # a bit for each entry, in whole numbers
        numbers += sum(-(-matrix.size // 64) for matrix, _ in blocks)
    assert index.bytes_uncompressed == numbers * blocks[0][0].itemsize
    # headers and checksums of objects, and metadata, are all that may come on top
    files = [entry for entry in (tmp_path / "i").rglob("*") if entry.is_file()]
    numbers_in = [path for path in files if "c" in path.relative_to(tmp_path).parts[:3]]
    metadata = sum(path.stat().st_size for path in files if path not in numbers_in)
    assert metadata < 15_000
    tiles = (store.form.layout.shard // store.form.side) ** 2
    overhead = metadata + 20 * index.blocks + 40 * tiles * len(numbers_in) + store.lengths.nbytes
    assert index.nbytes <= index.bytes_uncompressed + overhead


@pytest.mark.parametrize("shape", [(70, 90), (33, 32), (64, 65), (5, 200), (97, 1)])
def test_shards_of_an_index_are_counted_without_listing_them(shape: tuple[int, int]) -> None:
    planned = og.DistanceIndex.build.plan(og.RasterSpec(shape), block=2, levels=0)
    layout = Layout(2, planned.shard)
    read = [window.grow(1).clip(shape).size for window in layout.windows(shape)]
    assert (planned.tasks, planned.bytes_read) == (len(read), 8 * sum(read))


@pytest.mark.parametrize(
    "operation",
    [
        og.minimum_spanning_forest,
        og.cost_distance,
        og.connected_components,
        og.DistanceIndex.build,
    ],
)
def test_a_grid_of_any_size_is_planned_at_once(operation: Any) -> None:
    def plan(side: int) -> og.Plan:
        return operation.plan(og.RasterSpec((side, side)))

    plan(10)
    started = time.process_time()
    planned = plan(10**18)
    assert time.process_time() - started < 1
    assert planned.bytes_written >= 10**36


def test_what_a_build_reads_and_copies(tmp_path: Path) -> None:
    friction = np.ones((70, 90), np.float32)
    in_memory = og.DistanceIndex.build.plan(friction, block=8, levels=0)
    assert in_memory.shard == 128
    assert in_memory.bytes_read == in_memory.bytes_checkpoints == friction.nbytes
    og.ingest(friction, tmp_path / "f", tile=16)
    stored = og.DistanceIndex.build.plan(tmp_path / "f", block=2, levels=0)
    assert stored.bytes_checkpoints == 0
    # shards of 32 cells a side, and one more on each side where there is any
    rows, columns = (33 + 34 + 7), (33 + 34 + 27)
    assert (stored.shard, stored.tasks) == (32, 9)
    assert stored.bytes_read == rows * columns * 4


WORKER = """
import sys, orograph as og
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
if __name__ == "__main__":
    raster, out = sys.argv[1:]
    options = dict(threads_per_worker=1, memory_limit="8 GiB", dashboard_address=None)
    with og.cluster(n_workers=1, **options) as client:
        {work}
        print(*client.run(peak).values(), peak())
"""


def peaks_of(work: str, raster: Path, out: Path, cache: Path | None = None) -> list[int]:
    """Peak resident bytes of a worker and of the client while they do some work.

    ``cache`` is a folder for compiled kernels; if it is empty, the client compiles them, whatever
    was run before.
    """
    environment = {"NUMBA_CACHE_DIR": str(cache)} if cache else {}
    sent = subprocess.run(
        [sys.executable, "-c", WORKER.format(work=work), str(raster), str(out)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [int(peak) for peak in sent.stdout.split()]


@pytest.mark.long  # as of a distance, below
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read peaks from")
def test_a_build_keeps_to_the_memory_that_was_planned(tmp_path: Path) -> None:
    og.ingest(rough((512, 1024)), tmp_path / "f")
    planned = og.DistanceIndex.build.plan(og.RasterSpec((512, 1024)), block=256)
    # compile the kernels here: that takes memory of its own
    DistanceIndex.build(rough((8, 8)), tmp_path / "small")
    work = "og.DistanceIndex.build(raster, out, block=256, client=client)"
    worker, client = peaks_of(work, tmp_path / "f", tmp_path / "i")
    assert 0.6 < worker / planned.memory_per_worker < 1.05
    assert client < 1.1 * planned.memory_client


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read peaks from")
def test_a_distance_takes_the_memory_that_was_planned(tmp_path: Path) -> None:
    friction = rough((3072, 3072)).astype(np.float32)
    og.ingest(friction, tmp_path / "f")
    planned = og.cost_distance.plan(tmp_path / "f", memory_limit="8 GiB")
    # compile kernels here: that takes memory of its own, which is not planned
    og.cost_distance(friction[:8, :8], [(0, 0)], out=tmp_path / "small")
    work = "og.cost_distance(raster, [(1500, 1500)], out=out, client=client)"
    worker, client = peaks_of(work, tmp_path / "f", tmp_path / "c")
    assert worker == pytest.approx(planned.memory_per_worker, rel=0.15)
    # the least where all kernels are in the cache, as on a second run of the tests
    assert 0.8 < client / planned.memory_client < 1.15


@pytest.mark.long  # as of a distance, above
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read peaks from")
def test_depressions_take_no_more_memory_than_was_planned(tmp_path: Path) -> None:
    heights = rough((1024, 2048)).astype(np.float32)
    og.ingest(heights, tmp_path / "z", tile=512, shard=1024)
    planned = og.depressions.plan(tmp_path / "z")
    og.depressions(heights[:8, :8], out=tmp_path / "small")
    work = "og.depressions(raster, out=out, client=client)"
    worker, client = peaks_of(work, tmp_path / "z", tmp_path / "d")
    assert 0.6 < worker / planned.memory_per_worker < 1.05
    assert 0.6 < client / planned.memory_client < 1.05


def test_the_client_of_depressions_needs_memory_for_a_row_of_shards() -> None:
    shapes = (2048, 32768), (8192, 8192), (2048 * 64, 8192)
    wide, narrow, long = (og.depressions.plan(og.RasterSpec(shape)) for shape in shapes)
    assert wide.bytes_written == narrow.bytes_written
    bytes_of_row = 2 * 2048 * 8192 / 9 * 220
    for plan in (narrow, long):
        assert plan.memory_table == pytest.approx(bytes_of_row, rel=0.1)
    assert wide.memory_table == pytest.approx(4 * bytes_of_row, rel=0.1)


TABLE = ("labels", "component_size", "component_box")


@pytest.mark.parametrize("plan", [og.minimum_spanning_forest.plan, og.fill_depressions.plan])
def test_a_scheduler_knows_a_few_tasks_of_a_large_run(plan: Callable[..., Any]) -> None:
    small, large, huge = (plan(og.RasterSpec((2**n, 2**n)), workers=8) for n in (12, 19, 22))
    assert small.memory_client < large.memory_client == huge.memory_client
    assert huge.tasks > 60 * large.tasks
    assert plan(og.RasterSpec((2**20, 2**20)), workers=1000).memory_client < 2**30


@pytest.mark.parametrize("workers", [0, 1, 2, 8, 64, 65, 1000])
def test_a_plan_counts_the_tasks_that_a_run_has(workers: int) -> None:
    shape = 300, 280  # 38 x 35 shards
    spec = og.RasterSpec(shape)
    planned = og.connected_components.plan(spec, tile=4, shard=8, workers=workers)
    tree, nothing = Quadtree(shape, 4), MemoryCheckpoints()
    threads = 0 if workers else 1
    context = RunContext(
        tree, 1, nothing, ArraySink({}), "0" * 32, threads, cluster_threads=workers
    )
    tasks, *_ = QuadtreePass(Components(None, 8, 1, "numba"), (), context).graph("handle")
    assert len(tasks) == planned.tasks
    levels = 19 * 18, 10 * 9, 5 * 5, 3 * 3, 2 * 2, 1
    one_a_task = 38 * 35 + sum(levels[0 if workers == 0 else 1 :])
    assert (planned.tasks == 2 * one_a_task + 1) == (workers not in (1, 2, 8))


def test_a_scheduler_of_its_own_process_is_planned() -> None:
    small, large = (og.minimum_spanning_forest.plan(og.RasterSpec((2**n,) * 2)) for n in (12, 20))
    assert small.memory_scheduler == 110 * 2**20 + small.tasks * 20_000
    assert large.memory_scheduler == 110 * 2**20 + large.memory_client - CLIENT_BYTES
    assert "more for a scheduler of its own process" in str(large)
    assert og.minimum_spanning_forest.plan(og.RasterSpec((99, 99)), workers=0).memory_scheduler == 0


def test_more_shards_than_memory_holds_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = np.zeros((64, 64), np.float32)
    og.ingest(cells, tmp_path / "cells.zarr", tile=4, shard=4)
    many = r"shard: 256 shards of 4 cells a side take .* pass tile=1024, shard=2048, which are 1 sh"
    spec = og.RasterSpec(cells.shape)
    assert "warning" not in str(og.minimum_spanning_forest.plan(spec, tile=4, shard=4))
    for module in ("plans.plan", "run.session"):
        monkeypatch.setattr(f"orograph.{module}.memory_of_machine", lambda: 500 * BYTES_A_SHARD)
    assert re.search(
        f"warning: {many}", str(og.minimum_spanning_forest.plan(spec, tile=4, shard=4))
    )
    assert "warning" not in str(og.minimum_spanning_forest.plan(spec, tile=4, shard=8))
    with og.cluster(1, processes=False, dashboard_address=None) as client:
        for shard in (4, 8):
            how = {"shard": shard, "out": tmp_path / f"{shard}.zarr", "client": client}
            with pytest.warns(RuntimeWarning, match=many) if shard == 4 else nullcontext():
                og.minimum_spanning_forest(tmp_path / "cells.zarr", **how)


def test_a_plan_of_components_knows_what_is_asked_for() -> None:
    plans = {
        name: og.connected_components.plan(og.RasterSpec((8192, 8192)), **options)
        for name, options in {
            "usual": {},
            "int32": {"dtype": "int32"},
            "large ones": {"min_size": 2},
            "sizes": {"outputs": ("labels", "component_size")},
            "table": {"outputs": TABLE},
        }.items()
    }
    cells = 8192 * 8192
    written = {name: plan.bytes_written for name, plan in plans.items()}
    rows = cells // 10 + 1
    assert written["usual"] == written["large ones"] == cells * 8 == 2 * written["int32"]
    assert written["sizes"] == cells * 8 + rows * 8
    assert written["table"] == cells * 8 + rows * 40
    worker = {name: plan.memory_per_worker for name, plan in plans.items()}
    assert worker["usual"] - worker["int32"] == 4 * plans["usual"].shard ** 2
    assert worker["usual"] < worker["large ones"] == worker["table"]
    assert plans["usual"].memory_table == plans["large ones"].memory_table == 0
    assert plans["table"].memory_table == plans["sizes"].memory_table > 0
    checkpoints = {name: plan.bytes_checkpoints for name, plan in plans.items()}
    assert checkpoints["usual"] < checkpoints["large ones"] < checkpoints["table"]


def test_a_plan_of_distances_knows_what_is_asked_for() -> None:
    def plan(of: Any = og.cost_distance, **options: Any) -> og.Plan:
        found: og.Plan = of.plan(og.RasterSpec((4096, 4096)), memory_limit="8 GiB", **options)
        return found

    cells = 4096 * 4096
    usual, small = plan(), plan(dtype="float32")
    assert (usual.bytes_written, small.bytes_written) == (cells * 8, cells * 4)
    assert (usual.memory_kept, small.memory_kept) == (cells * 16, cells * 8)
    assert plan(og.walking_time).memory_kept == cells * 24
    assert plan(og.walking_time, model="walk") == plan(og.walking_time)
    assert plan(cost="absolute_difference") == usual
    whole = plan(outputs=("cost", "back_direction", "allocation"))
    assert (
        whole.bytes_written
        == cells * (8 + 1 + 8)
        == plan(outputs="allocation").bytes_written + cells
    )
    assert whole.memory_kept == cells * 21


@pytest.mark.parametrize("operation", [og.cost_distance, og.hop_distance])
@pytest.mark.parametrize(
    ("threads", "field", "tile"), [(1, 2048, 2048), (4, 2048, 2048), (1, 0, 1024), (12, 2048, 1024)]
)
def test_a_plan_without_a_cluster_joins_tiles_as_the_run_does(
    operation: Any, threads: int, field: int, tile: int
) -> None:
    shape = 8192, 8192
    with og.config.set(threads=threads, field=field):
        alone = operation.plan(og.RasterSpec(shape), workers=0)
        grid = open_grid(og.RasterSpec(shape))
        context = RunContext(
            *(grid.tree, 1, MemoryCheckpoints(), StoreSink("nowhere"), "", threads)
        )
        assert join_tiles(context).quadtree.tile == tile
    assert (alone.tile, alone.tiles) == (tile, (8192 // tile) ** 2)
    assert (alone.memory_per_worker, alone.workers) == (0, 0)
    assert alone.memory_total == alone.memory_client > alone.memory_kept > 0
    worker = operation.plan(og.RasterSpec(shape), workers=1)
    assert (worker.tile, worker.bytes_written) == (1024, alone.bytes_written)
    assert "in this process" in str(alone)
    assert "without a cluster" in str(alone)
    with pytest.raises(og.InputError, match=r"memory_limit: '4 GiB' is what a worker may use, and"):
        operation.plan(og.RasterSpec(shape), workers=0, memory_limit="4 GiB")


def test_threads_of_one_process_need_no_other_process() -> None:
    for operation in OPERATIONS:
        with og.config.set(threads=1):
            one = operation.plan(og.RasterSpec((3000, 3000)), workers=0)
        with og.config.set(threads=3):
            three = operation.plan(og.RasterSpec((3000, 3000)), workers=0)
        worker = operation.plan(og.RasterSpec((3000, 3000)), workers=1)
        assert one.memory_total < worker.memory_total, operation
        assert one.memory_total < three.memory_total, operation
        assert (one.bytes_written, one.shape) == (worker.bytes_written, worker.shape)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read peaks from")
def test_a_process_alone_keeps_to_the_memory_that_was_planned(tmp_path: Path) -> None:
    # large beside what kernels that are compiled first take
    og.ingest(rough((3072, 3072)).astype(np.float32), tmp_path / "f", tile=512)
    og.cost_distance(rough((8, 8)).astype(np.float32), [(0, 0)])  # compiles the kernels
    with og.config.set(field=2048, threads=1):
        planned = og.cost_distance.plan(tmp_path / "f", workers=0)
    assert planned.tiles == 4
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "f"), str(tmp_path / "c")],
        env={**os.environ, "OROGRAPH_FIELD": "2048", "OROGRAPH_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0.7 < int(done.stdout) / planned.memory_total < 1.05


ALONE = """
import sys, orograph as og
og.cost_distance(sys.argv[1], [(1000, 1000)], out=sys.argv[2])
lines = open("/proc/self/status").read().splitlines()
print(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024)
"""


def test_a_plan_of_components_grows_with_how_many_there_are() -> None:
    shape = 8192, 8192
    usual, none = (
        og.connected_components.plan(og.RasterSpec(shape), outputs=TABLE, **more)
        for more in ({}, {"components": 0})
    )
    quarter = shape[0] * shape[1] // 4
    many = og.connected_components.plan(og.RasterSpec(shape), outputs=TABLE, components=quarter)
    assert none.bytes_written == shape[0] * shape[1] * 8
    assert many.bytes_written == none.bytes_written + shape[0] * shape[1] // 4 * 40
    assert none.memory_per_worker < usual.memory_per_worker < many.memory_per_worker
    assert none.memory_client < usual.memory_client < many.memory_client
    assert usual.tasks == og.minimum_spanning_forest.plan(og.RasterSpec(shape)).tasks
    large = og.connected_components.plan(og.RasterSpec((4 * 8192, 8192)), outputs=TABLE)
    # a worker's share grows with the perimeter alone
    assert large.memory_per_worker - usual.memory_per_worker < 30_000 * 6 * 200


def test_a_plan_of_a_raster_is_that_of_its_shape() -> None:
    """Plans read no cells: what depends on them is bounded by what white noise has."""
    noise = np.random.default_rng(0).random((1000, 900)).astype(np.float32)
    for operation in (og.peaks, og.depressions, og.fill_depressions, og.connected_components):
        planned = operation.plan(og.RasterSpec(noise.shape))
        assert operation.plan(noise) == planned
        assert operation.plan(np.zeros_like(noise)) == planned
    peaks = og.peaks(noise)
    assert peaks.sizes["peak"] == pytest.approx(noise.size / 9, rel=0.02)


def test_floats_under_water_are_planned_by_the_cell_and_integers_by_the_pit() -> None:
    how = {"workers": 2, "pits": 1000}
    floats, integers = (
        og.depressions.plan(og.RasterSpec((8192, 8192), dtype), **how)
        for dtype in ("float32", "int32")
    )
    heights = 0.4 * 24 * floats.shard**2  # bytes of those of a shard
    assert floats.memory_per_worker > integers.memory_per_worker + heights
    assert floats.memory_client > integers.memory_client + heights
    assert floats.bytes_checkpoints > integers.bytes_checkpoints + 0.4 * 24 * 8192**2 - 1e6


def test_a_distance_keeps_tiles_in_what_it_leaves_of_a_worker() -> None:
    shape = 6144, 6144
    plans = {
        (limit, workers): og.cost_distance.plan(
            og.RasterSpec(shape), memory_limit=limit, workers=workers
        )
        for limit in ("100 MiB", "1 GiB", "8 GiB")
        for workers in (1, 3)
    }
    kept = {key: plan.memory_kept for key, plan in plans.items()}
    # of a worker as small as this nothing is left before Dask pauses it
    assert kept["100 MiB", 1] == kept["100 MiB", 3] == 0
    tight = plans["1 GiB", 1]
    assert 0 < tight.memory_kept < 2**29
    assert tight.memory_per_worker == int(0.8 * 2**30)
    # distance and friction of all cells; three of nine shards for each of three workers
    assert kept["8 GiB", 1] == 6144 * 6144 * 16 == 3 * kept["8 GiB", 3]
    needed = [plan.memory_per_worker - plan.memory_kept for plan in plans.values()]
    assert needed[0] == needed[1] == needed[2] >= needed[4] == needed[5]
    assert "(576.0 MiB of it by choice)" in str(plans["8 GiB", 1])


def test_a_plan_of_a_distance_counts_the_tiles_that_workers_join() -> None:
    joined, own = {}, {}
    for limit in ("1 GiB", "8 GiB"):
        for field, plans in ((2048, joined), (0, own)):
            with og.config.set(field=field):
                plan = og.cost_distance.plan(og.RasterSpec((16384, 16384)), memory_limit=limit)
                plans[limit] = plan.memory_per_worker
    assert joined["1 GiB"] == own["1 GiB"]  # too little to join them
    assert joined["8 GiB"] == own["8 GiB"] + (2048**2 - 1024**2) * (40 + 2 * 4 - 16)


@pytest.mark.parametrize(
    ("operation", "name"),
    [(og.upstream, "values"), (og.downstream, "values"), (og.flow_accumulation, "weights")],
)
def test_both_rasters_of_sums_along_flow_are_read_twice(operation: Any, name: str) -> None:
    codes, amounts = np.ones((40, 50), np.uint8), np.ones((40, 50), np.float32)
    planned = operation.plan(codes, codes="taudem", **{name: amounts})
    assert planned.bytes_read == 2 * (codes.nbytes + amounts.nbytes)


def test_components_take_on_disk_what_was_planned(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).random((500, 700)) < 0.4
    arrays = ("labels", "component_size", "component_box")
    found = og.connected_components(mask, connectivity=4, outputs=arrays, out=tmp_path / "labels")
    count = found.attrs["component_count"]
    planned = og.connected_components.plan(mask, outputs=arrays, components=count)
    assert planned.bytes_written == sum(found[name].nbytes for name in arrays)
    assert planned.bytes_read == mask.nbytes
    unknown = og.connected_components.plan(og.RasterSpec(mask.shape), outputs=arrays)
    assert unknown.bytes_written == pytest.approx(planned.bytes_written, rel=0.05)
    small = og.connected_components(mask, dtype="int32", out=tmp_path / "int32")
    planned = og.connected_components.plan(mask, dtype="int32")
    assert planned.bytes_written == small["labels"].nbytes


def test_every_operation_on_rasters_is_planned() -> None:
    for operation in OPERATIONS:
        planned = operation.plan(og.RasterSpec((300, 300)))
        assert planned.operation == operation.__qualname__
        assert str(planned)
    known = [thing for thing in map(og.__dict__.get, og.__all__) if isinstance(thing, og.Operation)]
    assert {*known, og.DistanceIndex.build} == {*OPERATIONS, og.shortest_paths}


# in a process that has compiled nothing yet, and has nothing in its cache
PLAN_ALL = """
import numpy as np
import orograph as og
from numba.core import event
from scipy import sparse
from orograph.kernels.vectors.exponential import exponential
from orograph.kernels.relax.models import NAMED

cells = np.random.default_rng(0).integers(0, 3, (90, 90)).astype(np.float32)
roads = og.read_graph(sparse.random_array((20, 20), density=0.2, rng=1), directed=True)
with event.install_recorder("numba:compile") as compiled:
    operations = [og.DistanceIndex.build, *map(og.__getattr__, og.__all__)]
    operations = [o for o in operations if isinstance(o, og.Operation)]
    for operation in operations:
        if operation is not og.all_pairs and operation is not og.shortest_paths:
            operation.plan(cells)
    for cost in NAMED:
        og.DistanceIndex.build.plan(cells, cost=cost, cell_size=1)
        if operation.estimates[1]:
            operation.plan(roads)
    assert not compiled.buffer, [e.data["dispatcher"] for _, e in compiled.buffer]
    exponential(1.0)
    assert compiled.buffer
"""


def test_no_kernel_is_compiled_for_a_plan(tmp_path: Path) -> None:
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PLAN_ALL], env=variables, check=True)


GRAPHS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dense": (rough((300, 300)), {"tile": 64}),
    "dense, with predecessors": (rough((200, 200)), {"tile": 64, "predecessors": True}),
    "dense, in one tile": (rough((50, 50)), {"dtype": "float32"}),
    "whole numbers": (np.floor(rough((150, 150))), {"tile": 50, "dtype": "int64"}),
    "few edges": (
        sparse.random_array((500, 500), density=1e-2, rng=1),
        {"tile": 80, "method": "dijkstra", "predecessors": True},
    ),
    "Dijkstra of a dense graph": (rough((90, 90)), {"tile": 32, "method": "dijkstra"}),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "options"), GRAPHS.values(), ids=GRAPHS.keys())
def test_all_pairs_have_the_tasks_that_were_planned(
    graph: Any, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = []
    compute = blocked.compute

    def counted(graph: Any, *rest: Any) -> Any:
        tasks.append(len(graph))
        return compute(graph, *rest)

    monkeypatch.setattr(blocked, "compute", counted)
    planned = og.all_pairs.plan(graph, **options)
    result = og.all_pairs(graph, **options, out=tmp_path / "out")
    assert planned.tasks == sum(tasks)
    assert planned.shape == result["distance"].shape
    assert planned.tile == result.attrs["tile"]
    assert planned.bytes_written == sum(variable.nbytes for variable in result.data_vars.values())


def test_a_sparse_graph_is_planned_by_its_edges() -> None:
    graph = sparse.random_array((20_000, 20_000), density=1e-6, rng=1)
    assert og.all_pairs.plan(graph).tasks == 79  # Dijkstra's, from 256 vertices each
    assert og.all_pairs.plan(graph, method="floyd-warshall").tasks == 20**3 + 20


def test_squaring_takes_no_more_tasks_than_planned() -> None:
    planned = og.all_pairs.plan(og.RasterSpec((100, 100)), tile=50, method="squaring")
    assert planned.tasks == 7 * (2 * 2 + 1) + 2  # 2**7 is the first power above 99


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read peaks from")
@pytest.mark.parametrize(
    "compiled", [True, pytest.param(False, marks=pytest.mark.long)], ids=["compiled", "to compile"]
)
def test_all_pairs_take_the_memory_that_was_planned(tmp_path: Path, compiled: bool) -> None:
    """The client's is that with kernels that it compiles, which is the most."""
    lengths = rough((2048, 2048))
    np.save(tmp_path / "g.npy", lengths)
    options = {"tile": 1024, "predecessors": True}
    planned = og.all_pairs.plan(lengths, **options)
    load = "import numpy; graph = numpy.load(raster)"
    work = f"{load}; og.all_pairs(graph, out=out, client=client, **{options})"
    og.all_pairs(lengths[:8, :8], tile=4, predecessors=True, out=tmp_path / "small")
    cache = None if compiled else tmp_path / "kernels"
    worker, client = peaks_of(work, tmp_path / "g.npy", tmp_path / "out", cache)
    assert worker == pytest.approx(planned.memory_per_worker, rel=0.2)
    assert client < 1.2 * planned.memory_client
    assert compiled or client > 0.8 * planned.memory_client


def test_searches_between_more_pairs_begin_with_components() -> None:
    shape = 5000, 5000
    grid = og.RasterSpec(shape)
    one, many = (og.is_connected.plan(grid, (0, 0), [(1, 1)] * n, workers=2) for n in (1, 100))
    assert one.bytes_written == many.bytes_written == 0
    assert many.bytes_read == 2 * one.bytes_read
    assert many.tasks == og.connected_components.plan(og.RasterSpec(shape)).tasks + 8
    for limit in (2**29, 2**30, 2**31):
        small = og.is_connected.plan(og.RasterSpec(shape), memory_limit=limit)
        needed = small.memory_per_worker - small.memory_kept
        left = max(int(0.8 * limit) - needed, 0)
        assert small.memory_kept == min(limit // 2, left, 25 * 10**6 * 24)


JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a sweep": (og.minimum_spanning_forest, {}),
    "a table": (og.connected_components, {"outputs": TABLE}),
    "distances": (og.cost_distance, {"sources": [(3, 4)], "connectivity": 16}),
    "two stages": (og.cost_distance, {"sources": [(3, 4)], "outputs": ("cost", "allocation")}),
    "strong sources": (
        og.walking_time, {"sources": [(3, 4), (1, 1)], "source_cost": {"multiplier": [1, 2]}},
    ),
    "parts": (og.breach_depressions, {"max_length": 4}),
    "stages of heights": (
        og.flow_accumulation, {"method": "dinf", "depressions": "breach", "flats": "gradient"},
    ),
    "searches": (
        og.catchments,
        {"facilities": [(3, 4), (1, 1)], "population": rough((40, 50)), "max_cost": 9.0},
    ),
    "a layer": (og.region_network, {"regions": [(3, 4), (1, 1)]}),
    "groups of runs": (og.linkages, {"habitat": [(3, 4), (1, 1)]}),
}  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", JOBS)
def test_a_run_is_planned_as_its_arguments_are(name: str, workers: int) -> None:
    """By its job a run tells whether workers have the memory that it needs."""
    operation, arguments = JOBS[name]
    cells = rough((40, 50))
    job = operation.describe(cells, tile=16, **arguments)
    planned = plan_job(operation.__name__, job, Request(workers))
    assert planned == operation.plan(cells, tile=16, workers=workers, **arguments)
    assert planned.bytes_written == 40 * 50 * sum(
        np.dtype(v.dtype).itemsize for v in job.problem.outputs
    ) + {"a table": 200 * 40, "searches": 2 * 48}.get(name, 0)


def test_a_run_on_a_raster_that_dask_computes_is_planned_with_it() -> None:
    cells = da.from_array(rough((600, 500)), 100) + 1
    job = og.minimum_spanning_forest.describe(cells, tile=64)
    planned = plan_job("minimum_spanning_forest", job, Request(2))
    assert planned == og.minimum_spanning_forest.plan(cells, tile=64, workers=2)
    without = og.minimum_spanning_forest.plan(
        og.RasterSpec((600, 500), "float64"), tile=64, workers=2
    )
    assert planned.bytes_checkpoints == without.bytes_checkpoints + 600 * 500 * 8


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o is not og.all_pairs], ids=str)
def test_no_cell_of_a_shape_is_looked_at(operation: Any) -> None:
    """Nor is one of rasters that the plan is not given: all are larger than any memory."""
    started = time.process_time()
    planned = operation.plan(og.RasterSpec((10**6, 10**6)))
    assert time.process_time() - started < 5
    assert planned.shape == (10**6, 10**6)


def test_strengths_of_integers_are_planned() -> None:
    how = {"dtype": "int64", "cell_size": 1, "connectivity": 4}
    cells = np.full((4, 5), 2)
    strong = {"maximum": [3, 4]}
    assert og.cost_distance.plan(cells, [(0, 0), (1, 1)], source_cost=strong, **how).runs == 2


def test_a_problem_that_tells_nothing_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Components, "bytes", ProblemFacts.bytes)
    with pytest.raises(og.InputError, match="components has no plan: nothing tells what its run t"):
        og.connected_components.plan(rough((4, 5)))


def test_a_plan_refuses_what_its_run_refuses() -> None:
    with pytest.raises(og.InputError, match="max_cost: -1"):
        og.cost_distance.plan(rough((4, 5)), max_cost=-1)
    with pytest.raises(og.InputError, match="barriers: a RasterSpec has no place for them"):
        og.cost_distance.plan(og.RasterSpec((4, 5)), barriers=np.ones((4, 5)))
    with pytest.raises(og.InputError, match="pits: 3 is not used by this plan of flow_accumulatio"):
        og.flow_accumulation.plan(np.ones((4, 5), np.uint8), codes="taudem", pits=3)


SPEC = og.RasterSpec((9, 9))
ROADS = og.read_graph(sparse.random_array((20, 20), density=0.2, rng=1), directed=True)
REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "workers below none": (og.hop_distance, SPEC, {"workers": -1}, "workers: -1; it must be"),
    "labels of 16 bits": (og.connected_components, SPEC, {"dtype": "int16"}, "dtype: 'int16'"),
    "outputs of another": (og.cost_distance, SPEC, {"outputs": "labels"}, "outputs: 'labels'"),
    "a limit below nothing": (
        og.cost_distance, SPEC, {"memory_limit": 0}, "memory_limit: 0; give bytes, at least 1",
    ),
    "a limit in words": (
        og.hop_distance, SPEC, {"memory_limit": "much"}, "memory_limit: 'much'; give bytes",
    ),
    "components by 16 neighbours": (
        og.connected_components, SPEC, {"connectivity": 16}, "connectivity: 16 is unknown",
    ),
    "an option that starts a run": (
        og.connected_components, SPEC, {"out": "x.zarr"}, r"out: not for \.plan, .*use \.submit",
    ),
    "a graph that is no square": (
        og.all_pairs, og.RasterSpec((9, 8)), {}, r"shape: \(9, 8\); a row and a column",
    ),
    "lengths of no type": (og.all_pairs, SPEC, {"dtype": "number"}, "dtype: 'number'"),
    "a way unknown": (og.all_pairs, SPEC, {"method": "magic"}, "method: 'magic'"),
    "large blocks": (og.DistanceIndex.build, SPEC, {"block": 2048}, "block: 2048 with levels=1"),
    "16 neighbours": (og.DistanceIndex.build, SPEC, {"connectivity": 16}, "connectivity: 16"),
    "no such dtype": (og.DistanceIndex.build, SPEC, {"dtype": "int8"}, "dtype: 'int8'"),
    "no dtype": (og.DistanceIndex.build, SPEC, {"dtype": "number"}, "dtype: 'number'"),
    "tiles without cells": (og.hop_distance, SPEC, {"tile": 0}, "tile=0: it must be 1 to"),
    "no raster": (og.DistanceIndex.build, None, {}, "raster: None"),
    "a graph of rasters": (og.fill_depressions, ROADS, {}, "elevation: expected a raster, got a G"),
    "a raster of graphs": (og.shortest_paths, np.ones((3, 3)), {}, "graph: expected a Graph, got"),
    "tiles of a graph": (og.hop_distance, ROADS, {"tile": 4}, "tile: 4; mask is not cut into"),
    "pits of a graph": (
        og.connected_components, ROADS, {"components": 4}, "components: not used by this plan",
    ),
    "workers by halves": (og.hop_distance, SPEC, {"workers": 0.5}, "workers: 0.5"),
    "fewer than none": (og.connected_components, SPEC, {"components": -1}, "components: -1"),
    "more than cells": (og.connected_components, SPEC, {"components": 82}, "82; .* 0 to 81"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "raster", "options", "says"), REFUSED.values(), ids=REFUSED.keys()
)
def test_what_cannot_be_planned_is_refused(
    operation: Any, raster: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(og.InputError, match=says):
        operation.plan(raster, **options)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (((0, 9),), r"shape: \(0, 9\)"),
        (((9, 9, 9),), r"shape: \(9, 9, 9\)"),
        ((9,), "shape: 9"),
        (((9, 9), complex), "dtype: dtype complex128; cells"),
        (((9, 9), "number"), "dtype: dtype number; cells must be"),
    ],
)
def test_a_spec_of_no_raster_is_refused(given: Any, says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.RasterSpec(*given)


def test_plans_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    og.ingest(rough((60, 50)), tmp_path / "f")
    sides = ["--block", "8", "--levels", "0"]
    assert main(["plan", "distance_index", str(tmp_path / "f"), *sides]) == 0
    said = capsys.readouterr().out
    assert "56 blocks of 8 x 8 cells" in said
    assert "bytes a cell" in said
    assert main(["plan", "distance_index", "--shape", "60", "50", *sides]) == 0
    assert "disk, at most:" in capsys.readouterr().out
    walk = [str(tmp_path / "f"), "--cost", "walk", "--cell-size", "30"]
    assert main(["plan", "distance_index", *walk]) == 0
    assert "1 blocks of 256" in capsys.readouterr().out
    assert main(["plan", "connected_components", "--shape", "60", "50", "--components", "7"]) == 0
    assert "connected_components of 60 x 50 cells" in capsys.readouterr().out
    for limit, kept in (("20 KiB", ""), ("2 GiB", "(46.9 KiB of it by choice)")):
        assert main(["plan", "hop_distance", "--shape", "60", "50", "--memory-limit", limit]) == 0
        said = capsys.readouterr().out
        assert ("by choice" in said, kept in said) == (bool(kept), True)
    alone = ["--workers", "0", "--outputs", "back_direction", "--dtype", "float32"]
    assert main(["plan", "cost_distance", "--shape", "60", "50", *alone]) == 0
    assert "in this process" in capsys.readouterr().out
    for wrong in ([str(tmp_path / "f"), "--shape", "9", "9"], [], ["--components", "7"]):
        assert main(["plan", "distance_index", *wrong]) == 2, wrong
        assert "orograph: " in capsys.readouterr().err
