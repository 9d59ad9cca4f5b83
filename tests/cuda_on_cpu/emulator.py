"""A `Device` of orograph.kernels.device that runs kernels on this machine's CPU.

A ``.cu`` is compiled by g++ or clang++ with cuda_on_cpu.h, once for each set of definitions, into
``build/cuda_on_cpu``. What lies there is named by the digest of all that it is made of, and serves
any checkout. Its buffers are NumPy arrays, with the
arithmetic of CuPy (`cuda_on_cpu.device_array`). Launches are refused that a GPU would refuse, and
those with arguments that a GPU would take for others: every argument must have the type of the
kernel's parameter.

With ``CUDA_ON_CPU_RACES=1`` in the environment kernels are compiled for ThreadSanitizer, whose
runtime must then have been loaded before Python (``make races``).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cuda_on_cpu.device_array import ArrayModule, DeviceArray

from orograph.kernels.device import SOURCES

HERE = Path(__file__).parent
BUILDS = HERE.parents[1] / "build/cuda_on_cpu"
HEADERS = (HERE / "cuda_on_cpu.h", HERE / "cuda_functions.h")
ORDERS = ("forward", "reversed", "random")
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)
MAX_SHARED = 227 * 1024  # of a Hopper; others have less
STACK = 64 * 1024

FLAGS = (
    *("-x", "c++", "-std=gnu++17", "-Og", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fno-strict-aliasing", "-fno-extern-tls-init", "-w"),
    *("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),  # some compilers' default: the same with all
)
RACES = ("-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "-O1", "-g1")

KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:void\s+)?'
    r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?(?:void\s+)?(\w+)\s*\("
)
DYNAMIC = re.compile(r"\bextern\s+__shared__\s+(.*?)\[\]")

_one_launch = threading.Lock()  # the header keeps a block's state in global variables
_stacks = mmap.mmap(-1, MAX_THREADS * (STACK + 8))  # see launch() in the header
_stack_address = ctypes.addressof(ctypes.c_char.from_buffer(_stacks))


def in_orders(cases: Mapping[str, Any], every: Collection[str]) -> list[Any]:
    """Parameters, a case and an order of threads: forward, and those of ``every`` in all orders.

    In other orders the other cases are long proofs: what one order finds and another does not are
    missing barriers, which do not depend on dtypes and costs.
    """
    assert set(every) <= set(cases)
    return [
        pytest.param(
            *(case, order),
            id=f"{order}-{name}",
            marks=[] if order == "forward" or name in every else pytest.mark.long,
        )
        for order in ORDERS
        for name, case in cases.items()
    ]


def in_one_order() -> list[Any]:
    """Orders of threads, of which all but the first are long proofs.

    It is for tests of kernels that others launch in all orders.
    """
    return [
        pytest.param(order, marks=pytest.mark.long if n else ()) for n, order in enumerate(ORDERS)
    ]


class EmulatorError(RuntimeError):
    """A kernel does not compile, is called with the wrong arguments, or went wrong."""


@functools.cache
def find_compiler() -> str | None:
    """The C++ compiler: ``CXX``, else g++ or clang++, whichever there is."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else ("g++", "clang++")
    return next((path for path in map(shutil.which, names) if path), None)


@functools.cache
def _compiler() -> tuple[str, str]:
    path = find_compiler()
    if path is None:
        raise EmulatorError("no C++ compiler found; install g++ or set CXX to one")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    return path, version.stdout


def _checked_source(path: Path) -> tuple[str, tuple[str, ...]]:
    """A .cu's text, and the names of its kernels."""
    text = path.read_text()
    for found in DYNAMIC.findall(text):
        if found.split() != ["unsigned", "char", "dynamic_shared"]:
            raise EmulatorError(
                f"{path.name}: dynamic shared memory is declared as {found}[]; declare it as"
                " extern __shared__ unsigned char dynamic_shared[];"
            )
    kernels = tuple(KERNEL.findall(text))
    if not kernels:
        raise EmulatorError(f'{path.name}: there is no extern "C" __global__ function in it')
    return text, kernels


