"""Macros with which relax.cu is compiled: cost model, dtype and neighbours."""

from __future__ import annotations

from orograph.kernels import device as cuda
from orograph.kernels.relax.lanes import LANES
from orograph.kernels.relax.models import ABSOLUTE_DIFFERENCE, Rules

_TYPES = {"float64": "double", "float32": "float", "int64": "int64"}


def definitions(rules: Rules) -> dict[str, object]:
    """Return the macros with which relax.cu is compiled for a tile."""
    return {
        "VALUE": _TYPES[rules.factors.dtype.name],
        "INTEGER": int(rules.integer),
        "MODEL": rules.model,
        "SYMMETRIC": int(rules.symmetric),
        "COEFFICIENTS": rules.coefficients.size,
        "FRICTION": int(rules.has_friction),
        "STEPS": rules.steps,
        "UNIFORM": int(_uniform(rules)),
        "WARPS": 2 if 2 * warp_bytes(rules) <= cuda.STATIC_SHARED else 1,
    }


def warp_bytes(rules: Rules) -> int:
    """Return the bytes of shared memory of a warp, as relax.cu lays it out."""
    span = LANES + 2 * rules.reach
    planes = 1 + int(rules.has_friction) + int(rules.has_elevation)
    lengths = 0 if _uniform(rules) else 5 * span
    return int((planes * span * (span | 1) + lengths) * rules.factors.itemsize)


def _uniform(rules: Rules) -> bool:
    """Return whether lengths are the same in all rows, or do not count."""
    return rules.uniform or rules.model == ABSOLUTE_DIFFERENCE
