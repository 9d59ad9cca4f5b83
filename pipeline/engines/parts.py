"""Read and write a large tile in parts, by several threads, while a GPU computes it.

A GPU relaxes a tile in less time than one thread takes to read it. So its cells are read, checked
and uploaded in parts, and its results are downloaded and written shard by shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

from orograph.kernels.backends import Backend
from orograph.kernels.blosc.cells import Source, Target
from orograph.tiles.format.frames import DeviceCells
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import Raster, is_inside, read_frame
from orograph.tiles.raster.mask import decode, stores_of
from orograph.tiles.system import cores

if TYPE_CHECKING:
    from orograph.kernels.device import Device

T = TypeVar("T")

PART, LARGE_PART = 2048, 4096  # cells a side, or those of a stored tile where it is larger
FEWEST_LARGE = 16  # large parts of a tile, so that as many threads read them
MOST_THREADS = 24


def parts_of(window: Window, frame: Window, stored: int | None) -> list[Window]:
    """Split a tile with its halo into windows that align with the stored tiles of a raster.

    Parameters
    ----------
    window : Window
        The tile, which begins where a stored tile does.
    frame : Window
        The tile and what lies around it; cells beyond its border belong to the parts beside them.
    stored : int, optional
        Cells a side of the tiles of the raster.
    """
    side = side_of_parts(window.size, stored or 1)
    rows = [frame.y, *range(window.y + side, window.y + window.height, side)]
    columns = [frame.x, *range(window.x + side, window.x + window.width, side)]
    ends = [*rows[1:], frame.y + frame.height], [*columns[1:], frame.x + frame.width]
    return [
        Window(y, x, bottom - y, right - x)
        for y, bottom in zip(rows, ends[0], strict=True)
        for x, right in zip(columns, ends[1], strict=True)
    ]


def side_of_parts(cells: int, stored: int) -> int:
    """Return the cells a side of the parts of a tile, given the stored tiles' side."""
    part = LARGE_PART if cells >= FEWEST_LARGE * LARGE_PART**2 else PART
    return stored * max(part // stored, 1)


def read_parts(
    device: Device,
    backend: Backend,
    rasters: Sequence[Raster],
    parts: Sequence[Window],
    frame: Window,
    check: Callable[[Sequence[npt.NDArray[Any]], Window], None],
    accept: Callable[[Sequence[Any], Window], bool] | None,
) -> list[Any]:
    """Read a window of each raster into GPU memory, in parts, by several threads.

    ``check`` is called with the cells of each part. If there is ``accept``, tiles are decoded on
    the GPU where they can be; it is called with all cells there and the place of a part in them,
    and says whether that needs no check.
    """
    cells = [device.array_module.empty(frame.shape, raster.dtype) for raster in rasters]
    # what was launched before may still use this memory, and other threads do not wait for it
    device.synchronize()

    def read(part: Window) -> None:
        inside = Window(part.y - frame.y, part.x - frame.x, *part.shape)
        with backend.array_memory():
            targets = [Target(device, whole, inside.y, inside.x) for whole in cells]
            # Cells that the GPU has decoded are downloaded only if it does not accept them: `check`
            # then names the first bad one, or finds that all are good.
            at_once = all(is_inside(raster, part) for raster in rasters)
            if accept is not None and at_once and all(map(decode, rasters, repeat(part), targets)):
                if not accept(cells, inside):
                    check([device.download(whole[inside.slices]) for whole in cells], part)
                return
            found = [read_frame(raster, part) for raster in rasters]
            check(found, part)
            for whole, values in zip(cells, found, strict=True):
                device.upload_into(whole[inside.slices], values)

    in_threads(read, parts)
    return cells


def read_cells(backend: Backend, raster: Raster, window: Window) -> Any:
    """Return the cells of a window, in the memory of the GPU where that can decode them."""
    if any(stores_of(raster)):
        for device in backend.devices()[:1]:
            cells = device.array_module.empty(window.shape, raster.dtype)
            if decode(raster, window, Target(device, cells)):
                return cells
    return raster.read(window)


def to_write(backend: Backend, array: Any, window: Window) -> npt.NDArray[Any] | DeviceCells:
    """Return a part of an array as it is written to a raster: a GPU encodes its own."""
    for device in backend.devices()[:1]:
        if isinstance(array, device.array_module.ndarray):
            return Source(device, array, window)
    part: npt.NDArray[Any] = array[window.slices]
    return part


def threads_on(cores: int) -> int:
    """Return how many threads read or write parts on a number of cores: some wait for disks."""
    return min(MOST_THREADS, 3 * cores // 2)


def in_threads(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call ``work`` for each item in several threads; raise the first item's error, if any."""
    items = list(items)
    count = min(threads_on(cores()), len(items))
    if count < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(count, "orograph-parts") as pool:
        # Consumed in order, so that the error of the first item is raised.
        for _ in pool.map(work, items):
            pass
