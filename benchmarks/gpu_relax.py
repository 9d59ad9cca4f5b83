"""relax.cu on a GPU; run by gpu.py.

One source in the middle of a grid that is one tile; surfaces and cells as in relax_kernel.py.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import Any

import cupy
import numpy as np
from device_time import TimedDevice
from relax_kernel import GRIDS
from terrain import fractal, noise

import orograph as og
from orograph.distance.costs.slope_factors import factor_coefficients
from orograph.kernels import device as cuda
from orograph.kernels.relax import cuda as relax_cuda
from orograph.kernels.relax.cuda import DeviceTile
from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths
from orograph.kernels.relax.tile import TileState, relax, seed, tile_state

REPEAT = 5
BITS = (  # on a side, on a sixteenth of it: Numba kernels are slow to compile, not to run
    ("friction", "float32", 8),
    ("friction", "float64", 16),
    ("friction", "int64", 4),
    ("absolute_difference", "float32", 8),
    ("absolute_difference", "int64", 16),
    ("tobler", "float32", 8),
    ("tobler", "float64", 4),
    ("walk", "float64", 16),
)


TABLE = {
    degrees: 3.6 / (6 * math.exp(-3.5 * abs(math.tan(math.radians(degrees)) + 0.05)))
    for degrees in range(-80, 81, 5)
}


def seeded_tile(
    grid: Any,
    heights: Any,
    model: str,
    dtype: str,
    connectivity: int,
    coefficients: tuple[float, ...] = (),
) -> TileState:
    """A tile of friction and heights (whole numbers: rounded) with a source in the middle."""
    halo = 2 if connectivity == 16 else 1
    integer = dtype == "int64"
    needed = {"friction": grid} if model != "absolute_difference" else {}
    if model != "friction":
        needed["elevation"] = heights
    rasters = {
        name: np.pad(
            (np.rint(raster) if integer else raster).astype(dtype),
            halo,
            constant_values=BARRIER if integer else np.nan,
        )
        for name, raster in needed.items()
    }
    shape = tuple(n + 2 * halo for n in grid.shape)
    metres = 1.0 if model == "friction" else 30.0
    lengths = edge_lengths(shape[0], metres, metres)
    state = tile_state(
        np.full(shape, BARRIER if integer else np.inf, dtype),
        model=CostModel(model, coefficients=coefficients),
        lengths=np.rint(lengths) if integer else lengths,
        connectivity=connectivity,
        **rasters,
    )
    seed(state, grid.shape[0] // 2, grid.shape[1] // 2)
    return state


def bits(side: int) -> None:
    """Distances against the Numba kernel's, over all models, dtypes and neighbourhoods."""
    small = side // 4
    heights = fractal(small)
    cases = [("slopes", side, *BITS[0])]
    cases += [(name, small, *case) for case in BITS for name in ("random", "serpentine")]
    grids: dict[Any, Any] = {}
    for name, size, model, dtype, connectivity in cases:
        if (name, size) not in grids:
            grids[name, size] = GRIDS[name](size)
        case = grids[name, size], heights, model, dtype, connectivity
        found, expected = seeded_tile(*case), seeded_tile(*case)
        relax_cuda.relax(found)
        relax(expected)
        what = f"{name} {size}^2 {model} {dtype}, {connectivity} neighbours"
        if found.dist.tobytes() != expected.dist.tobytes():
            raise AssertionError(f"{what}: {int((found.dist != expected.dist).sum())} differ")
        print(f"{what}: the bits of the Numba kernel", flush=True)


