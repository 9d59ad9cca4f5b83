"""Backends, which compute tiles: their devices, their memory, and the choice between them.

Their kernels are those of `orograph.kernels.stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import (
    Device,
    current_device,
    memory_for_tiles,
    memory_reported,
    values_at,
)
from orograph.kernels.stages import STAGES
from orograph.tiles.arrays import Indices, use_allocator
from orograph.tiles.errors import BackendError, InputError

BACKENDS = ("auto", "numba", "cuda")


class Backend(Protocol):
    """The interface of a backend: its devices and its memory."""

    @property
    def name(self) -> str:
        """Name of the backend, as in the ``backend`` argument of an operation."""

    @property
    def cells_a_visit(self) -> int:
        """Cost of a visit beside its cells, as the number of cells relaxed in that time."""

    def array_memory(self) -> AbstractContextManager[None]:
        """Return a context in which arrays of tiles lie in memory that copies are quick with."""

    def devices(self) -> list[Device]:
        """Return the devices of this process, the one that computes tiles first; none: the CPU."""

    def tile_memory_limit(self) -> int | None:
        """Return the bytes that resident tiles may take; None: a share of the process's memory."""

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        """Copy an array from the backend's memory to host memory."""

    def values_at(self, array: Any, cells: Indices) -> npt.NDArray[Any]:
        """Return the values of an array at row-major indices, in host memory."""

    @property
    def encodes(self) -> bool:
        """Whether it encodes results itself, which are best left in its memory until then."""

    @property
    def finds_again(self) -> bool:
        """Whether recomputing the result of a tile is faster than saving and reading it."""


class NumbaBackend:
    """Compiled loops on the CPU, in this process's memory."""

    name = "numba"
    encodes = False
    finds_again = False
    cells_a_visit = 15_000  # a millisecond or so: halo and border

    def array_memory(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()

    def devices(self) -> list[Device]:
        """Return none."""
        return []

    def tile_memory_limit(self) -> int | None:
        """Return None: a share of the process's memory."""
        return None

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        """Return the array itself."""
        return np.asarray(array)

    def values_at(self, array: Any, cells: Indices) -> npt.NDArray[Any]:
        """Return the values of an array at row-major indices."""
        values: npt.NDArray[Any] = array.ravel()[cells]
        return values


class CudaBackend:
    """CUDA kernels on this process's GPU."""

    name = "cuda"
    encodes = True
    finds_again = True
    cells_a_visit = 200 * NumbaBackend.cells_a_visit  # copies, and many launches

    @contextmanager
    def array_memory(self) -> Iterator[None]:
        """Let arrays lie in page-locked memory; raise `BackendError` where the GPU's is full."""
        with memory_reported(), use_allocator(current_device().host_array):
            yield

    def devices(self) -> list[Device]:
        """Return the GPUs of this process."""
        device = current_device()
        return [device, *device.peers()]

    def tile_memory_limit(self) -> int | None:
        """Return a share of the GPU's memory."""
        return memory_for_tiles()

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        """Return a copy of a device's array, or an array of this process as it is."""
        device = current_device()
        return device.download(array) if isinstance(array, device.array_module.ndarray) else array

    def values_at(self, array: Any, cells: Indices) -> npt.NDArray[Any]:
        """Return the values of a device's array, or of one of this process, at some indices."""
        device = current_device()
        if isinstance(array, device.array_module.ndarray):
            return values_at(device, array, cells)
        values: npt.NDArray[Any] = array.ravel()[cells]
        return values


_BACKENDS: dict[str, Backend] = {"numba": NumbaBackend(), "cuda": CudaBackend()}


def get_backend(name: str) -> Backend:
    """Return the backend ``"numba"`` or ``"cuda"``."""
    return _BACKENDS[name]


def may_use_numba(backend: str) -> bool:
    """Return whether a run may use Numba's kernels: False if its tiles are a GPU's for certain."""
    return backend != "cuda"


def may_use_cuda(backend: str) -> bool:
    """Return whether a run may use CUDA kernels: False if its tiles are the CPU's for certain."""
    return backend != "numba"


def resolve_backend(
    stage: str,
    backend: str,
    ask_workers: Callable[[], Mapping[str, str | None]] | None = None,
    lacking: str = "",
) -> str:
    """Return the backend that will do the work of ``stage``: its name, or ``"auto"``: undecided.

    Parameters
    ----------
    stage : str
        One of `orograph.kernels.stages.STAGES`.
    backend : str
        One of ``BACKENDS``.
    ask_workers : callable
        Where this process does not do the work: returns the names of those that do, and what
        `missing_gpu` says there. ``"auto"`` follows them: CUDA if all have a GPU, Numba if none
        has; where there are none yet it stays ``"auto"``.
    lacking : str
        What only Numba has of what the work needs; empty: nothing.

    Raises
    ------
    InputError
        If ``backend`` is not one of ``BACKENDS``.
    BackendError
        If it lacks a kernel, there is no such device, or some workers have one and others do not.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend: {backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    if stage not in STAGES:
        raise ValueError(f"stage: no backend has {stage!r}")
    if STAGES[stage].cuda is None:
        lacking = STAGES[stage].work
    # Without a CUDA kernel no worker needs to be asked.
    if backend == "numba" or (backend == "auto" and lacking):
        return "numba"
    if lacking:
        raise BackendError(f"backend: {lacking} has no CUDA kernel yet; use 'numba'")
    if ask_workers is not None:
        return backend_of_workers(backend, ask_workers())
    reason = missing_gpu()
    if reason is None:
        return "cuda"
    if backend == "auto":
        return "numba"
    raise BackendError(f"backend: 'cuda' cannot be used here: {reason}; use 'numba'")


def backend_of_workers(backend: str, workers: Mapping[str, str | None]) -> str:
    """Return the backend of a cluster for ``"auto"`` or ``"cuda"``; see `resolve_backend`."""
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


@cache
def missing_gpu() -> str | None:
    """Return the reason why this process cannot run CUDA kernels, or None if it can."""
    try:
        if find_spec("cupy") is None:
            return "CuPy is not installed (pip install 'orograph[gpu]')"
        import cupy

    except Exception as error:  # a library that is missing, or of another version
        return f"CuPy cannot be imported ({_first_line(error)})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # a driver that is missing or too old, as CUDA says
        return f"CuPy finds no CUDA device ({_first_line(error)})"
    return None if count else "CuPy finds no CUDA device"


def _first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
