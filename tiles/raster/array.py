"""Rasters of arrays: in memory, or lazy and computed window by window."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arrays import empty
from orograph.tiles.errors import InputError
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import Nodata, fill_masked
from orograph.tiles.raster.version import UNVERSIONED, file_versions
from orograph.tiles.store.decoded_cache import LIMIT_BYTES, ArrayCache

if TYPE_CHECKING:
    import xarray as xr


class DaskArray(Protocol):
    """An array of Dask, which this package does not import."""

    @property
    def dask(self) -> Mapping[Any, Any]:
        """The tasks that make the array."""

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Cells along each dimension of each chunk."""


class DeviceArray(Protocol):
    """An array in the memory of a GPU, of CuPy, Numba or PyTorch."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """The address, shape and type of the cells."""


class DLPackArray(Protocol):
    """An array or a tensor that speaks DLPack."""

    def __dlpack__(self) -> object:
        """Return the cells as a capsule."""


def is_cupy(cells: object) -> bool:
    """Return whether an array is a CuPy array, or a Dask array of such."""
    # `_meta` of a Dask array is an empty array of the type of its chunks.
    return type(getattr(cells, "_meta", cells)).__module__.partition(".")[0] == "cupy"


def to_host(cells: object) -> NDArray[Any]:
    """Return cells as a NumPy array, copied from the GPU if necessary."""
    if hasattr(cells, "__cuda_array_interface__") and hasattr(cells, "get"):
        cells = cells.get()
    return np.asarray(cells)


def from_elsewhere(cells: object) -> NDArray[Any]:
    """Convert another library's array by DLPack, or a Numba device array.

    Memory of this process is shared, that of a device copied.

    Raises
    ------
    InputError
        If NumPy cannot have them.
    """
    if not hasattr(cells, "__dlpack__"):
        if hasattr(cells, "copy_to_host"):
            return np.asarray(cells.copy_to_host())
        reason = "it has no __dlpack__"
    else:
        try:
            return np.from_dlpack(cells)
        except (BufferError, RuntimeError, TypeError) as error:
            reason = str(error)
        # The memory of a device cannot be shared, but the library may copy it.
        with suppress(BufferError, RuntimeError, TypeError):
            return np.from_dlpack(cells, device="cpu", copy=True)
    raise InputError(
        f"{type(cells).__name__}, whose memory NumPy cannot share ({reason}); copy it to the CPU "
        "first"
    )


CellsT = TypeVar("CellsT", bound="NDArray[Any] | xr.Variable")


@dataclass(frozen=True, eq=False, repr=False)
class _RasterOf(Generic[CellsT]):
    """Raster of a given array and its metadata.

    Parameters
    ----------
    cells : array or variable (y, x)
        The cells.
    dtype : dtype
        Type of the cells that `read` returns.
    nodata : number or None
        Value of cells that are not vertices.
    georeference : Georeference
        Coordinates and CRS.
    name : str or None
        Name of the variable.
    attrs : mapping
        Attributes of the variable.
    on_gpu : bool
        Whether the cells, or the chunks of them, came as arrays of CuPy, so that results in memory
        are such too.
    """

    cells: CellsT
    dtype: np.dtype[Any]
    nodata: int | float | None = None
    georeference: Georeference = field(default_factory=Georeference)
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    tile: int | None = None
    shard: int | None = None
    on_gpu: bool = False
    rule: Nodata = field(default_factory=Nodata)
    """Rule for which stored cells are nodata; `read` changes them to ``nodata``."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.cells.shape[0], self.cells.shape[1]

    @property
    def bytes_per_cell(self) -> int:
        """Bytes of a cell in memory."""
        return self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.shape}, {self.dtype})"


@dataclass(frozen=True, eq=False, repr=False)
class ArrayRaster(_RasterOf["NDArray[Any]"]):
    """Raster whose cells are an array in memory."""

    def read(self, window: Window) -> NDArray[Any]:
        """Return the cells of ``window``, contiguous, in native byte order."""
        check_window(window, self.shape, self.name)
        cells = self.rule.unify(self.cells[window.slices])
        if cells.flags.c_contiguous and cells.dtype == self.dtype:
            return cells
        copy = empty(window.shape, self.dtype)
        copy[...] = cells
        return copy

    def fingerprint(self) -> str:
        """Return a digest of all cells, which identifies the content."""
        return f"array-{_digest(self)}"


class Checks(list[Callable[[Any], "str | None"]]):
    """A list that is empty once pickled, as tasks do not need it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Checks, ()


class BlockCache:
    """Blocks of a Dask array that were computed last, each by one thread; empty once pickled."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all blocks."""
        self._cells = ArrayCache(LIMIT_BYTES)
        self._lock = Lock()
        self._at_work: dict[Window, Lock] = {}

    def get(self, block: Window, compute: Callable[[Window], NDArray[Any]]) -> NDArray[Any]:
        """Return the cells of a block, which must not be changed; compute them if necessary."""
        with self._lock:
            # A lock for each block: threads that need the same one wait until it is computed, and
            # others compute theirs meanwhile. The lock of the cache is held only for a look.
            at_work = self._at_work.setdefault(block, Lock())
        with at_work:
            with self._lock:
                cells = self._cells.get(block)
            if cells is None:
                cells = compute(block)
                with self._lock:
                    self._cells.put(block, cells)
        return cells

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockCache, ()