def report(what: str, state: TileState) -> float:
    """Print the speed of a tile's rounds, from the seeds to the fixpoint, and what they did.

    Return the median of Gcell/s.
    """
    device = cuda.current_device()
    cells = (state.dist.shape[0] - 2) * (state.dist.shape[1] - 2)
    speeds = []
    for turn in range(REPEAT + 1):
        tile = DeviceTile(state, device)
        begin = time.perf_counter()
        _, visits, sets, rows, _ = tile.run_rounds()  # waits for the last round
        if turn:  # the first compiles
            speeds.append(cells / (time.perf_counter() - begin) / 1e9)
    print(
        f"{what}: {statistics.median(speeds):.2f} Gcell/s ({min(speeds):.2f}-{max(speeds):.2f}); "
        f"{tile.rounds} rounds, visits a block {visits / state.keys.size:.2f}, sets a visit "
        f"{sets / visits:.2f}, rows a visit {rows / visits:.0f}",
        flush=True,
    )
    return statistics.median(speeds)


def factors(side: int) -> None:
    """A table of the values of Tobler's function, and that function, with the ratio of times."""
    flat = np.ones((side, side), np.float32)
    surfaces = {"fractal": fractal(side), "noise": noise(side) * np.float32(0.12)}
    table = factor_coefficients(TABLE, None)
    for name, heights in surfaces.items():
        for dtype in ("float32", "float64"):
            states = [
                seeded_tile(flat, heights, model, dtype, 8, coefficients)
                for model, coefficients in (("terrain", table), ("tobler", ()))
            ]
            what = f"{name} {side}^2 {dtype}"
            one = report(f"{what} table of factors", states[0])
            other = report(f"{what} tobler", states[1])
            print(
                f"{what}: table of factors / Tobler = {other / one:.2f} times the time", flush=True
            )


