"""Choose the backend of a run, CPU or CUDA, from the processes that will do its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orograph.arguments.settings import setting
from orograph.kernels.backends import get_backend, may_use_numba, missing_gpu, resolve_backend
from orograph.run.cluster.clusters import LateClient
from orograph.run.cluster.workers import ask_workers, check_workers
from orograph.run.options import RunSpec, where_to_work
from orograph.tiles.raster.raster import Raster

if TYPE_CHECKING:
    from distributed import Client


def choose_backend(
    stage: str, rasters: tuple[Raster, ...], spec: RunSpec, lacking: str = ""
) -> str:
    """Return the backend that will run a kernel, or ``"auto"`` if no worker has joined yet.

    Workers of a cluster are asked, if they are to do the work and it makes a difference. Where
    there are none yet it stays ``"auto"``: `orograph.run.cluster.first_worker` asks those that
    come.
    ``lacking`` is what only Numba has of what the work needs; empty: nothing.

    Raises
    ------
    InputError, BackendError
        As `orograph.kernels.backends.resolve_backend`.
    """
    backend = spec.backend or setting("backend")
    client = where_to_work(rasters, spec)
    # workers that are not started yet will be processes of this machine, as this one is
    if client is None or isinstance(client, LateClient):
        return resolve_backend(stage, backend, None, lacking)

    def ask() -> dict[str, str | None]:
        check_workers(client)  # others would not understand the question
        return ask_workers(client, missing_gpu, on_error="raise")

    return resolve_backend(stage, backend, ask, lacking)


def gpus_of(backend: str, client: Client | None) -> tuple[int, int]:
    """Return the number of GPUs of a run, and the bytes that its tiles may use on each."""
    if may_use_numba(backend):
        return 0, 0
    if client is None:
        return 1, memory_of_gpu(backend)
    found = ask_workers(client, memory_of_gpu, backend).values()
    return max(len(found), 1), min(found, default=0)


def memory_of_gpu(backend: str) -> int:
    """Return the bytes that tiles may use on this process's GPU."""
    return get_backend(backend).tile_memory_limit() or 0
