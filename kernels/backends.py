"""Which function does a stage's work on which backend: the one place where that is chosen.

A backend is imported only when one of its kernels is asked for, so CuPy is never needed on a
machine without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from orograph.tiles.errors import BackendError, InputError

BACKENDS = ("auto", "numba", "cuda")

_KERNELS: dict[str, dict[str, str]] = {
    "tile_forest": {
        "numba": "orograph.kernels.forest.tile:tile_forest",
        "cuda": "orograph.kernels.forest.cuda:tile_forest",
    },
    "relax": {
        "numba": "orograph.kernels.relax.tile:relax",
        "cuda": "orograph.kernels.relax.cuda:relax",
    },
    **{
        name: {
            "numba": f"orograph.kernels.relax.pad:{name}",
            "cuda": f"orograph.kernels.relax.pad_cuda:{name}",
        }
        for name in ("pad_costs", "read_out")
    },
    "solve_blocks": {
        "numba": "orograph.kernels.boundary.blocks:solve_blocks",
        "cuda": "orograph.kernels.boundary.cuda:solve_blocks",
    },
    "minplus": {
        "numba": "orograph.kernels.minplus.product:minplus",
        "cuda": "orograph.kernels.minplus.cuda:minplus",
    },
    "floyd_warshall_block": {
        "numba": "orograph.kernels.minplus.closure:floyd_warshall_block",
        "cuda": "orograph.kernels.minplus.cuda:floyd_warshall_block",
    },
    "dijkstra": {"numba": "scipy.sparse.csgraph:dijkstra"},
    "bidirectional_search": {"numba": "orograph.kernels.relax.descend:descend"},
    "label_tile": {
        "numba": "orograph.kernels.label.tile:label_tile",
        "cuda": "orograph.kernels.label.cuda:label_tile",
    },
}


def resolve_backend(
    stage: str, backend: str, workers: Mapping[str, str | None] | None = None
) -> str:
    """The backend that will do the work of ``stage``: ``"numba"``, ``"cuda"`` or undecided.

    Parameters
    ----------
    stage, backend : str
        What is to be done; one of ``BACKENDS``.
    workers : mapping
        Where this process does not do the work: names of those that do, and what `missing_gpu` says
        there. ``"auto"`` follows them: CUDA if all have a GPU, Numba if none has; where there are
        none yet it stays ``"auto"``.

    Raises
    ------
    InputError
        If ``backend`` is not one of ``BACKENDS``.
    BackendError
        If it has no kernel for ``stage``, there is no such device, or some workers have one and
        others do not.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: {backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    known = _KERNELS[stage]
    if backend == "numba" or (backend == "auto" and "cuda" not in known):
        return "numba"
    if "cuda" not in known:
        raise BackendError(f"backend: {stage} has no CUDA kernel yet; use 'numba'")
    if workers is not None:
        return backend_of_workers(backend, workers)
    reason = missing_gpu()
    if reason is None:
        return "cuda"
    if backend == "auto":
        return "numba"
    raise BackendError(f"backend: 'cuda' cannot be used here: {reason}; use 'numba'")


def backend_of_workers(backend: str, workers: Mapping[str, str | None]) -> str:
    """What ``"auto"`` or ``"cuda"`` comes to on a cluster: see `resolve_backend`."""
    if not workers and backend == "auto":
        return "auto"
    if not workers:
        raise BackendError(
            "backend: 'cuda', but the cluster has no worker yet that could tell whether it has a "
            "GPU; wait for one (client.wait_for_workers(1)), or use 'numba'"
        )
    without = {name: reason for name, reason in workers.items() if reason is not None}
    if not without:
        return "cuda"
    if backend == "auto" and len(without) == len(workers):
        return "numba"
    name, reason = min(without.items())
    raise BackendError(
        f"backend: {backend!r}, but {len(without)} of {len(workers)} workers have no GPU to use, "
        f"such as {name}: {reason}; use 'numba', or a cluster whose workers all have one"
    )


def kernel(stage: str, backend: str) -> Callable[..., Any]:
    """The function that does the work of ``stage`` on ``backend``."""
    module, name = _KERNELS[stage][backend].split(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


@cache
def missing_gpu() -> str | None:
    """Why CUDA kernels cannot run in this process, or None if they can."""
    if find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'orograph[gpu]')"
    import cupy

    if not cupy.is_available():
        return "CuPy finds no CUDA device"
    return None
