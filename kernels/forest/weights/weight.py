"""Definition of an edge weight of the minimum spanning forest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Weight:
    """Definition of an edge weight."""

    summary: str
    """Description of the weight of an edge, in a line."""
    formula: Any = None
    """Compiled: the weight of an edge in float64, of the heights ``(a, b)`` of its two ends.

    The same if they change places, and at most twice the greater magnitude. A cell that is none is
    infinitely high: then the weight must be infinite, or if both are none infinite or NaN. It works
    on arrays as well, before it is compiled. The CUDA function of the weight's name, in the
    ``.cuh`` of that name, has the same expressions. None: edges are ordered by the heights
    themselves, as kernels do for ``max``.
    """
