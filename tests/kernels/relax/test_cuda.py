"""The shortest-path kernel on a GPU: the bits of its Numba twin, however the work is cut up."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import oracle_distance
import pytest
from any_model import distance
from cuda_on_cpu.emulator import Emulator, find_compiler, in_orders
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import orograph as og
from orograph.arguments.sources import Sources
from orograph.distance.problem import Distance
from orograph.engines.frontier.protocol import Request, Visit
from orograph.engines.tile_states import StateCache
from orograph.kernels.relax import border as border
from orograph.kernels.relax import cuda as relax_cuda
from orograph.kernels.relax import tile as twin
from orograph.kernels.relax.cuda import DeviceTile
from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths
from orograph.kernels.relax.tile import TileState, seed, tile_state
from orograph.tiles.grid.quadtree import Node, Quadtree, morton_encode
from orograph.tiles.grid.window import Window

Array = np.ndarray[Any, Any]
SHAPE = (43, 70)


def random_friction(shape: tuple[int, int], seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(1, 10, shape)


def heights(shape: tuple[int, int]) -> Array:
    """Terraces, and rough ones: for Tobler a way round may be easier than a steep step."""
    rng = np.random.default_rng(7)
    terraces = np.kron(rng.normal(0, 9, (12, 12)), np.ones((8, 8)))[: shape[0], : shape[1]]
    return np.asarray(terraces + rng.normal(0, 5, shape) * (np.arange(shape[1]) % 16 < 8))


def obstacles() -> Array:
    friction = random_friction(SHAPE, 1)
    friction[np.random.default_rng(2).random(SHAPE) < 0.35] = np.nan
    friction[SHAPE[0] // 2, SHAPE[1] // 2] = 1
    return friction


def serpentine() -> Array:
    friction = np.ones((70, 9))
    for i, row in enumerate(range(1, 70, 2)):
        friction[row] = np.inf
        friction[row, -1 if i % 2 == 0 else 0] = 1
    return friction


def plateaus() -> Array:
    friction = np.round(random_friction(SHAPE, 3) - 5).clip(0)
    friction[:, 5:40] = 0
    return friction


GRIDS = {
    "random": random_friction(SHAPE),
    "slopes": 1 + np.hypot(*np.gradient(heights(SHAPE))),
    "obstacles": obstacles(),
    "serpentine": serpentine(),
    "free plateaus": plateaus(),
    "one row": random_friction((1, 70)),
    "one column": random_friction((70, 1)),
    "one cell": np.ones((1, 1)),
    "a row too many": random_friction((33, 65)),
}


@dataclass(frozen=True)
class Case:
    """How steps cost."""

    dtype: str = "float64"
    model: str = "friction"
    connectivity: int = 8
    reverse: bool = False
    max_cost: float = math.inf
    by_row: bool = False
    with_friction: bool = True
    block: int = 32
    kept: bool = True

    def __str__(self) -> str:
        return "-".join(f"{value}" for value in vars(self).values())

    @property
    def reach(self) -> int:
        return 2 if self.connectivity == 16 else 1

    def tile(self, grid: Array, dist: Array | None = None) -> TileState:
        """A tile of a grid of friction, with heights of its own, in a halo of barriers."""
        integer = self.dtype == "int64"
        barrier: Any = BARRIER if integer else np.nan
        rasters = {}
        if self.model == "friction" or (self.with_friction and self.model != "absolute_difference"):
            rasters["friction"] = grid
        if self.model != "friction":
            rasters["elevation"] = np.where(np.isfinite(grid), heights(grid.shape), np.nan)
        padded = {
            name: np.pad(
                np.where(np.isfinite(raster), np.rint(raster) if integer else raster, barrier),
                self.reach,
                constant_values=barrier,
            ).astype(self.dtype)
            for name, raster in rasters.items()
        }
        shape = next(iter(padded.values())).shape
        lengths = edge_lengths(shape[0], 3, 4)
        if integer:
            lengths = np.rint(lengths)
        if self.by_row:
            lengths = lengths * (1 + np.arange(shape[0]) / 50)
        if dist is None:
            dist = np.full(shape, BARRIER if integer else np.inf, self.dtype)
        return tile_state(
            dist,
            lengths=lengths,
            model=CostModel(self.model, self.reverse),
            connectivity=self.connectivity,
            max_cost=self.max_cost,
            block=self.block,
            **padded,
        )

    def seeded(self, grid: Array) -> TileState:
        state = self.tile(grid)
        seed(state, [grid.shape[0] // 2, 0], [grid.shape[1] // 2, grid.shape[1] - 1], [0, 9])
        return state


CASES = [
    Case(),
    Case("float32"),
    Case("int64"),
    Case("float64", connectivity=4, max_cost=200),
    Case("float32", connectivity=16, block=9),
    Case("int64", connectivity=4, max_cost=150),
    Case("int64", connectivity=16),
    Case("float64", connectivity=16, by_row=True),
    Case("float32", by_row=True),
    Case("float32", "absolute_difference"),
    Case("float64", "absolute_difference", 16),
    Case("int64", "absolute_difference", 16),
    Case("float32", "tobler", by_row=True),
    Case("float64", "tobler", 16, reverse=True),
    Case("float64", "tobler", 4, with_friction=False),
    Case("float32", "walk", 4, reverse=True),
    Case("float64", "walk", by_row=True, max_cost=900),
    Case("float64", "walk", 16, with_friction=False),
    Case("float32", "tobler", by_row=True, kept=False),
    Case("float64", "walk", 16, reverse=True, max_cost=900, block=9, kept=False),
]


def assert_same_bits(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    word = f"u{found.itemsize}"
    assert_array_equal(np.ascontiguousarray(found).view(word), expected.view(word))


def bounded(stats: twin.RelaxStats, state: TileState, bound: float = math.inf) -> None:
    """A visit leaves nothing undone below its bound, and says so."""
    assert stats.pending >= bound or stats.pending == math.inf
    assert stats.pending == state.pending
    assert stats.rows >= stats.sets >= stats.visits > 0 or stats.visits == 0


BY_NAME = {str(case): case for case in CASES}
EVERY = {str(CASES[n]) for n in (0, 4, 5, -2)}  # 8, 16 and 4 neighbours; weights not kept


@pytest.mark.diagonal
@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize(("case", "emulator"), in_orders(BY_NAME, EVERY), indirect=["emulator"])
def test_every_grid_has_the_bits_of_the_twin(case: Case, emulator: Emulator, name: str) -> None:
    expected, found = case.seeded(GRIDS[name]), case.seeded(GRIDS[name])
    sources = np.count_nonzero(found.dist < found.unreached)
    done = twin.relax(expected)
    stats = relax_cuda.relax(found, device=emulator, keep_weights=case.kept)
    bounded(stats, found)
    assert_same_bits(found.dist, expected.dist)
    assert stats.pending == math.inf
    assert not found.fresh.any()
    assert stats.found == done.found
    assert stats.found == np.count_nonzero(found.dist < found.unreached) - sources
    assert stats.settled >= stats.found


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("model", "connectivity"),
    [
        pytest.param(
            *(model, connectivity),
            marks=[] if model == "friction" or connectivity == 8 else pytest.mark.long,
        )
        for model in ("friction", "absolute_difference", "tobler", "walk")
        for connectivity in (4, 8, 16)
    ],
)
def test_scipy_agrees(model: str, connectivity: int) -> None:
    if find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    case = Case("float64", model, connectivity)
    grid = GRIDS["obstacles"]
    state = case.seeded(grid)
    relax_cuda.relax(state, device=Emulator())
    steps = oracle_distance.list_steps(
        grid,
        None if model == "friction" else np.where(np.isfinite(grid), heights(SHAPE), np.nan),
        cost=model,
        connectivity=connectivity,
        lengths=oracle_distance.planar((4, 3)),
    )
    sources = [(SHAPE[0] // 2, SHAPE[1] // 2, 1, 0.0), (0, SHAPE[1] - 1, 2, 9.0)]
    if not np.isfinite(grid[0, -1]):
        sources = sources[:1]
    expected = oracle_distance.cost_distance(steps, SHAPE, sources).cost
    inner = state.dist[case.reach : -case.reach, case.reach : -case.reach]
    reached = np.isfinite(expected)
    np.testing.assert_allclose(inner[reached], expected[reached], rtol=1e-12)
    assert np.isinf(inner[~reached & np.isfinite(grid)]).all()


BOUNDED = {
    f"{share}-{CASES[n]}": (CASES[n], share) for share in (0.0, 0.03, 0.3) for n in (0, 2, 4, 9)
}
OF_EIGHT = {f"{share}-{CASES[0]}" for share in (0.0, 0.03, 0.3)}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("bounded_case", "emulator"), in_orders(BOUNDED, OF_EIGHT), indirect=["emulator"]
)
def test_visits_with_a_bound_settle_all_below_it(
    bounded_case: tuple[Case, float], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, share = bounded_case
    monkeypatch.setattr(relax_cuda, "AT_WORK", (2, 2))
    grid = GRIDS["random"]
    final = case.seeded(grid)
    twin.relax(final)
    step = share * float(final.dist[final.dist < final.unreached].max())
    state = case.seeded(grid)
    tile = DeviceTile(state, emulator, keep_weights=case.kept)
    pending, visits = state.pending, 0
    while pending < math.inf:
        bound = max(pending + step, math.nextafter(pending, math.inf))
        stats = tile.relax(bound)
        tile.store()
        bounded(stats, state, bound)
        assert stats.visits > 0
        below = final.dist < min(bound, stats.pending)
        assert_array_equal(state.dist[below], final.dist[below])
        assert (state.dist >= final.dist).all()
        pending, visits = stats.pending, visits + 1
        if visits > 40:
            step = math.inf
    assert visits > 1
    assert_same_bits(state.dist, final.dist)


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "order", [4, 5, 11]
)  # of those that showed blocks that two warps had taken
@pytest.mark.parametrize(
    "case",
    [
        Case("float32", block=4),
        Case("int64", connectivity=16, block=4),
        Case("float32", "tobler", block=4, kept=False),
    ],
)
def test_warps_that_work_at_once_lose_nothing(
    case: Case, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    usual, narrow = relax_cuda.definitions, {"WARPS": 8, "MAZE": 0, "IN_MAZES": 2}
    monkeypatch.setattr(relax_cuda, "definitions", lambda rules: {**usual(rules), **narrow})
    monkeypatch.setattr(relax_cuda, "AT_WORK", (8, 8))  # the emulator has one block at a time
    grid = np.exp(np.random.default_rng(3).normal(0, 2, (100, 120)))
    grid = grid if case.kept else grid[:96, :96]  # as far as there are heights
    expected = case.seeded(grid)
    twin.relax(expected)
    found = case.seeded(grid)
    relax_cuda.relax(found, device=Emulator("random", order), keep_weights=case.kept)
    assert_same_bits(found.dist, expected.dist)


NEWS = {
    f"{name}-{CASES[n]}": (name, CASES[n])
    for name in ("random", "one row", "one cell", "a row too many")
    for n in (0, 4, 6, 13, 15)
}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("named", "emulator"),
    in_orders(NEWS, {name for name in NEWS if name.startswith("a row too many")}),
    indirect=["emulator"],
)
def test_news_in_the_halo_wake_rest_and_are_passed_on_as_by_the_twin(
    named: tuple[str, Case], emulator: Emulator
) -> None:
    name, case = named
    grid = GRIDS[name]
    rng = np.random.default_rng(5)
    r = case.reach
    # a tile cut out of a wider grid, so that its halo is passable
    wide = np.pad(grid, r, mode="symmetric")
    expected, found = (replace_rasters(case, wide, case.tile(grid)) for _ in range(2))
    for state in (expected, found):
        seed(state, 0, 0, 40)
    twin.relax(expected)
    tile = DeviceTile(found, emulator)
    tile.relax()
    halo = np.zeros(found.dist.shape, np.uint8)  # the sides that a cell lies beyond
    halo[:r] |= 1
    halo[-r:] |= 2
    halo[:, :r] |= 4
    halo[:, -r:] |= 8
    sent = [np.full(strip.shape, found.unreached) for strip in rim_of(found, r)]
    for turn, sides in enumerate((15, 1, 6, 8)):
        beyond = halo & sides != 0
        news = rng.uniform(0, 60 - 10 * turn, beyond.sum()).astype(case.dtype)
        news[rng.random(news.size) < 0.7] = found.unreached
        for state in (expected, found):
            state.dist[beyond] = np.minimum(state.dist[beyond], news)
        pending = twin.wake(expected, sides)
        tile.wake(sides)
        tile.store()
        assert found.pending == pending
        assert_same_bits(found.keys, expected.keys)
        before = expected.dist.copy()
        done = twin.relax(expected)
        stats = tile.relax()
        assert stats.found == done.found
        assert stats.settled == np.count_nonzero(expected.dist < before)
        tile.store()
        bounded(stats, found)
        assert_same_bits(found.dist, expected.dist)
        changed = (expected.dist < before)[r:-r, r:-r]
        for side, cells in enumerate(np.s_[:r, -r:, (..., np.s_[:r]), (..., np.s_[-r:])]):
            assert stats.sides >> side & 1 or not changed[cells].any()
        strips, outward = tile.probe_border(sent)
        assert_array_equal(outward, border.probe_border(expected, sent))
        for strip, own in zip(strips, rim_of(expected, r), strict=True):
            assert_same_bits(strip, own)
        sent = strips
        sent[turn] = np.full_like(sent[turn], found.unreached)
    assert tile.reached == np.count_nonzero(found.dist[r:-r, r:-r] < found.unreached)


def replace_rasters(case: Case, wide: Array, state: TileState) -> TileState:
    """The tile with a halo that is passable."""
    if state.friction.size:
        state.friction[...] = np.rint(wide) if case.dtype == "int64" else wide
    if state.elevation.size:
        state.elevation[...] = np.nan_to_num(heights(wide.shape))
    return state


def rim_of(state: TileState, r: int) -> list[Array]:
    inner = state.dist[r:-r, r:-r]
    return [np.ascontiguousarray(s) for s in (inner[:r], inner[-r:], inner[:, :r], inner[:, -r:])]


def test_functions_on_the_state_are_those_of_the_twin(emulator: Emulator) -> None:
    case = Case()
    expected, found = case.seeded(GRIDS["random"]), case.seeded(GRIDS["random"])
    for state in (expected, found):
        state.friction[...] = 2
        state.dist[0, :] = 1
    assert relax_cuda.wake(found, device=emulator) == twin.wake(expected)
    assert_same_bits(found.keys, expected.keys)
    relax_cuda.relax(found, 30, device=emulator)
    twin.relax(expected, 30)
    sent = [np.full_like(strip, np.inf) for strip in rim_of(found, 1)]
    for state in (expected, found):
        twin.relax(state)
    assert_array_equal(
        relax_cuda.probe_border(found, sent, device=emulator), border.probe_border(expected, sent)
    )


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(1, 50),
    width=st.integers(1, 50),
    block=st.integers(2, 32),
    case=st.sampled_from([CASES[n] for n in (0, 1, 4, 6, 13, 16)]),
    kind=st.sampled_from(["noise", "mostly free", "maze", "subnormal"]),
    order=st.sampled_from(["forward", "reversed", "random"]),
    number=st.integers(0, 2**32 - 1),
)
def test_any_shape_and_blocks(
    height: int, width: int, block: int, case: Case, kind: str, order: str, number: int
) -> None:
    if find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    rng = np.random.default_rng(number)
    grid = rng.uniform(1, 10, (height, width))
    if kind == "mostly free":
        grid[rng.random(grid.shape) < 0.8] = 0
    elif kind == "maze":
        grid[rng.random(grid.shape) < 0.4] = np.nan
    elif kind == "subnormal" and case.dtype != "int64":
        grid = 10 ** rng.uniform(-45, -37, grid.shape)
    case = replace(case, block=block)
    expected, found = case.seeded(grid), case.seeded(grid)
    twin.relax(expected)
    relax_cuda.relax(found, device=Emulator(order, number))
    assert_same_bits(found.dist, expected.dist)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float32", "connectivity": 16, "max_cost": 120.0},
        {"cost": "walk", "elevation": heights((90, 72)), "travel": "to"},
        {"dtype": "int64", "connectivity": 4, "outputs": ("allocation", "back_direction")},
        {"sources": (np.random.default_rng(9).random((90, 72)) < 0.002).astype(np.uint8)},
    ],
    ids=[
        *("friction", "knights to a limit", "walking to the sources", "whole numbers, served"),
        "a raster of sources",
    ],
)
def test_a_run_on_a_gpu_has_the_bits_of_one_without(
    options: dict[str, Any], emulated_gpu: Emulator
) -> None:
    friction = random_friction((90, 72), 4)
    friction[np.random.default_rng(5).random(friction.shape) < 0.2] = np.nan
    if options.get("dtype") == "int64":
        friction = 2 * np.rint(friction)
    arguments = {"sources": [(3, 5), (60, 80)], "cell_size": 1, "tile": 32, "snap": True, **options}
    expected = distance(friction, backend="numba", **arguments)
    launches = emulated_gpu.launches
    found = distance(friction, backend="cuda", **arguments)
    assert emulated_gpu.launches > launches + 50
    assert found.attrs == expected.attrs
    for name in expected:
        assert_same_bits(found[name].values, expected[name].values)


def test_hops_on_a_gpu(emulated_gpu: Emulator) -> None:
    mask = np.random.default_rng(6).random((80, 75)) < 0.65
    arguments = {"connectivity": 4, "tile": 32, "snap": True}
    expected = og.hop_distance(mask, [(40, 40)], backend="numba", **arguments)
    found = og.hop_distance(mask, [(40, 40)], backend="cuda", **arguments)
    assert emulated_gpu.launches > 50
    assert found.attrs == expected.attrs
    assert expected["hops"].values.max() > 40
    assert_array_equal(found["hops"].values, expected["hops"].values)


def test_tiles_leave_a_gpu_that_is_full(
    emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    friction = random_friction((96, 96), 8)
    arguments = {"sources": [(3, 5)], "cell_size": 1, "tile": 32}
    expected = distance(friction, backend="numba", **arguments)
    held, unpacked = [], []
    put, unpack = StateCache.put, DeviceTile.unpack

    def watched_put(cache: StateCache, *arguments: Any) -> None:
        put(cache, *arguments)
        held.append(cache._bytes)

    def watched_unpack(tile: DeviceTile, *packed: Array) -> None:
        unpacked.append(tile)
        unpack(tile, *packed)

    monkeypatch.setattr("orograph.kernels.backends.memory_for_tiles", lambda: 100_000)
    monkeypatch.setattr(StateCache, "put", watched_put)
    monkeypatch.setattr(DeviceTile, "unpack", watched_unpack)
    found = og.cost_distance(friction, backend="cuda", **arguments)
    assert_same_bits(found["cost"].values, expected["cost"].values)
    assert 50_000 < max(held) <= 100_000  # of nine tiles of 20,000 bytes
    assert len(unpacked) > 3


def test_tiles_at_work_share_a_gpu_with_those_that_wait(
    emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many threads there are: what they work on, and all that is kept, fits its memory."""
    limit = 800_000
    live: weakref.WeakSet[DeviceTile] = weakref.WeakSet()
    taken, weigh = [], DeviceTile._weigh

    def watched_weigh(tile: DeviceTile) -> None:
        weigh(tile)
        live.add(tile)
        there = tuple(live)
        weights = [tile._weights for tile in there]
        taken.append(sum(t.nbytes for t in there) + sum(w.nbytes for w in weights if w is not None))

    monkeypatch.setattr(DeviceTile, "_weigh", watched_weigh)
    monkeypatch.setattr("orograph.kernels.backends.memory_for_tiles", lambda: limit)
    heights = np.random.default_rng(4).random((192, 192))
    arguments: Any = {"sources": [(3, 5), (150, 160)], "tile": 32}
    expected = og.walking_time(heights, backend="numba", **arguments)
    with og.config.set(threads=8, field=0):
        found = og.walking_time(heights, backend="cuda", **arguments)
    assert_same_bits(found["time"].values, expected["time"].values)
    assert len(taken) > 36  # visits of 36 tiles
    assert limit / 2 < max(taken) <= limit


