"""Settings: in code, in the environment (``OROGRAPH_TILE=2048``) or in ``orograph.yaml``.

=========  ========  ====================================================================
name       default   meaning
=========  ========  ====================================================================
backend    "auto"    which kernels do the work: "numba", "cuda", or "auto"
tile       1024      cells a side of a tile, where the input does not say
threads    0         threads of a run without a cluster; 0 means one a core
progress   "auto"    whether calls show how far they are: "auto" on terminals and in notebooks
scratch    ""        folder for what a run without ``out`` keeps; "" means the system's own
=========  ========  ====================================================================
"""

from __future__ import annotations

from donfig import Config

config = Config(
    "orograph",
    defaults=[{"backend": "auto", "tile": 1024, "threads": 0, "progress": "auto", "scratch": ""}],
)
