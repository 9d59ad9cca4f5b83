"""The table of stages: each row names functions that exist and that can stand for one another."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Event
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator

from orograph.kernels import device
from orograph.kernels.stages import STAGES, kernel
from orograph.tiles.errors import BackendError


def parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters that callers may rely on: those of one backend alone are not."""
    of_device = {"device", "squares", "tight_steps", "keep_weights"}
    return [name for name in inspect.signature(function).parameters if name not in of_device]


@pytest.mark.parametrize("stage", STAGES)
def test_the_functions_of_a_stage_take_the_same_arguments(stage: str) -> None:
    host = kernel(stage, "numba")
    assert callable(host)
    if STAGES[stage].cuda is not None:
        assert parameters(kernel(stage, "cuda")) == parameters(host)


def test_a_stage_that_fills_the_memory_of_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_gpu", lambda: Emulator(largest=1))
    rows = np.array([0, 1, 2]), np.array([1, 0]), np.ones(2)
    with pytest.raises(BackendError, match=r"memory of the GPU is full.*smaller tile"):
        kernel("graph_components", "cuda")(rows)


def test_few_threads_compute_tiles_of_a_sweep_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most, all_in = [0], [0], Event()

    def compute() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        if inside[0] == device.TILES_AT_ONCE:
            all_in.set()
        assert all_in.wait(60)
        time.sleep(0.01)
        inside[0] -= 1

    module = import_module("orograph.kernels.forest.cuda")
    monkeypatch.setattr(module, "tile_forest", compute)
    with ThreadPoolExecutor(3 * device.TILES_AT_ONCE) as pool:
        calls = [kernel("tile_forest", "cuda") for _ in range(3 * device.TILES_AT_ONCE)]
        for call in [pool.submit(one) for one in calls]:
            call.result()
    assert most[0] == device.TILES_AT_ONCE