@dataclass(frozen=True, eq=False, repr=False)
class LazyRaster(_RasterOf["xr.Variable"]):
    """Raster whose cells are computed or loaded when a window is read.

    They are an xarray.Variable: Dask-backed, or lazily indexed by a backend (NetCDF, Zarr).

    Parameters
    ----------
    origin : str
        Identifier of the source of the cells, for the fingerprint; may be empty for Dask arrays,
        which are identified by their own name.
    path : str
        File, folder or URL that the cells are read from, if it is known.
    """

    origin: str = ""
    path: str = ""
    blocks: BlockCache = field(init=False, compare=False, default_factory=lambda: BlockCache())
    checks: Checks = field(init=False, compare=False, repr=False, default_factory=lambda: Checks())
    """Checks to do once a run has computed the cells, see `marks.warn_once_read`."""

    def read(self, window: Window) -> NDArray[Any]:
        """Return the cells of ``window``, contiguous, in native byte order.

        Blocks of Dask arrays are computed whole, if they are small, and kept for a while.
        """
        check_window(window, self.shape, self.name)
        if not self.cells.chunks:
            return self.convert(self.cells[window.slices].data)
        blocks = list(self._blocks_in(window))
        # A block that the cache cannot hold is not computed whole.
        if max(block.size for block in blocks) * self.bytes_per_cell > LIMIT_BYTES:
            return self._compute(window)
        cells = empty(window.shape, self.dtype)
        for block in blocks:
            both = block.overlap(window)
            own = self.blocks.get(block, self._compute)
            cells[both.within(window)] = own[both.within(block)]
        return cells

    def _compute(self, window: Window) -> NDArray[Any]:
        # In this thread: a task of a run must not wait for other threads of the same pool.
        return self.convert(self.cells[window.slices].data.compute(scheduler="synchronous"))

    def _blocks_in(self, window: Window) -> Iterator[Window]:
        """Yield the blocks of a Dask array that meet a window."""
        rows, columns = self.cells.chunks or ((), ())
        across = list(_spans(columns, window.x, window.x + window.width))
        for y, height in _spans(rows, window.y, window.y + window.height):
            yield from (Window(y, x, height, width) for x, width in across)

    @property
    def is_computed(self) -> bool:
        """Whether the cells are a Dask array, which computes what is read; else they are loaded."""
        return bool(self.cells.chunks)

    @property
    def convert(self) -> Callable[[Any], NDArray[Any]]:
        """A function that makes what `read` returns of computed or loaded cells."""
        return partial(_convert, self.dtype, self.nodata, self.rule, self.name or "masked array")

    def fingerprint(self) -> str:
        """Return an identifier of the content: of the Dask graph, the file, or all cells."""
        if not self.source:
            return f"lazy-{_digest(self)}"
        versions = file_versions(self.path) if self.path else []
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.source, versions, *_identity(self))).encode())
        return f"{UNVERSIONED if versions is None else 'lazy-'}{digest.hexdigest()}"

    @property
    def source(self) -> str:
        """Identifier of where the cells come from; empty if there is none."""
        source: str = self.cells.data.name if self.cells.chunks else self.origin
        return source


def _convert(
    dtype: np.dtype[Any], nodata: int | float | None, rule: Nodata, name: str, cells: Any
) -> NDArray[Any]:
    """Return cells contiguous, of a dtype, with nodata where they are masked."""
    cells = cells.get_duck_array() if hasattr(cells, "get_duck_array") else cells
    if isinstance(cells, np.ma.MaskedArray):
        cells, _ = fill_masked(cells, dtype, nodata, name)
    return rule.unify(np.ascontiguousarray(to_host(cells), dtype=dtype))


def _spans(lengths: Iterable[int], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the length of each chunk that meets the cells ``low`` to ``high``."""
    start = 0
    for length in lengths:
        if length and start < high and start + length > low:
            yield start, length
        start += length


def _identity(raster: ArrayRaster | LazyRaster) -> tuple[Any, ...]:
    return raster.shape, str(raster.dtype), repr(raster.nodata), raster.georeference.token


def _digest(raster: ArrayRaster | LazyRaster) -> str:
    """Return a digest of all cells of a raster, read some rows at a time."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(_identity(raster)).encode())
    height, width = raster.shape
    rows = max(1, 2**24 // width)
    for y in range(0, height, rows):
        digest.update(raster.read(Window(y, 0, rows, width).clip(raster.shape)).data)
    return digest.hexdigest()


def check_band(band: object, count: int, what: str) -> int:
    """Return the number of a band; raise InputError unless it is 1 to ``count``."""
    if isinstance(band, bool) or not isinstance(band, Integral) or not 1 <= int(band) <= count:
        raise InputError(f"{what}: band={band!r}; it has bands 1 to {count}")
    return int(band)


def check_window(window: Window, shape: tuple[int, int], name: str | None) -> None:
    """Raise InputError if a window is empty or not inside the grid."""
    if window.size == 0 or window.clip(shape) != window:
        raise InputError(
            f"{name or 'raster'}: {window} is empty or not inside a grid of "
            f"{shape[0]} x {shape[1]} cells; clip it first"
        )
