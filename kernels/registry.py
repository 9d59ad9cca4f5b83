"""Which function does a stage's work on which backend: the one place where that is chosen.

A backend is imported only when one of its kernels is asked for, so CuPy is never needed on a
machine without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from orograph.tiles.errors import BackendError, InputError

BACKENDS = ("auto", "numba", "cuda")

_KERNELS: dict[str, dict[str, str]] = {
    "tile_forest": {"numba": "orograph.kernels.forest:tile_forest"},
    "relax": {"numba": "orograph.kernels.relax:relax"},
    "label_tile": {"numba": "orograph.kernels.label:label_tile"},
}


def resolve_backend(stage: str, backend: str) -> str:
    """The backend that will do the work of ``stage``: ``"numba"`` or ``"cuda"``.

    Raises
    ------
    InputError
        If ``backend`` is not one of ``BACKENDS``.
    BackendError
        If it has no kernel for ``stage``, or the machine has no such device.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: {backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    if backend == "auto":
        return "cuda" if "cuda" in _KERNELS[stage] and missing_gpu() is None else "numba"
    if backend == "cuda":
        reason = missing_gpu()
        if reason is not None:
            raise BackendError(f"backend: 'cuda' cannot be used here: {reason}; use 'numba'")
    if backend not in _KERNELS[stage]:
        raise BackendError(f"backend: {stage} has no {backend} kernel yet; use 'numba'")
    return backend


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
