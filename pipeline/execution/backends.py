"""Choose the backend of a run, CPU or CUDA, from the processes that will do its work."""

from __future__ import annotations

from orograph.execution.clusters import LateClient
from orograph.execution.options import RunSpec, where_to_work
from orograph.execution.settings import setting
from orograph.execution.workers import ask_workers, check_workers
from orograph.kernels.backends import missing_gpu, resolve_backend
from orograph.tiles.raster.raster import Raster


def choose_backend(
    stage: str, rasters: tuple[Raster, ...], spec: RunSpec, lacking: str = ""
) -> str:
    """Return the backend that will run a kernel, or ``"auto"`` if no worker has joined yet.

    Workers of a cluster are asked, if they are to do the work and it makes a difference. Where
    there are none yet it stays ``"auto"``: `orograph.operations.first_worker` asks those that come.
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
