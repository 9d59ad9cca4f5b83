"""The tile-state cache: states are opened once, spilled when there are too many, and come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from orograph.engines.tile_states import TileStates, forget
from orograph.execution.checkpoints import MemoryCheckpoints
from orograph.execution.context import RunContext
from orograph.tiles.errors import InputError
from orograph.tiles.grid.quadtree import Place, Quadtree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import ArrayRaster
from orograph.tiles.store.sink import ArraySink

CELLS = np.arange(64.0).reshape(8, 8)


class Sums:
    """States are lists: what the tile and its halo add up to, and what was put in later."""

    halo_width = 1

    backend = "numba"

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.opened: list[Window] = []

    def check(self, cells: Sequence[np.ndarray], frame: Window) -> None:
        bad = np.argwhere(cells[0] < 0)
        if bad.size:
            raise InputError(f"row {bad[0, 0] + frame.y}, column {bad[0, 1] + frame.x}")

    def open(self, place: Place, cells: Sequence[np.ndarray], frame: Window) -> list[float]:
        self.opened.append(frame)
        return [float(cells[0].sum())]

    def pack(self, state: list[float]) -> Any:
        return state[1:]

    def unpack(self, state: list[float], packed: Any) -> None:
        state.extend(packed)

    def size(self, state: list[float]) -> int:
        return 8

    def memory(self) -> int | None:
        return self.limit


def states_of(problem: Sums, cells: np.ndarray = CELLS) -> TileStates:
    context = RunContext(
        Quadtree(cells.shape, 4), 0, MemoryCheckpoints(), ArraySink({}), "tile-states"
    )
    forget(context.token)
    return TileStates(problem, (ArrayRaster(cells, cells.dtype, None),), context)


def test_a_state_is_opened_with_its_halo_and_then_kept() -> None:
    problem = Sums(1000)
    states = states_of(problem)
    state = states.take((0, 1))
    assert problem.opened == [Window(0, 3, 5, 5)]
    assert state == [CELLS[0:5, 3:8].sum()]
    state.append(7.0)
    states.keep((0, 1), state)
    assert states.take((0, 1)) is state
    assert len(problem.opened) == 1
    assert states.take((0, 1)) == state[:1]  # it was out, and nothing of it is on disk


def test_states_that_do_not_fit_are_spilled_and_unpacked() -> None:
    problem = Sums(16)  # bytes of two states
    states = states_of(problem)
    for n, tile in enumerate([(0, 0), (0, 1), (1, 0)]):
        state = states.take(tile)
        state.append(float(n))
        states.keep(tile, state)
    assert len(problem.opened) == 3
    assert states.take((0, 0)) == [CELLS[:5, :5].sum(), 0.0]
    assert len(problem.opened) == 4
    assert states.take((1, 0))[1:] == [2.0]
    assert len(problem.opened) == 4


def test_the_first_bad_cell_of_the_grid_is_named_whichever_tile_is_opened() -> None:
    cells = CELLS.copy()
    cells[6, 6] = cells[1, 2] = -1
    with pytest.raises(InputError, match="row 1, column 2"):
        states_of(Sums(1000), cells).take((1, 1))
