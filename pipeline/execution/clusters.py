"""A Dask cluster on this machine: GPUs where there are some, else CPU cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orograph.kernels.backends import missing_gpu

if TYPE_CHECKING:
    from distributed import Client

GPU_THREADS = 4


def cluster(n_workers: int | None = None, **options: Any) -> Client:
    """Start a cluster on this machine and return a client of it.

    Parameters
    ----------
    n_workers
        Number of workers; by default one a GPU, or one a core.
    **options
        Handed on to ``dask_cuda.LocalCUDACluster`` or ``distributed.LocalCluster``.

    Returns
    -------
    distributed.Client
        Closing it closes the cluster. While it is open, operations on stored rasters run on it
        unless they are given another ``client``.

    Notes
    -----
    CPU workers are processes of one thread each: the kernels are serial, and a process of its own
    has a memory limit of its own. GPU workers have four threads: while the tile of one is computed,
    others decode, copy and write theirs.

    Examples
    --------
    >>> import orograph as og
    >>> with og.cluster(n_workers=1, dashboard_address=None) as client:
    ...     len(client.scheduler_info()["workers"])
    1
    """
    from distributed import Client, LocalCluster

    class OwningClient(Client):
        """A client that takes its cluster with it when it closes."""

        def close(self, *args: Any, **kwargs: Any) -> None:
            super().close(*args, **kwargs)  # type: ignore[no-untyped-call]
            local.close()

    if missing_gpu() is None:
        from dask_cuda import LocalCUDACluster

        options = {"threads_per_worker": GPU_THREADS, **options}
        local = LocalCUDACluster(n_workers=n_workers, **options)
    else:
        options = {"threads_per_worker": 1, "processes": True, **options}
        local = LocalCluster(n_workers=n_workers, **options)
    return OwningClient(local)  # type: ignore[no-untyped-call]


def current_client() -> Client | None:
    """The client that is active in this session, if there is one."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        client: Client = default_client()
        return client
    except ValueError:
        return None
