"""A resident tile on a GPU exchanges borders as one in this process's memory does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from numpy.testing import assert_array_equal

from orograph.kernels.relax import resident
from orograph.kernels.relax.border import facing, halo_strips, inner_of
from orograph.kernels.relax.cuda import DeviceTile
from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths
from orograph.kernels.relax.resident import HostTile, ResidentTile
from orograph.kernels.relax.tile import TileState, tile_state

Array = np.ndarray[Any, Any]
SHAPE = (37, 45)


def passable_tile(dtype: str, connectivity: int) -> TileState:
    """A tile cut out of a wider grid, so that its halo is passable."""
    reach = 2 if connectivity == 16 else 1
    shape = SHAPE[0] + 2 * reach, SHAPE[1] + 2 * reach
    friction = np.random.default_rng(3).integers(1, 9, shape).astype(dtype)
    unreached = BARRIER if dtype == "int64" else np.inf
    return tile_state(
        np.full(shape, unreached, dtype),
        friction=friction,
        lengths=np.rint(edge_lengths(shape[0], 3, 4)),
        model=CostModel("friction"),
        connectivity=connectivity,
    )


def borders(like: list[Array], rng: np.random.Generator, most: int) -> list[Array | None]:
    """Random borders of the neighbours; some have sent nothing."""
    sent = [rng.integers(0, most, part.shape).astype(part.dtype) for part in like]
    return [part if rng.random() < 0.6 else None for part in sent]


@pytest.mark.diagonal
@pytest.mark.parametrize("connectivity", [8, 16])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_tiles_on_host_and_device_exchange_the_same_borders(
    dtype: str, connectivity: int, emulator: Emulator
) -> None:
    reach = 2 if connectivity == 16 else 1
    rng = np.random.default_rng(5)
    host: ResidentTile = HostTile(passable_tile(dtype, connectivity))
    device: ResidentTile = DeviceTile(passable_tile(dtype, connectivity), emulator)
    tiles = host, device
    for tile in tiles:
        tile.seed(np.array([4, 30]), np.array([7, 40]), np.array([50, 90]))
    like = facing(np.zeros(SHAPE, dtype), reach)
    sent: list[Array | None] = [None] * 8
    for turn in range(4):
        halo = borders(like, rng, 300 - 60 * turn)
        ours, theirs = (tile.exchange(halo, sent, math.inf) for tile in tiles)
        assert ours.pending == theirs.pending == math.inf
        assert ours.outward == theirs.outward
        assert ours.reached == theirs.reached > 0
        for own, other in zip(ours.border, theirs.border, strict=True):
            assert (own is None) == (other is None)
            if own is not None:
                assert own.dtype == other.dtype
                assert_array_equal(own, other)
        for strip, other in zip(host.halo, device.halo, strict=True):
            assert_array_equal(strip, other)
        sent = [old if new is None else new for old, new in zip(sent, ours.border, strict=True)]
    assert sum(part is not None for part in sent) == 8

    # what is packed goes on where it was, in the memory of either
    opened = HostTile(passable_tile(dtype, connectivity))
    opened.unpack(*device.pack())
    moved = DeviceTile(passable_tile(dtype, connectivity), emulator)
    moved.unpack(*host.pack())
    result = host.read_out(np.dtype(dtype), -1)
    for tile in (device, opened, moved):
        again = tile.exchange(halo, sent, math.inf)
        assert again.border == [None] * 8
        assert again.reached == result.reached
        found = tile.read_out(np.dtype(dtype), -1)
        assert_array_equal(found.values, result.values)
        assert found[1:] == result[1:]


def test_a_tile_without_neighbours_needs_no_kernel_for_borders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = passable_tile("float64", 8)
    for strip in halo_strips(state.friction, 1):
        strip[...] = np.nan
    monkeypatch.setattr(resident, "probe_border", None)  # cannot be called
    host = HostTile(state)
    host.seed(np.array([0]), np.array([0]))
    found = host.exchange([None] * 8, [None] * 8, math.inf)
    assert found.outward == [math.inf] * 8
    assert found.reached == math.prod(SHAPE)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_result_lies_where_the_distances_were(dtype: str) -> None:
    """Also if nothing is known to be missing; so no memory is taken for it."""
    for barrier in (False, True):
        state = passable_tile(dtype, 8)
        if barrier:
            state.friction[4, 5] = state.unreached
        host = HostTile(state)
        host.seed(np.array([30, 0, 30]), np.array([40, 0, 40]), np.array([2, 5, 1]))
        found = host.exchange([None] * 8, [None] * 8, math.inf)
        expected = inner_of(state.dist, 1).copy()
        expected[expected == state.unreached] = -1
        result = host.read_out(np.dtype(dtype), -1)
        assert np.shares_memory(result.values, state.dist)
        assert_array_equal(result.values, expected)
        reached = math.prod(SHAPE) - barrier
        assert (found.reached, result[1:]) == (reached, (reached, 0, int(barrier)))


def test_a_source_on_a_barrier_is_counted_as_both() -> None:
    state = passable_tile("float64", 8)
    state.friction[4, 5] = np.nan
    host = HostTile(state)
    host.seed(np.array([3, 9]), np.array([4, 9]))
    host.exchange([None] * 8, [None] * 8, math.inf)
    cells = math.prod(SHAPE)
    assert host.read_out(np.dtype("float64"), np.nan)[1:] == (cells, 0, 1)
