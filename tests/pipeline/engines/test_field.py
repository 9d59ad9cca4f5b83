"""Tiles that are joined into larger ones: in one process, and by each worker of a cluster."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from watched_raster import Gate, WatchedRaster, wait_until

import orograph as og
from orograph.arguments.sources import Sources
from orograph.distance.problem import Distance
from orograph.engines import parts
from orograph.engines.frontier import worker
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.field import WIDEST_HALO, join_tiles
from orograph.engines.frontier.problem import FrontierProblem
from orograph.engines.frontier.protocol import Request
from orograph.engines.tile_states import TileStates
from orograph.kernels.relax.models import CostModel, edge_lengths
from orograph.kernels.threads import use_threads
from orograph.run.checkpoints import CheckpointStore, MemoryCheckpoints
from orograph.run.context import RunContext
from orograph.tiles.errors import Cancelled, InputError
from orograph.tiles.grid.quadtree import Node, Place, Quadtree, Sides
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.array import ArrayRaster
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.sink import ArraySink, StoreSink

SIDE = 100
WHOLE = 128**2  # cells of the whole blocks that a tile of SIDE**2 fills on a GPU


def context_of(
    shape: tuple[int, int],
    tile: int,
    threads: int = 1,
    out: Path | None = None,
    level: int = 2,
    checkpoints: CheckpointStore | None = None,
    gpus: int = 0,
    gpu_memory: int = 2**40,
) -> RunContext:
    sink = ArraySink({}) if out is None else StoreSink(out)
    checkpoints = MemoryCheckpoints() if checkpoints is None else checkpoints
    tree, memory = Quadtree(shape, tile), {"gpus": gpus, "gpu_memory": gpu_memory}
    return RunContext(tree, level, checkpoints, sink, "token", threads, **memory)


@pytest.mark.parametrize(
    ("shape", "tile", "threads", "expected"),
    [
        ((SIDE, SIDE), 8, 1, 128),  # the whole grid
        ((SIDE, SIDE), 200, 1, 200),
        ((10 * SIDE, 10 * SIDE), 8, 1, 128),  # 256 a side would be more cells than (2 SIDE)**2
        ((1, SIDE**2), 8, 1, 2**14),  # as many cells, however narrow the grid is
        ((SIDE, SIDE), 8, 4, 64),  # four tiles for four threads
        ((SIDE, SIDE), 8, 8, 32),
        ((SIDE, SIDE), 8, 0, 8),  # a cluster
    ],
)
def test_tiles_are_joined_as_far_as_it_pays(
    shape: tuple[int, int], tile: int, threads: int, expected: int
) -> None:
    with og.config.set(field=SIDE):
        joined = join_tiles(context_of(shape, tile, threads))
    assert joined.tree == Quadtree(shape, expected)
    assert joined.shard_level == max(2 - (expected // tile).bit_length() + 1, 0)


@dataclass(frozen=True)
class Follower(FrontierProblem):
    """A problem that may follow on another in one run."""

    backend: str


def test_what_cpus_do_in_a_run_on_gpus_has_tiles_for_cpus() -> None:
    """An allocation that no GPU can do follows on distances that one has computed."""
    with og.config.set(field=SIDE):
        tiles = {
            backend: Follower(backend)
            .tiled(context_of((SIDE, SIDE), 8, threads=8, gpus=1))
            .quadtree.tile
            for backend in ("numba", "cuda")
        }
    assert tiles == {"numba": 32, "cuda": 128}


def test_a_tile_is_never_more_than_a_shard_on_disk(tmp_path: Path) -> None:
    with og.config.set(field=SIDE):
        joined = join_tiles(context_of((SIDE, SIDE), 8, out=tmp_path / "out.zarr"))
    assert joined.tree == Quadtree((SIDE, SIDE), 32)
    assert joined.shard_level == 0


@pytest.mark.parametrize(
    ("field", "threads", "gpus", "memory", "expected"),
    [
        (SIDE, 0, 1, 2**40, 128),  # the whole grid
        (SIDE, 16, 1, WHOLE, 128),
        (SIDE, 16, 1, WHOLE - 1, 32),  # one cell too many: sixteen tiles
        (SIDE, 0, 1, 8 * 32**2 - 1, 8),  # eight tiles of a block each are more than its memory
        (SIDE, 0, 2, WHOLE, 128),
        (SIDE, 0, 2, WHOLE - 1, 32),
        (SIDE, 0, 16, WHOLE - 1, 8),
        (1, 0, 1, 2**40, 16),  # GPU_FIELD times one
        (0, 0, 1, 2**40, 8),
    ],
)
def test_tiles_on_a_gpu_are_joined_over_the_shards_of_a_store(
    tmp_path: Path, field: int, threads: int, gpus: int, memory: int, expected: int
) -> None:
    with og.config.set(field=field):
        more = {"gpus": gpus, "gpu_memory": 10 * memory}
        context = context_of((SIDE, SIDE), 8, threads, tmp_path / "out.zarr", 1, **more)
        joined = join_tiles(context, ten_bytes)
    assert joined.tree == Quadtree((SIDE, SIDE), expected)
    assert joined.shard == (16 if expected > 16 else 0)
    found = [
        shard for node in joined.tree.nodes(joined.shard_level) for shard in joined.shards(node)
    ]
    expected_shards = map(context.tree.window, context.tree.nodes(context.shard_level))
    assert sorted(found) == sorted(expected_shards)


def ten_bytes(cells: int) -> int:
    return 10 * cells


@pytest.mark.parametrize("shape", [(8, 4096), (4096, 1)])
def test_a_strip_counts_whole_blocks_in_the_memory_of_a_gpu(shape: tuple[int, int]) -> None:
    memory = 10 * 32 * (4096 + 2 * WIDEST_HALO)
    for less, tile in ((0, 4096), (1, 256)):  # one tile, or sixteen
        with og.config.set(field=SIDE):
            context = context_of(shape, 8, gpus=1, gpu_memory=memory - less)
            assert join_tiles(context, ten_bytes).quadtree.tile == tile


@pytest.mark.parametrize("shape", [(1, 2**30), (2**16, 2**16), (2**15, 2**15)])
def test_a_tile_of_a_gpu_has_cells_that_32_bits_count(shape: tuple[int, int]) -> None:
    with og.config.set(field=2**16):
        tree = join_tiles(context_of(shape, 1024, gpus=1), int).quadtree  # a byte a cell
    window = tree.window(Node(0, 0))
    assert (window.height + 4) * (window.width + 4) < 2**31
    assert (tree.count(0) == 1) == (shape == (2**15, 2**15))


@pytest.mark.parametrize(
    ("threads", "memory", "expected"),
    [
        (1, 2**30, 32),  # a shard
        (0, 2**30, 32),  # workers are yet to come
        (9, 2**30, 16),  # more than sixteen for nine threads
        (1, 512 * 16**2, 16),
        (1, 512 * 16**2 - 1, 8),
    ],
)
def test_workers_of_a_cluster_join_tiles_within_shards_as_their_memory_allows(
    tmp_path: Path, threads: int, memory: int, expected: int
) -> None:
    context = context_of((SIDE, SIDE), 8, 0, tmp_path / "out.zarr")
    with og.config.set(field=SIDE):
        joined = join_tiles(replace(context, cluster_threads=threads, worker_memory=memory))
    assert joined.tree == Quadtree((SIDE, SIDE), expected)
    assert joined.shard_level == {32: 0, 16: 1, 8: 2}[expected]
    assert not joined.shard


@pytest.mark.parametrize("out", [None, "out.zarr"], ids=["memory", "store"])
def test_a_run_over_tiles_larger_than_shards_has_the_same_bits(
    tmp_path: Path, out: str | None, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 16)
    friction = np.random.default_rng(5).uniform(1, 9, (75, 90))
    friction[20:40, 50:60] = np.nan
    where = None if out is None else tmp_path / out
    arguments = {"sources": [(30.0, 40.0)], "tile": 8, "shard": 16}
    expected = og.cost_distance(friction, backend="numba", **arguments)
    sides = set()
    finish = worker.FrontierTasks.states.fget

    def noted(run: worker.FrontierTasks) -> TileStates:
        sides.add(run.context.quadtree.tile)
        return finish(run)

    monkeypatch.setattr(worker.FrontierTasks, "states", property(noted))
    with og.config.set(field=SIDE):
        found = og.cost_distance(friction, backend="cuda", out=where, **arguments)
    assert sides == {128}  # one tile, which three threads or so read and wrote
    assert emulated_gpu.launches > 0
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)
    if where is not None:
        assert og.verify(where).ok


@pytest.mark.parametrize(("tile", "whole"), [(24, True), (16, False)], ids=["few", "many"])
def test_few_tiles_of_a_gpu_are_relaxed_to_the_end(
    tile: int, whole: bool, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction = np.random.default_rng(5).uniform(1, 9, (75, 90))
    bounds = []
    visit = worker._visit_tiles

    def noted(run: Any, requests: Any, bound: float) -> Any:
        bounds.append(bound)
        return visit(run, requests, bound)

    monkeypatch.setattr(worker, "_visit_tiles", noted)
    found = og.cost_distance(friction, [(30.0, 40.0)], tile=tile, backend="cuda")
    assert (np.array([bound for bound in bounds if bound > 0]) == np.inf).all() == whole
    expected = og.cost_distance(friction, [(30.0, 40.0)], backend="numba")
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


@pytest.mark.parametrize("halo", [0, 2])
@pytest.mark.parametrize("stored", [None, 3, 5, 40])
def test_parts_cover_a_frame_once_and_are_cut_where_stored_tiles_meet(
    halo: int, stored: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 16)
    window = Window(120, 240, 100, 33)
    frame = Window(120 - halo, 240 - halo, 100 + 2 * halo, 33 + 2 * halo)
    found = parts.parts_of(window, frame, stored)
    covered = np.zeros(frame.shape, int)
    for part in found:
        covered[part.within(frame)] += 1
        for start, first in ((part.y, frame.y), (part.x, frame.x)):
            assert start == first or start % (stored or 1) == 0
    assert (covered == 1).all()
    assert len(found) == {None: 7 * 3, 3: 7 * 3, 5: 7 * 3, 40: 3}[stored]


def test_the_first_bad_cell_is_told_whichever_part_is_read_first(
    emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART", 16)
    friction = np.ones((75, 90))
    friction[70, 3] = friction[50, 80] = -1
    with pytest.raises(InputError, match="row 50, column 80"):
        og.cost_distance(friction, [(30.0, 40.0)], tile=8, backend="cuda")


def test_a_cluster_joins_the_tiles_of_its_shards_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction = np.random.default_rng(5).uniform(1, 9, (75, 90)).astype(np.float32)
    arguments = {"sources": [(30.0, 40.0)], "outputs": ("cost", "back_direction", "allocation")}
    expected = og.cost_distance(friction, tile=128, **arguments)
    sides = set()
    take = TileStates.take

    def noted(states: TileStates, tile: tuple[int, int]) -> object:
        sides.add(states.context.quadtree.tile)
        return take(states, tile)

    monkeypatch.setattr(TileStates, "take", noted)
    options = {"n_workers": 2, "processes": False, "dashboard_address": None}
    with og.cluster(**options) as client, og.config.set(field=SIDE):
        found = og.cost_distance(
            friction, tile=8, shard=16, out=tmp_path / "out.zarr", client=client, **arguments
        )
    assert sides == {16}
    for name in arguments["outputs"]:
        np.testing.assert_array_equal(found[name], expected[name], strict=True)


def test_a_run_keeps_its_tiles_whoever_goes_on_with_it() -> None:
    checkpoints = MemoryCheckpoints()
    with og.config.set(field=SIDE):
        first = join_tiles(context_of((SIDE, SIDE), 8, 4, checkpoints=checkpoints))
    again = [
        join_tiles(context_of((SIDE, SIDE), 8, threads, checkpoints=checkpoints))
        for threads in (0, 1, 8)
    ]
    assert first.tree.window(first.tree.root).shape == (SIDE, SIDE)
    assert {context.tree for context in again} == {first.tree} == {Quadtree((SIDE, SIDE), 64)}


@pytest.mark.diagonal
@pytest.mark.parametrize("before", [0, 16], ids=["tiles", "joined tiles"])
@pytest.mark.parametrize("after", [0, 16, 2048], ids=["tiles", "joined", "one"])
def test_a_run_is_resumed_over_other_tiles_to_the_same_bits(
    tmp_path: Path, gate: Gate, before: int, after: int
) -> None:
    friction = np.random.default_rng(3).uniform(1, 9, (60, 50))
    out, options = tmp_path / "cost.zarr", {"tile": 4, "shard": 16}
    og.ingest(friction, tmp_path / "friction.zarr", tile=4)
    with og.config.set(field=before):
        watched = WatchedRaster(tmp_path / "friction.zarr", tmp_path / "diary", gate=gate)
        gate.shut(after=3)
        run = og.cost_distance.submit(watched, [(25.0, 30.0)], out=out, **options)
        wait_until(gate.held)
        run.cancel()
        gate.open()
        with pytest.raises(Cancelled):
            run.result()
    with og.config.set(field=after):
        found = og.cost_distance(
            StoreRaster(tmp_path / "friction.zarr"), [(25.0, 30.0)], out=out, resume=True, **options
        )
    expected = og.cost_distance(friction, [(25.0, 30.0)])
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


def test_threads_without_a_tile_work_on_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def noted(count: int) -> AbstractContextManager[None]:
        given.append(count)
        return use_threads(count)

    monkeypatch.setattr(worker, "use_threads", noted)
    friction = np.random.default_rng(4).uniform(1, 9, (64, 64))
    with og.config.set(field=SIDE, threads=2):
        found = og.cost_distance(friction, [(32.0, 32.0)], tile=16)
    assert given == [2]
    with og.config.set(threads=2):
        og.cost_distance(friction, [(32.0, 32.0), (1.0, 62.0)], tile=16)
    assert given[1] == 1  # another tile waits for the other thread
    with og.config.set(threads=1):
        expected = og.cost_distance(friction, [(32.0, 32.0)], tile=16)
    np.testing.assert_array_equal(found["cost"], expected["cost"], strict=True)


@pytest.mark.parametrize("start", [0.0, 1000.0])
def test_a_source_beside_all_other_tiles_shows_how_wide_its_tile_is(start: float) -> None:
    window, seen = Window(40, 40, 40, 40), Window(39, 39, 41, 41)
    friction = ArrayRaster(np.ones((80, 80)), np.dtype(np.float64))
    zero = np.zeros(1, np.int64)
    problem = Distance.on_rasters(
        {"friction": friction},
        CostModel("friction"),
        np.dtype(np.float64),
        8,
        edge_lengths(1),
        sources=Sources(zero + 40, zero + 40, zero + start, zero),
    )
    place = Place(Node(0, 3), window, Sides(True, False, True, False), (80, 80))
    state = problem.open(place, [friction.read(seen)], seen)
    visit = problem.visit(state, Request((1, 1), 0.0, [None] * 8, [None] * 8), np.inf)
    width = BucketWidth(window.size, problem.cells_a_visit)
    width.count(start, visit, visit.reached)
    # a neighbour is a step away, the far side 39
    assert 39 / 10 < width.bucket_width < 39


def test_a_bucket_without_an_end_holds_all_keys() -> None:
    # a key may lie below any number, where a run has a key for each tile before it has seen any
    for front in (-math.inf, -1.0, 1e308):
        assert BucketWidth(1, 1, math.inf).above(front) == math.inf
    assert BucketWidth(1, 1, 2.0).above(-math.inf) == -math.inf
