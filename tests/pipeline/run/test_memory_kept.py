"""Memory that workers keep for the next arrays, where Dask would have them return it at once."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import pytest

from orograph.run.cluster.workers import TRIM_THRESHOLD_OF_DASK

SCRIPT = """
import resource
import numpy as np
from orograph.run.cluster.workers import keep_freed_memory
if {keeps}:
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(2**21)
before = faults()
for _ in range(20):
    np.ones(2**21)
print((faults() - before) * resource.getpagesize())
"""


def bytes_cleared(keeps: bool, **environment: str) -> int:
    """Return how many bytes the system cleared for twenty arrays of 16 MiB, one after another."""
    environment = {
        **{name: value for name, value in os.environ.items() if "MALLOC" not in name},
        # pages of 2 MiB would count as one
        "NUMPY_MADVISE_HUGEPAGE": "0",
        **environment,
    }
    command = [sys.executable, "-c", SCRIPT.format(keeps=keeps)]
    return int(subprocess.run(command, env=environment, stdout=-1, check=True).stdout)


def test_dasks_default_is_what_is_replaced() -> None:
    import distributed
    from dask import config

    assert distributed
    of_dask: dict[str, Any] = config.get("distributed.nanny.pre-spawn-environ")
    assert str(of_dask["MALLOC_TRIM_THRESHOLD_"]) == TRIM_THRESHOLD_OF_DASK


@pytest.mark.skipif(
    not (sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")), reason="no glibc"
)
def test_a_worker_keeps_memory_unless_its_user_has_said_otherwise() -> None:
    dask = {"MALLOC_TRIM_THRESHOLD_": TRIM_THRESHOLD_OF_DASK}
    every = 20 * 2**24
    assert bytes_cleared(False, **dask) > 0.9 * every
    assert bytes_cleared(True, **dask) < 0.1 * every
    assert bytes_cleared(True, MALLOC_TRIM_THRESHOLD_="65537") > 0.9 * every
