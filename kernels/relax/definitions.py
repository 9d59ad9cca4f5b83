"""Definitions that CUDA kernels are compiled with: cost model, dtype and neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orograph.kernels import device as cuda
from orograph.kernels.relax.models import ABSOLUTE_DIFFERENCE, MODELS, Rules
from orograph.kernels.vectors.lanes import LANES
from orograph.tiles.arrays import Array

if TYPE_CHECKING:
    from orograph.kernels.relax.tile import TileState

SLOPES = 2  # in edge_costs.cuh: a model with a formula
AT_WORK = 528, 1056  # the fewest warps, and the most; more repeat more work
MOST_REWEIGHED = AT_WORK[1] * LANES**2
"""Cells whose weights are in memory at once, where a tile does not keep those of all."""
_TYPES = {"float64": "double", "float32": "float", "int64": "int64"}


def definitions(rules: Rules) -> dict[str, object]:
    """Return the definitions with which relax.cu is compiled for a tile."""
    name, row = list(MODELS.items())[rules.model]
    slopes = {} if row.formula is None else {"FORMULA": name, "TABLE": int(bool(row.table))}
    extra = {} if rules.extra is None else {"EXTRA": rules.extra.size}
    return {
        "VALUE": _TYPES[rules.factors.dtype.name],
        "INTEGER": int(rules.integer),
        "MODEL": min(rules.model, SLOPES),
        **slopes,
        **extra,
        "FURTHER": len(row.further),
        "SYMMETRIC": int(rules.symmetric),
        "COEFFICIENTS": row.count,
        "FRICTION": int(rules.has_friction),
        "STEPS": rules.steps,
        "UNIFORM": int(_uniform(rules)),
        # Two warps a block of threads as long as their planes fit into the shared memory that a
        # block has without asking for more.
        "WARPS": 2 if 2 * warp_bytes(rules) <= cuda.STATIC_SHARED else 1,
    }


def weighed(rules: Rules) -> bool:
    """Return whether relax.cu computes the costs of steps before its rounds."""
    return bool(rules.model >= SLOPES) or rules.extra is not None


def weights_a_cell(steps: int) -> int:
    """Return how many weights `weighed` models have for a cell: those of each sweep."""
    return 4 * steps


def warp_bytes(rules: Rules) -> int:
    """Return the bytes of shared memory of a warp, as relax.cu lays it out."""
    # The distances of a block with its halo, the raster of costs unless weights were computed
    # beforehand, and the lengths of its rows in each direction. An odd stride puts the cells of a
    # column into different banks of the memory.
    span = LANES + 2 * rules.reach
    planes = 1 if weighed(rules) else 2
    lengths = 0 if _uniform(rules) or weighed(rules) else 5 * span
    return int((planes * span * (span | 1) + lengths) * rules.factors.itemsize)


def upload_costs(state: TileState, device: cuda.Device) -> tuple[cuda.Buffer, ...]:
    """Return friction, elevation, lengths and coefficients in the memory of a device.

    The rasters lie there already. Further ones come behind elevation.
    """
    rules, xp = state.rules, device.array_module
    # Kernels take a pointer to either raster. Distances stand in for one that the model does not
    # have, which is never read.
    friction, elevation = (
        raster if raster.size else state.dist for raster in (state.friction, state.elevation)
    )
    if state.further:
        further = [cuda.on_device(device, raster) for raster in state.further]
        elevation = xp.concatenate([elevation, *further])
    # Without the further rasters, which stand behind the coefficients for Numba alone.
    own = rules.coefficients[: rules.coefficients.size - state.appended]
    lengths = device.upload(np.ascontiguousarray(rules.factors))
    return friction, elevation, lengths, upload_coefficients(rules, own, device)


def upload_coefficients(rules: Rules, own: Array, device: cuda.Device) -> cuda.Buffer:
    """Return the extra numbers of the rules and then coefficients, in the memory of a device."""
    extra = () if rules.extra is None else rules.extra
    return device.upload(np.concatenate([extra, own, [0.0]]))  # no array is empty


def _uniform(rules: Rules) -> bool:
    """Return whether lengths are the same in all rows, or do not count."""
    return rules.uniform or rules.model == ABSOLUTE_DIFFERENCE