def _compile(path: Path, defines: Mapping[str, object]) -> Path:
    """The shared library of a .cu, compiled unless it lies in the cache."""
    text, kernels = _checked_source(path)
    compiler, version = _compiler()
    races = RACES if os.environ.get("CUDA_ON_CPU_RACES") else ()
    options = [*FLAGS, *races, *(f"-D{name}={value}" for name, value in sorted(defines.items()))]
    included = sorted({*path.parent.glob("*.cuh"), *SOURCES.rglob("*.cuh")})
    digest = hashlib.sha256()
    headers = (part for f in (*HEADERS, *included) for part in (f.name, f.read_text()))
    for part in (version, *options, text, *headers):
        digest.update(part.encode() + b"\0")
    BUILDS.mkdir(parents=True, exist_ok=True)
    library = BUILDS / f"{path.stem}-{digest.hexdigest()[:24]}.so"
    if library.exists():
        return library
    unit = f'#include "cuda_on_cpu.h"\n#include "{path}"\nEXPORT_DYNAMIC_SHARED()\n'
    unit += "".join(f"EXPORT_KERNEL({kernel})\n" for kernel in dict.fromkeys(kernels))
    with tempfile.TemporaryDirectory(dir=BUILDS) as temporary:
        made = Path(temporary, library.name)
        folders = (f"-I{folder}" for folder in (HERE, path.parent, SOURCES))
        command = [compiler, *options, *folders, "-", "-o", str(made)]
        done = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EmulatorError(f"{path.name} does not compile with {defines}:\n{done.stderr}")
        made.replace(library)  # others see all of it or nothing
    return library


@functools.cache
def _library(path: Path, defines: tuple[tuple[str, object], ...]) -> ctypes.CDLL:
    return ctypes.CDLL(str(_compile(path, dict(defines))))


@functools.cache
def _kernel(
    path: Path, defines: tuple[tuple[str, object], ...], name: str
) -> tuple[Any, tuple[str, ...]]:
    """The function that launches a kernel, and the types of its parameters."""
    library = _library(path, defines)
    try:
        launch = getattr(library, f"launch_{name}")
    except AttributeError:
        raise EmulatorError(f"{path.name}: there is no kernel {name} in it") from None
    launch.restype = ctypes.c_char_p
    launch.argtypes = [
        *(ctypes.POINTER(ctypes.c_uint),) * 2,
        *(ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64),
        *(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p),
    ]
    text = ctypes.create_string_buffer(4096)
    getattr(library, f"parameters_of_{name}")(text)
    return launch, tuple(text.value.decode().split())


def _described(parameter: str) -> str:
    pointer, constant = parameter.startswith("*"), "!" in parameter
    element = parameter.lstrip("*!")
    bits = int(element[1:]) * 8
    kinds = {"b": "bool", "i": f"int{bits}", "u": f"uint{bits}", "f": f"float{bits}"}
    name = kinds.get(element[0], f"values of {element[1:]} bytes")
    return f"{'an array to read' if constant else 'an array'} of {name}" if pointer else f"a {name}"


def _pass(parameter: str, value: Any, where: str) -> tuple[Any, int]:
    """What keeps an argument alive, and its address; an error if the kernel takes another type."""
    wrong = f"{where} takes {_described(parameter)}, not "
    dtype = getattr(value, "dtype", None)
    kind, size = parameter.lstrip("*!")[0], int(parameter.lstrip("*!")[1:])
    if not parameter.startswith("*"):
        if not isinstance(value, np.generic):
            raise EmulatorError(f"{wrong}{value!r}: pass a NumPy scalar")
        if (value.dtype.kind, value.dtype.itemsize) != (kind, size):
            raise EmulatorError(f"{wrong}{value.dtype} {value}")
        kept = np.array([value])
        return kept, kept.ctypes.data
    if value is None:
        kept = np.zeros(1, np.uintp)
        return kept, kept.ctypes.data
    if not isinstance(value, np.ndarray) or dtype is None:
        raise EmulatorError(f"{wrong}{value!r}")
    same = (dtype.kind, dtype.itemsize) == (kind, size)
    raw = kind == "V" and (value.nbytes % size == 0)
    bytes_of_bool = (kind, size, dtype.kind) == ("u", 1, "b")
    if not (same or raw or bytes_of_bool):
        raise EmulatorError(f"{wrong}of {dtype}")
    if not value.flags.c_contiguous:
        raise EmulatorError(f"{where}: the array is not contiguous, strides {value.strides}")
    if "!" not in parameter and not value.flags.writeable:
        raise EmulatorError(f"{where}: the kernel writes to the array, which is read-only")
    kept = np.array([value.ctypes.data], np.uintp)
    return (kept, value), kept.ctypes.data


def _three(name: str, sizes: Sequence[int], limits: Sequence[int]) -> Any:
    values = [int(size) for size in sizes]
    if not 1 <= len(values) <= 3 or any(not 1 <= v <= m for v, m in zip(values, limits)):
        raise EmulatorError(f"{name}: {tuple(sizes)}; each is 1 to {tuple(limits)}")
    return (ctypes.c_uint * 3)(*values, *[1] * (3 - len(values)))