def test_sources_lower_cells_of_a_tile_on_a_gpu_as_the_twin_does(emulator: Emulator) -> None:
    rng = np.random.default_rng(11)
    case = replace(CASES[0], max_cost=30.0)
    grid = random_friction((70, 45), 2)
    expected, found = case.tile(grid), case.tile(grid)
    tile = DeviceTile(found, emulator)
    for turn in range(3):
        rows, columns = rng.integers(0, 70, 200), rng.integers(0, 45, 200)
        costs = np.floor(rng.uniform(0, 50, 200) / (turn + 1))
        twin.seed(expected, rows, columns, costs)
        tile.seed(rows, columns, costs)
        tile.store()
        assert_same_bits(found.dist, expected.dist)
        assert_same_bits(found.keys, expected.keys)
        assert_array_equal(found.fresh, expected.fresh)
        assert tile.reached == np.count_nonzero(found.dist[1:-1, 1:-1] < np.inf)
        assert_same_bits(tile.values_at(rows, columns), expected.dist[rows + 1, columns + 1])
    with pytest.raises(ValueError, match="outside the tile"):
        tile.seed([70], [0])


@pytest.mark.parametrize("backend", ["numba", "cuda"])
def test_a_tile_tells_again_what_a_lost_visit_had_told(
    backend: str, emulated_gpu: Emulator
) -> None:
    """Two tiles wake one another on a worker, whose answer is lost while their states are not."""
    grid = random_friction((32, 64), 7)
    problem = Distance(
        model=CostModel("friction"),
        dtype=np.dtype(np.float64),
        connectivity=8,
        lengths=edge_lengths(3)[:, :1],
        nodata={"friction": None},
        sources=Sources(*(np.array([n]) for n in (16, 3)), np.zeros(1), np.ones(1, np.int64)),
        cells=grid.size,
        backend=backend,
    )
    tree = Quadtree(grid.shape, 32)
    frames = Window(0, 0, 32, 33), Window(0, 31, 32, 33)
    left, right = (
        problem.open(tree.place(Node(0, morton_encode(0, i))), [grid[frame.slices].copy()], frame)
        for i, frame in enumerate(frames)
    )
    nothing: list[Any] = [None] * 8

    def visit(tile: Any, halo: list[Any], sent: list[Any]) -> Visit:
        return problem.visit(tile, Request((0, 0), 0.0, halo, sent), math.inf)

    first = visit(left, nothing, nothing)
    assert math.isfinite(first.outward[3])
    other = visit(right, [*nothing[:2], first.border[3], *nothing[3:]], nothing)
    visit(left, [*nothing[:3], other.border[2], *nothing[4:]], first.border)
    again = visit(left, nothing, nothing)
    assert again.outward[3] == first.outward[3]
    assert (again.border[3] <= first.border[3]).all()
