"""Flow in a tile on a GPU: the host's side of flow.cu."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from orograph.kernels.device import Buffer, Device, blocks_for, current_device, scalar, value_type
from orograph.kernels.flow.accumulate import BITS, find_circle
from orograph.kernels.flow.codes import SINK
from orograph.tiles.arrays import Array, Integers

SOURCE = "flow/flow.cu"
THREADS = 256
HALF = BITS // 2
"""Binary digits of one of the two words in which fractions are added: sums of 2**32 have room."""


def step_down(
    surface: Array,
    valid: Array,
    reciprocals: Array,
    numbers: Array,
    order: Integers,
    *,
    device: Device | None = None,
) -> int:
    """Write the steps of cells that drain by themselves; return how many others there are.

    As `orograph.kernels.flow.directions.step_down`; takes 2 bytes a cell on the device besides the
    heights.
    """
    device = device or current_device()
    found = device.array_module.empty(numbers.shape, np.uint8)
    height, width = numbers.shape
    device.launch(
        *(SOURCE, "step_down", blocks_for(numbers.size, THREADS), (THREADS,)),
        (
            *map(device.upload, (surface, valid, reciprocals)),
            *(scalar(np.int32, n) for n in (len(reciprocals), height, width)),
            found,
        ),
        defines={
            "VALUE": value_type(surface.dtype),
            "WIDE": int(surface.dtype == np.uint64),
            "COUNT": len(order),
            "ORDER": sum(int(number) << 4 * place for place, number in enumerate(order)),
        },
    )
    numbers[...] = device.download(found)
    return int(np.count_nonzero(numbers == SINK))


def accumulate(
    numbers: Array, high: Integers, low: Integers, *, device: Device | None = None
) -> int:
    """Accumulate in place; return the first cell that lies on a cycle, or -1.

    As `orograph.kernels.flow.accumulate.accumulate`; takes 25 bytes a cell on the device, 57 with
    fractions.
    """
    device = device or current_device()
    # Fractions in two halves, so that sums of unsigned words need no carry until the end.
    words = [high, low >> HALF, low & (2**HALF - 1)] if low.size else [high]
    sums = device.upload(np.stack(words).view(np.uint64))
    if not _add_up(numbers, sums, device):
        return find_circle(numbers)
    found = device.download(sums).view(np.int64)
    high[:] = found[0]
    if low.size:
        # The carries: from the lower half to the upper one, and from there to whole units.
        upper = found[1] + (found[2] >> HALF)
        high += upper >> HALF
        low[:] = (upper & (2**HALF - 1)) << HALF | found[2] & (2**HALF - 1)
    return -1


def count_cells(
    numbers: Array,
    border: Integers,
    entering: Integers,
    found: Integers,
    *,
    device: Device | None = None,
) -> int:
    """Count the cells whose water passes each cell; return as `accumulate`.

    As `orograph.kernels.flow.accumulate.count_cells`, and takes as much memory as `accumulate`. Of
    a count for the border no more than that crosses the bus.
    """
    device = device or current_device()
    xp = device.array_module
    sums = xp.full((1, numbers.size), 1, np.uint64)
    cells = device.upload(border)
    if entering.size:
        sums[0, cells] += device.upload(entering.view(np.uint64))
    if not _add_up(numbers, sums, device):
        return find_circle(numbers)
    wanted = sums[0] if found.size == numbers.size else sums[0][cells]
    found[:] = device.download(wanted).view(np.int64)
    return -1


def _add_up(numbers: Array, sums: Buffer, device: Device) -> bool:
    """Accumulate the words of each cell, in place; return whether the paths have no circles."""
    size, count = scalar(np.int64, numbers.size), scalar(np.int32, len(sums))
    grid = blocks_for(numbers.size, THREADS)
    for pointers in _rounds(numbers, device):
        if pointers is None:
            return False
        # Pointer jumping: each cell adds its sum of the round before to the cell that lies 1, 2, 4,
        # ... steps below. What is read must not be changed by the same round.
        before = sums.copy()
        device.launch(SOURCE, "add_up", grid, (THREADS,), (pointers, size, count, before, sums))
    return True


def exits_of(numbers: Array, border: Integers, *, device: Device | None = None) -> Integers:
    """Return the last cell of the path from each of some cells; the paths have no circles.

    As `orograph.kernels.flow.accumulate.exits_of`; takes 17 bytes a cell on the device.
    """
    device = device or current_device()
    xp = device.array_module
    size, grid = scalar(np.int64, numbers.size), blocks_for(numbers.size, THREADS)
    last = xp.arange(numbers.size, dtype=np.int32)
    for pointers in _rounds(numbers, device):
        if pointers is None:
            raise ValueError("the paths have circles")
        further = xp.empty(numbers.size, np.int32)
        device.launch(SOURCE, "follow", grid, (THREADS,), (pointers, size, last, further))
        last = further
    return device.download(last[device.upload(border)]).astype(np.int64)


def _rounds(numbers: Array, device: Device) -> Iterator[Buffer | None]:
    """Yield the cells 1, 2, 4 and so on steps below each, while there are any.

    At the end comes None if the paths have circles.
    """
    xp, count = device.array_module, numbers.size
    size, grid = scalar(np.int64, count), blocks_for(count, THREADS)
    pointers = xp.empty(count, np.int32)
    down = device.upload(numbers.reshape(-1)), size, scalar(np.int32, numbers.shape[1]), pointers
    device.launch(SOURCE, "point_down", grid, (THREADS,), down)
    # A path has fewer steps than cells. What still leads on after that many doublings is a circle.
    for _ in range(count.bit_length()):
        if not bool((pointers >= 0).any()):
            return
        yield pointers
        further = xp.empty(count, np.int32)
        device.launch(SOURCE, "double_steps", grid, (THREADS,), (pointers, size, further))
        pointers = further
    if bool((pointers >= 0).any()):
        yield None