def speed(side: int) -> None:
    """The device alone: surfaces of friction, then the other models, neighbourhoods and dtypes."""
    for name in ("slopes", "random", "smooth"):
        grid = GRIDS[name](side)
        for dtype in ("float32", "float64"):
            report(
                f"{name} {side}^2 friction {dtype}", seeded_tile(grid, None, "friction", dtype, 8)
            )
        if name == "random":
            for dtype, connectivity in (("float32", 16), ("int64", 4)):
                state = seeded_tile(grid, None, "friction", dtype, connectivity)
                report(f"{name} {side}^2 friction {dtype}, {connectivity} neighbours", state)
            blocked = np.where(np.random.default_rng(2).random(grid.shape) < 0.35, np.nan, grid)
            blocked[side // 2, side // 2] = 1
            state = seeded_tile(blocked, None, "friction", "float32", 8)
            report(f"35 % obstacles {side}^2 friction float32", state)
    heights = fractal(side)
    flat = np.ones((side, side), np.float32)
    for model in ("absolute_difference", "tobler", "walk"):
        state = seeded_tile(flat, heights, model, "float32", 8)
        report(f"fractal {side}^2 {model} float32", state)
    factors(min(side, 4096))
    hops = seeded_tile(flat, None, "friction", "int64", 4)
    report(f"hops {side}^2 int64, 4 neighbours", hops)
    side = min(side, 2048)
    state = seeded_tile(GRIDS["serpentine"](side), None, "friction", "float32", 8)
    report(f"serpentine {side}^2 friction float32", state)


def run(side: int) -> None:
    """A tile from and to the host, on both backends; whole runs; and what tunables do."""
    whole_runs(4 * side, min(side, 4096))
    walking_times(2 * side, min(side, 4096))
    tunables(side)
    side = min(side, 4096)
    grid = GRIDS["slopes"](side)
    for name, work in (("numba", relax), ("cuda", relax_cuda.relax)):
        spent = []
        for _ in range(3):
            state = seeded_tile(grid, None, "friction", "float32", 8)
            begin = time.perf_counter()
            work(state)
            spent.append(time.perf_counter() - begin)
        seconds = statistics.median(spent)
        rate = side**2 / seconds / 1e6
        print(f"slopes {side}^2 float32, {name}: {seconds:.3f} s, {rate:.0f} Mcell/s", flush=True)


def whole_runs(side: int, tile: int) -> None:
    """Arrays in memory to arrays in memory, over tiles as given and over joined ones.

    Seconds are the best of two; those of kernels are from a run of its own, summed over streams.
    """
    patch = GRIDS["slopes"](tile).astype(np.float32)
    rows = np.concatenate([patch, patch[::-1]])
    grid = np.tile(np.concatenate([rows, rows[:, ::-1]], 1), (side // (2 * tile),) * 2)
    device = TimedDevice()
    before, cuda._gpu = cuda._gpu, lambda: device

    def call() -> float:
        begin = time.perf_counter()
        og.cost_distance(
            *(grid, [(side // 2, side // 2)]),
            **{"cell_size": 1, "dtype": "float32", "tile": tile, "backend": "cuda"},
        )
        return time.perf_counter() - begin

    try:
        for field in (0, 512, 2048):
            with og.config.set(field=field, threads=4):
                first, *others = (call() for _ in range(3))
                what = f"whole run, slopes {side}^2 float32, tile {tile}, field {field}"
                rate = side**2 / min(others) / 1e9
                print(f"{what}: {min(others):.2f} s, {rate:.2f} Gcell/s (first {first:.2f} s)")
                with device.by_kernel("    kernels"):
                    call()
    finally:
        cuda._gpu = before


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the most bytes of GPU memory that arrays had during a call."""
    pool, ended, most = cupy.get_default_memory_pool(), Event(), [0]
    pool.free_all_blocks()
    before = pool.used_bytes()

    def watch() -> None:
        while not ended.wait(0.002):
            most[0] = max(most[0], pool.used_bytes() - before)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        ended.set()
        watcher.join()
    return most[0]


def walking_times(side: int, patch: int) -> None:
    """Arrays to arrays: Tobler's walking times beside plain distances, on squares and on a strip.

    Squares are mirrored copies of a patch. Seconds are of the second call.
    """
    flip = np.arange(2 * patch)
    fold = np.resize(np.where(flip < patch, flip, 2 * patch - 1 - flip), side)
    surfaces = {
        "fractal": fractal(patch)[np.ix_(fold, fold)],
        "noise": (noise(patch) * np.float32(0.12))[np.ix_(fold, fold)],
        "8 rows": np.random.default_rng(0).uniform(0, 10, (8, side**2 // 64)).astype(np.float32),
    }
    how = {"cell_size": 30, "dtype": "float32", "backend": "cuda"}
    for name, heights in surfaces.items():
        source = [(heights.shape[1] // 2, heights.shape[0] // 2)]
        friction = heights / np.float32(100) + np.float32(1)
        for what, call in {
            "walking time": partial(og.walking_time, heights, source, **how),
            "friction": partial(og.cost_distance, friction, source, **how),
            "height difference": partial(
                og.cost_distance, heights, source, cost="absolute_difference", **how
            ),
        }.items():
            peak = peak_bytes(call)
            begin = time.perf_counter()
            call()
            seconds = time.perf_counter() - begin
            print(
                f"{what}, {name} {heights.shape}: {seconds:.3f} s, "
                f"{heights.size / seconds / 1e9:.2f} Gcell/s, "
                f"{peak / heights.size:.0f} bytes a cell",
                flush=True,
            )


def tunables(side: int) -> None:
    """The device alone, with other numbers than the usual ones."""
    states = {
        f"{name} {n}^2": seeded_tile(GRIDS[name](n), None, "friction", "float32", 8)
        for name, n in (("random", side), ("smooth", side // 2), ("serpentine", side // 4))
    }
    at_work, usual = relax_cuda.AT_WORK, relax_cuda.definitions
    cases: list[tuple[tuple[int, int], dict[str, object]]] = [
        *(((n, n), {}) for n in (264, 528, 1056, 1584)),
        *((at_work, {"ROWS_A_VISIT": n}) for n in (64, 160)),
        *((at_work, {"GROUP": n}) for n in (2, 8)),
    ]
    try:
        for relax_cuda.AT_WORK, defines in cases:
            relax_cuda.definitions = lambda rules, more=defines: {**usual(rules), **more}
            for what, state in states.items():
                report(f"warps {relax_cuda.AT_WORK} {defines}, {what}", state)
    finally:
        relax_cuda.AT_WORK, relax_cuda.definitions = at_work, usual
