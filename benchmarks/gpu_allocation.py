"""Back directions and allocation on a GPU; run by gpu.py."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from device_time import TimedDevice
from gpu_relax import seeded_tile
from relax_kernel import GRIDS
from terrain import fractal

import orograph as og
from orograph.kernels import device as cuda
from orograph.kernels.relax.cuda import DeviceTile
from orograph.kernels.shortest_path_tree.cuda import (
    back_directions,
    labels_of,
    open_pairs,
    tight_steps,
)
from orograph.tiles.grid.orientation import NORTH_UP

REPEAT = 3
OUTPUTS = ("cost", "back_direction", "allocation")
BITS: tuple[dict[str, Any], ...] = (
    {"dtype": "float32"},
    {"dtype": "float64", "connectivity": 16},
    {"dtype": "int64", "connectivity": 4, "max_cost": 5000},
    {"dtype": "float32", "model": "tobler", "travel": "to"},
)


def bits(side: int) -> None:
    """Whole runs over tiles, joined and not, against the CPU: ties, plains of cost zero, walls."""
    side //= 4
    heights = fractal(side)
    rng = np.random.default_rng(0)
    friction = 2 * rng.integers(0, 9, (side, side)).astype(np.float32)  # even: whole costs
    friction[side // 4 : side // 2, side // 4 : side // 2] = 0
    friction[side // 16 :: side // 8, side // 16 :] = np.nan
    many = np.zeros((side, side), np.int64)
    cells = rng.integers(0, side, (2, 200))
    many[tuple(cells)] = rng.integers(1, 50, 200) * 10**15
    for options in BITS:
        walk = "model" in options
        distance = og.walking_time if walk else og.cost_distance
        outputs = ("time" if walk else "cost", *OUTPUTS[1:])
        for sources, kind in (([(side // 3, side // 5)], "one source"), (many, "200 sources")):
            arguments = {
                **{"elevation" if walk else "friction": heights if walk else friction},
                **{"sources": sources, "cell_size": 1, "outputs": outputs, **options},
            }
            with og.config.set(threads=4):
                expected = distance(**arguments, tile=256, backend="numba")
                for field in (0, 2048):
                    with og.config.set(field=field):
                        found = distance(**arguments, tile=256, backend="cuda")
                    what = f"{side}^2, {kind}, field {field}, {options}"
                    for name in outputs:
                        if found[name].values.tobytes() != expected[name].values.tobytes():
                            differ = int((found[name].values != expected[name].values).sum())
                            raise AssertionError(f"{what}: {name}: {differ} differ")
                    print(f"{what}: the bits of the CPU", flush=True)


def seconds(call: Callable[[], object]) -> float:
    """Median; what is compiled first is not counted."""
    spent = []
    for _ in range(REPEAT + 1):
        cupy.cuda.Device().synchronize()
        begin = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent[1:])


def speed(side: int) -> None:
    """The device alone, one tile: distances, then what follows from them."""
    for name in ("slopes", "random", "serpentine"):
        report(name, min(side, 2048) if name == "serpentine" else side)


def report(name: str, side: int) -> None:
    """Print the milliseconds of each step on one surface."""
    device = cuda.current_device()
    state = seeded_tile(GRIDS[name](side), None, "friction", "float32", 8)
    tile = DeviceTile(state, device)
    tile.relax()
    solved, middle = tile.state, np.array([side // 2])

    def carry_pairs() -> DeviceTile:
        pairs = open_pairs(solved)
        pairs.seed(middle, middle, np.array([0]))
        pairs.relax()
        return pairs

    pairs = carry_pairs().state
    steps: dict[str, Callable[[], object]] = {
        "distances with their upload": lambda: DeviceTile(state, device).relax(),
        "steps that attain them": lambda: tight_steps(solved),
        "these and pairs": carry_pairs,
        "directions": lambda: back_directions(pairs, 28, NORTH_UP),
        "labels": lambda: labels_of(pairs, 28, -1),
    }
    parts = ", ".join(f"{what} {1e3 * seconds(step):.1f}" for what, step in steps.items())
    print(f"{name} {side}^2 float32, ms: {parts}", flush=True)


def run(side: int) -> None:
    """Arrays in memory to arrays in memory: the cost alone, and with both other outputs."""
    device = TimedDevice()
    before, cuda._gpu = cuda._gpu, lambda: device
    try:
        for name in ("slopes", "random"):
            grid = GRIDS[name](side).astype(np.float32)
            arguments = {
                **{"friction": grid, "sources": [(side // 2, side // 2)], "cell_size": 1},
                **{"dtype": "float32", "tile": min(side, 1024), "backend": "cuda"},
            }
            with og.config.set(threads=4):
                # in turn, so that what else the machine does falls on both
                spent = {outputs: [] for outputs in (("cost",), OUTPUTS)}
                for _ in range(REPEAT):
                    for outputs, times in spent.items():
                        begin = time.perf_counter()
                        og.cost_distance(**arguments, outputs=outputs)
                        times.append(time.perf_counter() - begin)
                alone, both = (min(times) for times in spent.values())
                print(
                    f"{name} {side}^2 float32: cost {alone:.2f} s, with both other outputs "
                    f"{both:.2f} s, {both / alone:.2f} times as long",
                    flush=True,
                )
                with device.by_kernel("    kernels"):
                    og.cost_distance(**arguments, outputs=OUTPUTS)
    finally:
        cuda._gpu = before
