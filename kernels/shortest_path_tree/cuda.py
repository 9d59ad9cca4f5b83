"""Pairs (label, hops) along the steps that attain distances, on a GPU: the host's side of tree.cu.

A pair is one int64, the rank of its label above the hops, and a `DeviceTile` takes the steps that
attain the distances for its costs: one hop each, all others barriers. So seeds, borders and rounds
are those of distances. Masks, directions and labels are those of
`orograph.kernels.shortest_path_tree.tile`, to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.kernels import device as cuda
from orograph.kernels.relax.definitions import definitions, upload_costs
from orograph.kernels.relax.models import BARRIER, FRICTION, Rules
from orograph.kernels.relax.tile import TileState
from orograph.kernels.shortest_path_tree.pair_code import PairCode
from orograph.kernels.vectors.lanes import LANES
from orograph.tiles.arrays import Array
from orograph.tiles.grid.orientation import Orientation

if TYPE_CHECKING:
    from orograph.kernels.relax.cuda import DeviceTile


SOURCE = "shortest_path_tree/tree.cu"
THREADS = 128


def set_distances(
    dist: cuda.Buffer,
    known: Array | cuda.Buffer,
    corner: tuple[int, int],
    *,
    device: cuda.Device | None = None,
) -> None:
    """Lower distances to known ones, which are NaN (integers: below 0) where unknown."""
    device = device or cuda.current_device()
    y, x = corner
    there = cuda.as_words(dist[y : y + known.shape[0], x : x + known.shape[1]])
    news = cuda.as_words(cuda.on_device(device, known))
    device.array_module.minimum(there, news, out=there)


def tight_steps(state: TileState, *, device: cuda.Device | None = None) -> cuda.Buffer:
    """Return for each cell the steps that attain its distance, by where they come from.

    As `orograph.kernels.shortest_path_tree.tile.tight_steps`, in int64, of a tile in the memory of
    the device, and left there.
    """
    device = device or cuda.current_device()
    rules, shape = state.rules, state.dist.shape
    steps = device.array_module.empty(shape, np.int64)
    device.launch(
        SOURCE,
        "tight_steps",
        cuda.blocks_for(state.dist.size, THREADS),
        (THREADS,),
        (
            *(state.dist, *upload_costs(state, device), steps),
            *map(np.int32, (*_inner_shape(state), rules.reverse)),
        ),
        defines=definitions(rules),
    )
    return steps


def open_pairs(state: TileState, *, device: cuda.Device | None = None) -> DeviceTile:
    """Create a tile of unknown pairs over a tile with final distances, including the halo.

    Its "friction" are the steps that attain the distances.
    """
    from orograph.kernels.relax.cuda import DeviceTile

    device = device or cuda.current_device()
    rows = state.dist.shape[0]
    rules = Rules(
        model=FRICTION,
        steps=state.rules.steps,
        reach=state.rules.reach,
        reverse=False,
        symmetric=False,
        integer=True,
        uniform=True,
        has_friction=True,
        has_elevation=False,
        barrier=np.int64(BARRIER),
        unreached=np.int64(BARRIER),
        limit=np.int64(BARRIER - 1),
        factors=np.ones((5, rows), np.int64),
        coefficients=np.empty(0),
        by_step=None,
        by_row=None,
    )
    blocks = tuple(-(-n // LANES) for n in _inner_shape(state))
    pairs = TileState(
        dist=device.array_module.full(state.dist.shape, BARRIER, np.int64),
        keys=np.full(blocks, BARRIER),
        fresh=np.zeros(blocks, np.uint8),
        friction=tight_steps(state, device=device),
        elevation=np.empty((0, 0), np.int64),
        block=LANES,
        rules=rules,
    )
    return DeviceTile(pairs, device, tight_steps=True)


def back_directions(
    pairs: TileState,
    code: PairCode,
    orientation: Orientation,
    *,
    device: cuda.Device | None = None,
) -> cuda.Buffer:
    """Return the direction of the first step back of each cell, uint8; sources have 0.

    Parameters
    ----------
    pairs : TileState
        The ``state`` of what `open_pairs` returned, once it has converged.
    code : PairCode
        That of the pairs.
    orientation : Orientation
        That of the grid; of several directions the least code counts.
    device : Device, optional
        Where it lies; by default this process's GPU.
    """
    device = device or cuda.current_device()
    shape = _inner_shape(pairs)
    codes = device.array_module.empty(shape, np.uint8)
    numbers = map(np.int32, (*shape, code.hop_bits))
    arguments = pairs.dist, pairs.friction, codes, *numbers, *map(np.int32, orientation)
    _launch(device, "back_directions", pairs, *arguments)
    device.synchronize()  # other threads may download it
    return codes


def labels_of(
    pairs: TileState, code: PairCode, nobody: int, *, device: cuda.Device | None = None
) -> cuda.Buffer:
    """Return the label of each cell, int64, ``nobody`` where nothing has reached."""
    device = device or cuda.current_device()
    shape = _inner_shape(pairs)
    found = device.array_module.empty(shape, np.int64)
    known = None if code.labels is None else device.upload(code.labels)
    numbers = *map(np.int32, (*shape, code.hop_bits)), np.int64(code.least), np.int64(nobody)
    _launch(device, "labels_of", pairs, pairs.dist, known, found, *numbers)
    device.synchronize()
    return found


def _launch(device: cuda.Device, kernel: str, pairs: TileState, *arguments: Any) -> None:
    """Launch a kernel with a thread a cell."""
    height, width = _inner_shape(pairs)
    grid = cuda.blocks_for(height * width, THREADS)
    defines = definitions(pairs.rules)
    device.launch(SOURCE, kernel, grid, (THREADS,), arguments, defines=defines)


def _inner_shape(state: TileState) -> tuple[int, int]:
    """Return the cells of a tile down and across, without the halo."""
    height, width = (n - 2 * state.rules.reach for n in state.dist.shape)
    return height, width


__all__ = ["back_directions", "labels_of", "open_pairs", "set_distances", "tight_steps"]
