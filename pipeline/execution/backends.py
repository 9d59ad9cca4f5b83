"""Choose the backend of a run: that of the processes which will do its work."""

from __future__ import annotations

from orograph.execution.clusters import LateClient
from orograph.execution.options import RunSpec, where_to_work
from orograph.execution.workers import check_workers
from orograph.kernels.backends import missing_gpu, resolve_backend
from orograph.settings import setting
from orograph.tiles.raster.raster import Raster


def choose_backend(
    stage: str, rasters: tuple[Raster, ...], spec: RunSpec, lacking: str = ""
) -> str:
    """Return the backend that will do the work of ``stage``: its name, or ``"auto"``: undecided.

    Workers of a cluster are asked, if they are to do the work and it makes a difference. Where
    there are none yet it stays ``"auto"``: `orograph.execution.first_worker` asks those that come.
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
        missing: dict[str, str | None] = client.run(missing_gpu)
        return missing

    return resolve_backend(stage, backend, ask, lacking)
