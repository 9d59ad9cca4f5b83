"""First-order distances of the eikonal equation in a tile on a GPU: the host's side of march.cu."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Device, current_device

SOURCE = "eikonal/march.cu"
SIDE = 16


def march(
    values: npt.NDArray[np.int64],
    costs: npt.NDArray[np.int64],
    waiting: npt.NDArray[np.bool_],
    bound: float,
    limit: int,
    *,
    device: Device | None = None,
) -> tuple[float, int]:
    """Run `orograph.kernels.eikonal.march.march` on a GPU, where nothing stays waiting.

    It goes on beyond the bound, as a few cells would not fill a GPU.
    """
    if not waiting.any():
        return math.inf, 0
    device = device or current_device()
    xp: Any = device.array_module
    height, width = costs.shape
    rows, columns = -(-height // SIDE), -(-width // SIDE)
    known, sides = device.upload(values), device.upload(costs)
    awake = xp.ones((rows, columns), np.int32)
    while True:
        following = xp.zeros((rows, columns), np.int32)
        size = np.int32(height), np.int32(width)
        device.launch(
            SOURCE,
            "lower_blocks",
            (columns, rows),
            (SIDE, SIDE),
            (known, sides, awake, following, *size, np.int64(limit)),
            defines={"SIDE": SIDE},
        )
        # A block wakes those beyond the sides on which its cells have fallen. None is awake: done.
        if not device.download(following).any():
            break
        awake = following
    found = device.download(known)
    settled = int(np.count_nonzero(found < values))
    values[...] = found
    waiting[...] = False
    return math.inf, settled
