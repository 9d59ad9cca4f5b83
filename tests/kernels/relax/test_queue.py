"""Threads that work on one tile: the same bits as one thread."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from orograph.kernels.relax import tile as module
from orograph.kernels.relax.queue import ACTIVE, COUNTS, WAITING, fill, visit_blocks
from orograph.kernels.relax.sweeps import make_workspace
from orograph.kernels.relax.tile import TileState, relax, seed, tile_state
from orograph.kernels.threads import threads_of_visit, use_threads

THREADS = 4


def seeded(side: int, connectivity: int = 8, dtype: Any = np.float64, block: int = 8) -> TileState:
    """Return a tile of independent friction with a source in its middle."""
    reach = 2 if connectivity == 16 else 1
    friction = np.random.default_rng(side).uniform(1, 100, (side, side)).astype(dtype)
    unreached, barrier = (2**60, 2**60) if np.dtype(dtype).kind == "i" else (np.inf, np.nan)
    state = tile_state(
        np.full((side + 2 * reach,) * 2, unreached, dtype),
        friction=np.pad(friction, reach, constant_values=barrier),
        connectivity=connectivity,
        lengths=np.ones((5, side + 2 * reach)),
        block=block,
    )
    seed(state, side // 2, side // 2)
    return state


@pytest.mark.parametrize("bound", [math.inf, 700.0], ids=["to the end", "in steps"])
@pytest.mark.parametrize(
    ("connectivity", "dtype"), [(8, np.float64), (4, np.int64), (16, np.float32)]
)
def test_threads_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, connectivity: int, dtype: Any, bound: float
) -> None:
    at_work = set()

    def noted(*arguments: Any) -> Any:
        at_work.add(threading.get_ident())
        return make_workspace(*arguments)

    expected, state = (seeded(300, connectivity, dtype) for _ in range(2))
    relax(expected)
    monkeypatch.setattr(module, "CELLS_A_THREAD", 1)
    monkeypatch.setattr(module, "make_workspace", noted)
    found = 0
    with use_threads(THREADS):
        while state.pending < math.inf:
            found += relax(state, state.pending + bound).found
    assert_array_equal(state.dist, expected.dist, strict=True)
    assert found == 300 * 300 - 1
    assert len(at_work) > 1
    assert threads_of_visit() == 1


def test_a_thread_leaves_an_empty_queue_that_others_may_fill() -> None:
    state = seeded(20)
    counts = np.zeros(COUNTS, np.int64)
    places = np.empty((2, state.keys.size), np.int64)
    queue = *places, state.keys.reshape(-1), counts
    work = (
        *((state.dist, state.friction, state.elevation), state.fresh, queue),
        *(make_workspace(state.dist, state.rules), state.block, state.rules),
        *(state.unreached, np.zeros(6, np.int64)),
    )
    fill(queue, state.unreached)
    assert counts[WAITING] == 1
    counts[ACTIVE] = 1  # another thread, that is still at work
    assert not visit_blocks(*work)
    assert counts.tolist() == [0, 0, 1]
    assert state.pending == math.inf  # nothing was left undone, as far as this thread knew
    counts[ACTIVE] = 0
    assert visit_blocks(*work)
