"""Devices that run CUDA kernels: the GPU of the process, through CuPy.

The host's side of a CUDA kernel asks a `Device` for memory and launches kernels on it, and knows
nothing else of the machine. So the same code, and the same ``.cu`` files, run on a GPU and, in the
tests, on a CPU. A module is compiled once for each set of definitions, by NVRTC for the device at
hand, and kept on disk (`orograph.kernels.cubins`); without fused multiply-add, since results must
be the same to the bit as those of the Numba ones. CuPy's own ``RawModule`` will not do: it lets
single precision flush subnormal numbers to zero, and its cache on disk does not notice that a
``.cuh`` has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from pathlib import Path
from threading import BoundedSemaphore, current_thread, main_thread
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from orograph.kernels import pieces
from orograph.kernels.cubins import kept_code
from orograph.tiles.arrays import empty
from orograph.tiles.errors import BackendError

T = TypeVar("T")

SOURCES = Path(__file__).resolve().parent
# .ci/nvrtc.py reads this line. Subnormal numbers are kept, and division and roots are rounded
# correctly, unless one asks for something else.
OPTIONS = ("--std=c++17", "--fmad=false")
LESS_MEMORY = (
    "give workers fewer threads, take a smaller tile, end what else uses the GPU, or use "
    "backend='numba'"
)
SHARE_OF_TILES = 0.85  # of the memory that is free when a run begins
SHARE_OF_SHARED = 0.5  # of a GPU whose other processes may yet need more
MUCH = 0.1  # of its memory: more than CUDA takes for this process
SMALL = 2**20  # bytes of an array for which no memory is kept
_KINDS = {"i": "Int", "u": "UInt", "f": "Float"}  # of values.cuh
STATIC_SHARED = 48 * 1024  # bytes a block may have without being asked for
MOST_SHARED = 97  # CUDA's number of the attribute: bytes a block may have if asked for

TILES_AT_ONCE = 3
"""Tiles that one GPU computes at once, one of them copied in and one out.

Each launch and each copy gives up Python's lock and waits for it. Among 16 threads at once that
took 200 ms for a tile that takes 10 ms alone.
"""
_TURNS = BoundedSemaphore(TILES_AT_ONCE)

Buffer = Any
"""An array in the device's memory: has ``shape``, ``dtype`` and ``size``, and can be sliced."""


