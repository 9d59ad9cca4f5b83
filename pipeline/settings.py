"""Settings: in code, in the environment (``OROGRAPH_TILE=2048``) or in ``orograph.yaml``.

=========  ========  ====================================================================
name       default   meaning
=========  ========  ====================================================================
backend    "auto"    which kernels do the work: "numba", "cuda", or "auto"
tile       1024      cells a side of a tile, where the input does not say
threads    0         threads of a run without a cluster; 0 means one a core
field      2048      cells a side up to which such a run joins tiles to relax them as one
scratch    ""        folder for what a run without ``out`` keeps; "" means the system's own
=========  ========  ====================================================================
"""

from __future__ import annotations

import os

from donfig import Config

config = Config(
    "orograph",
    defaults=[{"backend": "auto", "tile": 1024, "threads": 0, "field": 2048, "scratch": ""}],
)


def thread_count() -> int:
    """Return the number of threads of a run without a cluster."""
    count: int = config.get("threads") or os.cpu_count() or 1
    return count
