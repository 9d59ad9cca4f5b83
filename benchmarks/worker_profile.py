"""Count calls, seconds and CPU seconds of the functions in which workers spend a run.

Functions are wrapped in the workers of a cluster, by `installed`, so that a run is measured as it
is. Seconds are those of all threads together; nested calls count in both.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from distributed import Client

PLACES = {
    "read bytes": ["tiles.local_storage:_FileReader.range"],
    "checksums": ["tiles.store.shard:without_checksum", "tiles.store.shard:with_checksum"],
    "decompress": ["tiles.store.shard:decompress"],
    "decode on the GPU": ["kernels.blosc.cells:Target.decode"],
    "check cells": [
        "distance.problem:Distance.check",
        "distance.hops:Hops.check",
    ],
    "upload": ["kernels.device:CupyDevice.upload", "kernels.device:CupyDevice.upload_into"],
    "page-locked memory": ["kernels.device:CupyDevice.host_array"],
    "relax": ["kernels.relax.cuda:DeviceTile.run_rounds"],
    "tile on the GPU": [
        "kernels.forest.cuda:tile_forest",
        "kernels.label.cuda:find_components",
        "kernels.terrain.cuda:tile_basins",
        "kernels.terrain.cuda:raise_cells",
        "kernels.relax.cuda:DeviceTile.read_out",
    ],
    "download": ["kernels.device:CupyDevice.download"],
    "encode on the GPU": ["kernels.blosc.cells:Source.encode"],
    "compress": ["tiles.store.shard:compress"],
    "write bytes": ["tiles.local_storage:replace_file"],
    "flush to disk": ["tiles.local_storage:sync_file"],
    "checkpoints": ["execution.checkpoints:StoredCheckpoints.save"],
    "tasks": [
        "engines.frontier.worker:visit_tiles",
        "engines.frontier.worker:finish_shards",
        "engines.quadtree_pass:_perform",
    ],
}

_lock = threading.Lock()
_spent: dict[str, list[float]] = {}
_before: list[tuple[Any, str, Any]] = []


@contextmanager
def installed(client: Client) -> Iterator[None]:
    """Wrap the functions in every worker within this context."""
    client.run(_install)
    try:
        yield
    finally:
        client.run(_remove)


def spent(client: Client, begun: float) -> list[str]:
    """Return lines about what each worker has spent since ``begun``, in seconds of `time.time`."""
    return [
        f"{name:20}{calls:8.0f} calls {wall:7.2f} s {cpu:7.2f} s of CPU, "
        f"from {first - begun:5.2f} to {last - begun:5.2f} s"
        for found in client.run(_found).values()
        for name, (calls, wall, cpu, first, last) in found.items()
    ]


def _install() -> None:
    for name, places in PLACES.items():
        for place in places:
            module, _, path = place.partition(":")
            holder: Any = importlib.import_module(f"orograph.{module}")
            *parents, last = path.split(".")
            for parent in parents:
                holder = getattr(holder, parent)
            function = getattr(holder, last)
            _before.append((holder, last, function))
            setattr(holder, last, _timed(name, function))


def _remove() -> None:
    while _before:
        setattr(*_before.pop())
    _spent.clear()


def _found() -> dict[str, list[float]]:
    with _lock:
        return {name: list(_spent[name]) for name in PLACES if name in _spent}


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        begun, wall, cpu = time.time(), time.perf_counter(), time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            taken = time.perf_counter() - wall, time.thread_time() - cpu
            with _lock:
                spent = _spent.setdefault(name, [0, 0.0, 0.0, begun, begun])
                spent[0] += 1
                spent[1] += taken[0]
                spent[2] += taken[1]
                spent[3] = min(spent[3], begun)
                spent[4] = max(spent[4], begun + taken[0])

    return timed
