"""What tasks carry of the run they belong to: the run itself, or the path of a file that holds it.

A run knows coordinates, rasters and parameters; sent along with every task it would be the larger
part of the traffic. So on a cluster tasks carry a path, and each worker reads it once.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any

from orograph.tiles.errors import full_storage_reported


def store(run: Any, path: Path) -> str:
    """Write a run to a file; the handle that tasks carry."""
    with full_storage_reported(path):
        path.write_bytes(pickle.dumps(run))
    return str(path)


def load(handle: Any) -> Any:
    """The run behind a handle; a pair names a part of the run that its first entry leads to."""
    if isinstance(handle, tuple):
        return getattr(load(handle[0]), handle[1])
    return _read(handle) if isinstance(handle, str) else handle


@lru_cache(maxsize=8)
def _read(path: str) -> Any:
    return pickle.loads(Path(path).read_bytes())