class Device(Protocol):
    """Interface of a device, as the host's side of a CUDA kernel uses it."""

    @property
    def array_module(self) -> Any:
        """NumPy, or the module with its functions for the arrays of this device."""

    def use_own_stream(self) -> None:
        """Give the calling thread its own stream, so that its work runs alongside other work."""

    def on_stream(self, number: int) -> AbstractContextManager[None]:
        """Context in which the calling thread works on a stream that threads take in turns.

        What it launched before has to be done, and so has what it launches within at the end.
        Memory is kept for streams, so what one thread had the next can use.
        """

    def active(self) -> AbstractContextManager[Any]:
        """Context in which the calling thread uses this device."""

    def peers(self) -> Sequence[Device]:
        """The other devices of this process."""

    def free_bytes(self) -> int:
        """Bytes of memory that can still be had."""

    def is_shared(self) -> bool:
        """Return whether other processes hold much of the memory."""

    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block may have."""

    def send(self, source: Buffer, other: Device, target: Buffer) -> None:
        """Copy an array to one of another device, after all and before all else; does not wait."""

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialised host array whose memory is fast to copy to and from."""

    def upload(self, values: npt.NDArray[Any]) -> Buffer:
        """Copy an array to the memory of the device."""

    def upload_into(self, target: Buffer, values: npt.NDArray[Any], *, wait: bool = True) -> None:
        """Copy a matrix into one of the device, or into a part of its rows and columns.

        Behind all that the calling thread has launched, and done when this returns; without
        ``wait`` when the thread next waits for the device.
        """

    def download(self, buffer: Buffer) -> npt.NDArray[Any]:
        """Copy an array of the device to the host, after all launched work has run."""

    def synchronize(self) -> None:
        """Wait until all that the calling thread has launched has run."""

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
        """Launch a kernel behind all that was launched before; does not wait.

        Parameters
        ----------
        source, kernel : str
            Path of a file from this folder, and name of an ``extern "C" __global__`` function in
            it.
        grid, block : up to three int
            Blocks, and threads a block, in x, y and z.
        arguments : sequence
            Contiguous arrays of this device, NumPy scalars of the very types the kernel takes, and
            None for a null pointer.
        defines : mapping
            Names to define for the preprocessor: element types and tunables.
        shared : int
            Bytes of dynamic shared memory.
        """

    def repeatable(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats the launches of ``launches`` with the same arguments.

        ``launches`` does nothing else with the device, and its kernels have been launched before.
        One call of what is returned has to be done before the next.
        """


class CupyDevice:
    """A GPU of this process by its number; by default the one that CuPy uses in each thread."""

    def __init__(self, number: int | None = None) -> None:
        import cupy

        self._cupy = cupy
        self._number = number

    @property
    def array_module(self) -> Any:
        """CuPy."""
        return self._cupy

    def use_own_stream(self) -> None:
        """Give the calling thread its own stream, so that its work runs alongside other work."""
        self._cupy.cuda.Stream.ptds.use()

    @contextmanager
    def on_stream(self, number: int) -> Iterator[None]:
        """Context in which the calling thread works on a stream that threads take in turns."""
        before = self._cupy.cuda.get_current_stream()
        # leaving a `with` would bring back the default stream, not the thread's own
        _stream(self._cupy.cuda.runtime.getDevice(), number).use()
        try:
            yield
        finally:
            before.use()

    def active(self) -> AbstractContextManager[Any]:
        """Context in which the calling thread uses this device."""
        return nullcontext() if self._number is None else self._cupy.cuda.Device(self._number)

    def peers(self) -> Sequence[Device]:
        """The other GPUs that CUDA_VISIBLE_DEVICES leaves to this process."""
        count, own = self._cupy.cuda.runtime.getDeviceCount(), self._cupy.cuda.Device().id
        return [CupyDevice(number) for number in range(count) if number != own]

    def free_bytes(self) -> int:
        """Bytes of memory that are free or that CuPy keeps."""
        with self.active():
            free, _ = self._cupy.cuda.Device().mem_info
            return int(free + self._cupy.get_default_memory_pool().free_bytes())

    def is_shared(self) -> bool:
        """Return whether other processes hold much of the memory."""
        with self.active():
            free, total = self._cupy.cuda.Device().mem_info
            own = self._cupy.get_default_memory_pool().total_bytes()
            return bool(total - free - own > MUCH * total)

    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block may have."""
        runtime = self._cupy.cuda.runtime
        number = runtime.getDevice() if self._number is None else self._number
        return int(runtime.deviceGetAttribute(MOST_SHARED, number))

    def send(self, source: Buffer, other: Device, target: Buffer) -> None:
        """Copy an array to one of another device, after all and before all else; does not wait."""
        with other.active():
            # The other device may still be reading what the copy overwrites, and must not read on
            # before the copy is done: each waits for an event of the other's stream, and the host
            # for none.
            ready = self._cupy.cuda.get_current_stream().record()
        with self.active():
            stream = self._cupy.cuda.get_current_stream()
            stream.wait_event(ready)
            target.data.copy_from_device_async(source.data, source.nbytes, stream)
            done = stream.record()
        with other.active():
            self._cupy.cuda.get_current_stream().wait_event(done)

    def host_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a page-locked host array, whose memory CuPy reuses for the next of this size."""
        count, dtype = math.prod(shape), np.dtype(dtype)
        size = count * dtype.itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        # CuPy reuses memory for the same size only; compressed tiles have all sizes Sizes are
        # rounded up to one of four per power of two, so that memory is reused and at most a fourth
        # of it is wasted.
        step = 1 << max(size.bit_length() - 3, 0)
        size = -(-size // step) * step
        with _memory_reported(size, "page-locked memory of the GPU's driver"):
            memory = self._cupy.cuda.alloc_pinned_memory(size)
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def upload(self, values: npt.NDArray[Any]) -> Buffer:
        """Copy an array to the memory of the device."""
        with _memory_reported(values.nbytes, "memory of the GPU"):
            if values.nbytes < SMALL:
                return self._cupy.asarray(values)
            buffer = self._cupy.empty(values.shape, values.dtype)
        values = np.ascontiguousarray(values)
        if pieces.by_pieces(self._cupy.cuda, values):
            pieces.upload(self._cupy.cuda, buffer.data.ptr, values, self._slots())
            return buffer
        buffer.set(values)
        # the caller may change them as soon as this returns
        self._cupy.cuda.get_current_stream().synchronize()
        return buffer

    def upload_into(self, target: Buffer, values: npt.NDArray[Any], *, wait: bool = True) -> None:
        """Copy a matrix into one of the device, or into a part of its rows and columns."""
        values = np.ascontiguousarray(values, target.dtype)
        there = target.data.ptr, target.strides[0]
        self._copy_rows(*there, values.ctypes.data, values.strides[0], values, wait)

    def download(self, buffer: Buffer) -> npt.NDArray[Any]:
        """Copy an array of the device to the host, after all launched work has run."""
        values = empty(buffer.shape, buffer.dtype)
        if buffer.flags.c_contiguous and pieces.by_pieces(self._cupy.cuda, values):
            pieces.download(self._cupy.cuda, values, buffer.data.ptr, self._slots())
        # Part of a matrix: each row is contiguous, but the rows are not adjacent.
        elif values.ndim == 2 and buffer.strides[1] == values.itemsize < buffer.strides[0]:
            there = buffer.data.ptr, buffer.strides[0]
            self._copy_rows(values.ctypes.data, values.strides[0], *there, values)
        elif values.size:
            buffer.get(out=values)
        return values

    def _slots(self) -> list[npt.NDArray[np.uint8]]:
        """Return page-locked memory for copies in pieces."""
        count = 2 * pieces.COPIERS
        return [self.host_array((pieces.PIECE,), np.uint8) for _ in range(count)]

    def _copy_rows(
        self,
        to: int,
        to_pitch: int,
        start: int,
        pitch: int,
        like: npt.NDArray[Any],
        wait: bool = True,
    ) -> None:
        """Copy the rows of a matrix in stream order, and wait until that is done."""
        if like.size:
            runtime, stream = self._cupy.cuda.runtime, self._cupy.cuda.get_current_stream()
            size = like.shape[1] * like.itemsize, like.shape[0], runtime.memcpyDefault
            runtime.memcpy2DAsync(to, to_pitch, start, pitch, *size, stream.ptr)
            if wait:
                stream.synchronize()

    def synchronize(self) -> None:
        """Wait until all that the calling thread has launched has run."""
        self._cupy.cuda.get_current_stream().synchronize()

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
        """Launch a kernel behind all that was launched before; does not wait."""
        options = _options(tuple((defines or {}).items()))
        number = self._cupy.cuda.runtime.getDevice()
        function = _function(source, kernel, options, number)
        # A kernel has to be allowed more than this; to allow it again changes nothing.
        if shared > STATIC_SHARED:
            driver = self._cupy.cuda.driver
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, attribute, shared)
        # CuPy would pass None as the address of an argument, not as an argument.
        passed = tuple(np.uint64(0) if value is None else value for value in arguments)
        function(tuple(grid), tuple(block), passed, shared_mem=shared)

    def repeatable(self, launches: Callable[[], None]) -> Callable[[], None]:
        """Return a function that repeats the launches of ``launches`` as a CUDA graph."""
        before = self._cupy.cuda.get_current_stream()
        stream = self._cupy.cuda.Stream(non_blocking=True)  # the default one cannot be captured
        stream.use()  # leaving a `with` would bring back the default stream, not the thread's own
        try:
            stream.begin_capture()
            launches()
            graph = stream.end_capture()
        finally:
            before.use()
        launch: Callable[[], None] = graph.launch
        return launch


@contextmanager
def _memory_reported(size: int, kind: str) -> Iterator[None]:
    """Convert CuPy's MemoryError and RuntimeError to an error that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise BackendError(
            f"{size} bytes of {kind} could not be had ({error}); {LESS_MEMORY}"
        ) from error