class OutOfMemoryError(MemoryError):
    """What CuPy raises where there is no memory, in its words."""

    def __init__(self, size: int) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: 0 bytes).")


class Emulator:
    """A CUDA device in which one thread runs at a time.

    Parameters
    ----------
    order : {"forward", "reversed", "random"}
        In which order the threads of a block, and the blocks, take turns.
    seed : int
        For the random order; every launch has another one.
    largest : int
        Bytes of the largest array for which there is memory.
    """

    def __init__(self, order: str = "forward", seed: int = 0, largest: int = 2**62) -> None:
        if order not in ORDERS:
            raise ValueError(f"order: {order!r} is unknown; use one of {', '.join(ORDERS)}")
        self._order = ORDERS.index(order)
        self._seed = seed
        self.launches = 0
        self._recorded = threading.local()
        self.largest = largest
        self._module = ArrayModule(self._take)

    def _take(self, size: int) -> None:
        if size > self.largest:
            raise OutOfMemoryError(size)

    @property
    def array_module(self) -> Any:
        """NumPy, with arrays of this device."""
        return self._module

    def repeatable(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does what a GPU would record now and do later."""
        self._recorded.launches = recorded = []
        try:
            launches()
        finally:
            self._recorded.launches = None

        def again() -> None:
            for launch in recorded:
                launch()

        return again

    def use_own_stream(self) -> None:
        """Launches are done when they return: there is nothing that could run beside them."""

    def on_stream(self, number: int) -> AbstractContextManager[None]:
        """There is one stream."""
        return nullcontext()

    def active(self) -> AbstractContextManager[None]:
        """Devices on the CPU are always at hand."""
        return nullcontext()

    def peers(self) -> list[Emulator]:
        """There is one device; tests say where there are more."""
        return []

    def free_bytes(self) -> int:
        """This machine's memory."""
        return 2**62

    def is_shared(self) -> bool:
        """No other process uses it."""
        return False

    def shared_bytes(self) -> int:
        """What launch lets a block have."""
        return MAX_SHARED

    def send(self, source: npt.NDArray[Any], other: Emulator, target: npt.NDArray[Any]) -> None:
        """Copy an array."""
        target[...] = source

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array full of rubbish: whoever wants one of memory used before must fill it."""
        values = np.empty(shape, dtype)
        values.view(np.uint8).fill(0xA5)
        return values

    def upload(self, values: npt.NDArray[Any]) -> DeviceArray:
        """A copy of an array."""
        self._take(values.nbytes)
        return np.array(values, order="C").view(DeviceArray)

    def download(self, buffer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A copy of an array."""
        return np.array(buffer, order="C")

    def upload_into(
        self, target: npt.NDArray[Any], values: npt.NDArray[Any], *, wait: bool = True
    ) -> None:
        """Copy a matrix into a part of another."""
        target[...] = values

    def synchronize(self) -> None:
        """Launches are done when they return."""

    def launch(
        self,
        source: str,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        *,
        defines: Mapping[str, object] | None = None,
        shared: int = 0,
    ) -> None:
        """Run a kernel to its end; raises EmulatorError where a GPU would go wrong."""
        path = (SOURCES / source).resolve()
        launch, parameters = _kernel(path, tuple(sorted((defines or {}).items())), kernel)
        if len(arguments) != len(parameters):
            raise EmulatorError(
                f"{kernel}: {len(arguments)} arguments for {len(parameters)} parameters"
            )
        blocks = _three(f"{kernel}, grid", grid, MAX_GRID)
        threads = _three(f"{kernel}, block", block, (MAX_THREADS, MAX_THREADS, 64))
        count = int(np.prod(list(threads)))
        if count > MAX_THREADS:
            raise EmulatorError(f"{kernel}: {count} threads a block; at most {MAX_THREADS}")
        if not 0 <= shared <= MAX_SHARED:
            raise EmulatorError(f"{kernel}: {shared} bytes of shared memory; at most {MAX_SHARED}")
        passed = [
            _pass(parameter, value, f"{kernel}, argument {k}")
            for k, (parameter, value) in enumerate(zip(parameters, arguments))
        ]
        addresses = (ctypes.c_void_p * len(passed))(*(address for _, address in passed))

        def go(held: object = passed) -> None:  # the addresses are of what it holds
            with _one_launch:
                seed = (self._seed * 1_000_003 + self.launches) % 2**64
                self.launches += 1
                said = launch(blocks, threads, shared, self._order, seed, addresses, _stack_address)
            if said is not None:
                raise EmulatorError(f"{kernel}: {said.decode(errors='replace')}")

        recorded = getattr(self._recorded, "launches", None)
        if recorded is None:
            go()
        else:
            recorded.append(go)