@contextmanager
def memory_reported() -> Iterator[None]:
    """Convert out-of-memory errors of CuPy and CUDA to an error that says what to do.

    Arrays of the device that functions make on their way raise them, and so do launches.
    """
    try:
        yield
    except BackendError:
        raise
    except (MemoryError, RuntimeError) as error:
        if "out of memory" not in str(error).lower():
            raise
        text = str(error).rstrip(".")
        raise BackendError(f"the memory of the GPU is full ({text}); {LESS_MEMORY}") from error


def in_turn(function: Callable[..., T]) -> Callable[..., T]:
    """Let at most `TILES_AT_ONCE` threads of this process call a function at once.

    It must not call another such function.
    """

    @wraps(function)
    def wait_and_call(*arguments: Any, **named: Any) -> T:
        with _TURNS:
            return function(*arguments, **named)

    return wait_and_call


@cache
def _module(source: str, options: tuple[str, ...], device: int, capability: str) -> Any:
    """Return the kernels of a file, compiled for a device and loaded on it."""
    import cupy

    module = cupy.cuda.Module()
    module.load(_code(source, options, capability))
    return module


def _code(source: str, options: tuple[str, ...], capability: str) -> bytes:
    """Return the machine code of a file's kernels, from disk if it has been compiled before."""
    from cupy.cuda import nvrtc

    known = [str(architecture) for architecture in nvrtc.getSupportedArchs()]
    # A device that NVRTC does not know yet: the driver compiles for it.
    portable = capability not in known
    target = f"compute_{max(known, key=int)}" if portable else f"sm_{capability}"
    options = (f"--gpu-architecture={target}", *OPTIONS, *options)
    version = ".".join(map(str, nvrtc.getVersion()))
    named = (source, (SOURCES / source).read_text(), version, *options)
    return kept_code(named, lambda: _compile(source, options, capability, portable))


def _compile(source: str, options: tuple[str, ...], capability: str, portable: bool) -> bytes:
    """Return the machine code of a file's kernels, or PTX if it is to be ``portable``."""
    from cupy.cuda import nvrtc

    options = (*options, f"--include-path={SOURCES}")
    text = (SOURCES / source).read_text()
    program = nvrtc.createProgram(text, str(SOURCES / source), (), ())
    try:
        nvrtc.compileProgram(program, options)
        code = nvrtc.getPTX(program) if portable else nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        said = nvrtc.getProgramLog(program)
        raise BackendError(
            f"{source} does not compile for compute capability {capability} with"
            f" {' '.join(options)}: {error}; use backend='numba' and report this\n{said}"
        ) from error
    finally:
        nvrtc.destroyProgram(program)
    return code.encode() if isinstance(code, str) else bytes(code)


@cache
def _options(defines: tuple[tuple[str, object], ...]) -> tuple[str, ...]:
    # Sorted, so that the same definitions in another order name the same module.
    return tuple(f"-D{name}={value}" for name, value in sorted(defines))


@cache
def _function(source: str, kernel: str, options: tuple[str, ...], device: int) -> Any:
    import cupy

    capability = cupy.cuda.Device(device).compute_capability
    return _module(source, options, device, capability).get_function(kernel)


@cache
def _stream(device: int, number: int) -> Any:
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


@cache
def _gpu() -> Device:
    return CupyDevice()


def current_device() -> Device:
    """The device that CUDA kernels of this process run on.

    Threads of a pool work each on a stream of its own from now on, so that one copies while another
    computes. The main thread, which may be a user's, stays on its stream.
    """
    device = _gpu()
    if current_thread() is not main_thread():
        device.use_own_stream()
    return device


def shared_device() -> Device:
    """The device of `current_device`, on the stream that the calling thread has already.

    Memory that is given back is kept for its stream. So what a thread that ends had is used again
    by the next, which on a stream of its own would have to get new memory from the driver.
    """
    return _gpu()


def blocks_for(count: int, threads: int) -> tuple[int]:
    """Return a launch grid with a thread for each of ``count`` items; at least one block."""
    return (max(1, -(-int(count) // threads)),)


def scalar(dtype: npt.DTypeLike, value: Any) -> Any:
    """Convert an argument of a kernel to its type."""
    return np.dtype(dtype).type(value)


def value_type(dtype: npt.DTypeLike) -> str:
    """Return the name in values.cuh of a type of values."""
    dtype = np.dtype(dtype)
    return f"{_KINDS[dtype.kind]}{8 * dtype.itemsize}"


def on_device(device: Device, array: Any) -> Buffer:
    """Return an array in the memory of a device: the array itself, if it is one of the device's."""
    return array if isinstance(array, device.array_module.ndarray) else device.upload(array)


def values_at(device: Device, array: Buffer, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of a device's array at row-major indices, in host memory."""
    return device.download(array.ravel()[device.upload(cells)])


def as_words(values: Buffer) -> Buffer:
    """Return a view of numbers as unsigned integers of the same order, if none is negative.

    NaN comes behind infinity, and so do negative numbers. CuPy's comparisons and minima of single
    precision take subnormal numbers for zero; those of words are exact.
    """
    return values.view(f"u{values.dtype.itemsize}")


def memory_for_tiles() -> int:
    """Return how many bytes of the GPU of this process the tiles of a run may take."""
    device = current_device()
    share = SHARE_OF_SHARED if device.is_shared() else SHARE_OF_TILES
    return int(share * device.free_bytes())
