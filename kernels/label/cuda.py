"""Connected components of one tile on a GPU: the host's side of label.cu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.blosc.cells import Source, Target
from orograph.kernels.device import (
    Buffer,
    Device,
    blocks_for,
    current_device,
    on_device,
    value_type,
    values_at,
)
from orograph.kernels.label import labels as labels_here
from orograph.kernels.label.labels import CellLabels, EncodedLabels, Labels, RunLabels
from orograph.kernels.label.tile import TileComponents, TileLabels, classes_as_words
from orograph.tiles.arrays import Indices
from orograph.tiles.format.codec import BITSHUFFLE
from orograph.tiles.format.frames import StoredTile
from orograph.tiles.grid.window import Window

SOURCE = "label/label.cu"
RENUMBER = "label/renumber.cu"
BLOCK = (32, 64)  # rows and columns of a thread block, as in label.cu
LABEL_THREADS = (32, 2)
THREADS = (32, 8)
SCAN_THREADS = 256


class LabelBuffers(NamedTuple):
    """Buffers on the device after a tile has been labelled."""

    labels: Buffer
    """(h, w) uint32: 0 for background and nodata, else 1 to n."""
    local: Buffer
    """(h, w) uint16: node of each cell, as an index in its block."""
    nodes: Buffer
    """(h, words, 2) uint32: for each 32 cells of a row, the number of components that start before
    them in their block of the scan, and one bit per cell, set for the first cells of components."""
    counts: Buffer
    """(k + 1,) uint32: number of components that start before each block of the scan, and n."""


def label_buffers(
    device: Device, classes: Buffer, limits: npt.NDArray[Any], connectivity: int
) -> LabelBuffers:
    """Label a tile on the device and return its buffers; asynchronous.

    Parameters
    ----------
    classes : (h, w) on the device, unsigned words of 8, 16, 32 or 64 bits
        The bits of the classes.
    limits : (3, 1) of the same dtype
        Which of them are background, as in `orograph.kernels.label.runs.find_runs`.
    connectivity : {8, 4}
    """
    empty = device.array_module.empty
    h, w = classes.shape
    height, width = np.int32(h), np.int32(w)
    labels, local = empty((h, w), np.uint32), empty((h, w), np.uint16)
    nodes = empty((h, -(-w // 32), 2), np.uint32)
    words, scans = np.uint32(nodes.size // 2), blocks_for(nodes.size // 2, SCAN_THREADS)
    counts = empty(scans[0] + 1, np.uint32)
    defines = {"WORD_BITS": classes.dtype.itemsize * 8}

    def launch(kernel: str, grid: tuple[int], block: tuple[int, ...], *arguments: Any) -> None:
        device.launch(SOURCE, kernel, grid, block, arguments, defines=defines)

    blocks = (-(-h // BLOCK[0]) * -(-w // BLOCK[1]),)
    # Cells at the inner edges of blocks, one thread each.
    edges = (h - 1) // BLOCK[0] * w + (w - 1) // BLOCK[1] * h
    tile = (classes, height, width, np.int32(connectivity == 8), *limits[:, 0])
    launch("label_blocks", blocks, LABEL_THREADS, *tile, local, labels, nodes)
    if edges:
        launch("join_blocks", blocks_for(edges, 256), (256,), *tile, local, labels)
    launch("count_roots", scans, (SCAN_THREADS,), nodes, labels, counts, words, width)
    launch("add_counts", (1,), (1024,), counts, np.int32(scans[0]))
    launch("write_labels", blocks, THREADS, local, nodes, counts, labels, height, width)
    return LabelBuffers(labels, local, nodes, counts)


def first_buffer(device: Device, found: LabelBuffers, count: int) -> Buffer:
    """Return the first cell of each of the ``count`` components, on the device."""
    first = device.array_module.empty(count, np.uint32)
    if count:
        w, words = found.labels.shape[1], found.nodes.size // 2
        arguments = (found.nodes, found.counts, first, np.uint32(words), np.int32(w))
        grid = blocks_for(words, SCAN_THREADS)
        device.launch(SOURCE, "list_roots", grid, (SCAN_THREADS,), arguments)
    return first


def measure_buffers(device: Device, found: LabelBuffers, count: int) -> tuple[Buffer, Buffer]:
    """Return size and box of each of the ``count`` components, on the device."""
    array_module = device.array_module
    h, w = found.labels.shape
    size = array_module.zeros(count, np.uint64)
    box = array_module.zeros((count, 4), np.int32)
    # Beyond all columns to begin with, since left sides are found as minima.
    box[:, 1] = w
    if count:
        blocks = (-(-h // BLOCK[0]) * -(-w // BLOCK[1]),)
        arguments = (found.local, found.labels, found.nodes, size, box, np.int32(h), np.int32(w))
        device.launch(SOURCE, "measure", blocks, THREADS, arguments)
    return size, box


def label_tile(
    classes: npt.NDArray[Any],
    nodata: float | None,
    connectivity: int = 8,
    *,
    narrow: bool = False,
    device: Device | None = None,
) -> TileLabels:
    """Return the labels and measures of the connected components of one tile.

    Parameters, errors and result are those of `orograph.kernels.label.tile.label_tile`; ``device``
    is the process's GPU by default.

    Notes
    -----
    Takes 6.25 bytes per cell on the device besides the classes, of which 4 are the result.

    References
    ----------
    Hennequin, Lacassagne, Cabaret, Meunier (2018), doi:10.1109/DASIP.2018.8596835.
    """
    where, found, first = _label(device, classes, nodata, connectivity)
    size, box = map(where.download, measure_buffers(where, found, first.size))
    labels = where.download(_narrow(found, narrow and first.size < 2**16))
    return TileLabels(labels, first.astype(np.int64), size.view(np.int64), box)


def find_components(
    classes: npt.NDArray[Any],
    nodata: float | None,
    connectivity: int = 8,
    *,
    measure: bool = True,
    device: Device | None = None,
) -> TileComponents:
    """Return the connected components of one tile, with labels in as few bytes as they need.

    Parameters, errors and result are those of `orograph.kernels.label.tile.find_components`.
    """
    where, found, first = _label(device, classes, nodata, connectivity)
    size, box = map(where.download, measure_buffers(where, found, first.size if measure else 0))
    labels = DeviceLabels(where, _narrow(found, first.size < 2**16))
    h, w = classes.shape
    rows = np.searchsorted(first, (np.arange(h + 1) * w).astype(first.dtype))
    return TileComponents(labels, first, rows, size.view(np.int64), box.astype(np.int64))


def _label(
    device: Device | None, classes: Any, nodata: float | None, connectivity: int
) -> tuple[Device, LabelBuffers, npt.NDArray[np.uint32]]:
    """Label a tile; return its device, the buffers there, and each component's first cell."""
    bits, limits = classes_as_words(classes, nodata, connectivity)
    where = device or current_device()
    found = label_buffers(where, on_device(where, bits), limits, connectivity)
    count = int(where.download(found.counts[-1:])[0])
    return where, found, where.download(first_buffer(where, found, count))


def _narrow(found: LabelBuffers, narrow: bool) -> Buffer:
    """Return the labels as int32, or as uint16, on the device."""
    return found.labels.astype(np.uint16) if narrow else found.labels.view(np.int32)


@dataclass(frozen=True)
class DeviceLabels:
    """Labels of a tile in a device's memory, with the functions of `CellLabels`."""

    device: Device
    labels: Buffer
    """(h, w) uint16 or int32: 0 for background and nodata."""

    def first_cells(self, first: npt.NDArray[Any]) -> Indices:
        """Return the row-major indices of some first cells, which they are."""
        return first.astype(np.int64)

    def at(self, cells: Indices) -> Indices:
        """Return the labels of cells, given by their row-major indices."""
        return values_at(self.device, self.labels, cells).astype(np.int64)

    def saved(self) -> CellLabels | EncodedLabels:
        """Return the labels as they are saved: encoded, if the device can do that."""
        h, w = self.labels.shape
        source = Source(self.device, self.labels, Window(0, 0, h, w))
        side, dtype = max(h, w), source.dtype
        frames = source.encode([source.window], side, dtype.type(0), BITSHUFFLE)
        if frames is None:
            return CellLabels(source.to_host())
        return EncodedLabels(frames[0], side, (h, w), dtype.itemsize)


def write_labels(
    labels: Labels,
    table: Indices,
    shape: tuple[int, int],
    dtype: npt.DTypeLike,
    *,
    device: Device | None = None,
) -> Any:
    """Return ``table[label]`` of each cell of a tile.

    As `orograph.kernels.label.labels.write_labels`; labels by runs, which a CPU has found, are
    written there.
    """
    where = device or current_device()
    if isinstance(labels, RunLabels):
        return labels_here.write_labels(labels, table, shape, dtype)
    if isinstance(labels, CellLabels):
        cells = where.upload(labels.labels)
    else:
        cells = where.array_module.empty(shape, labels.dtype)
        tile = StoredTile(0, labels.frame.size, Window(0, 0, *shape), 0, 0)
        Target(where, cells).decode([(labels.frame, [tile])], labels.side, labels.dtype)
    out = where.array_module.empty(shape, dtype)
    where.launch(
        *(RENUMBER, "number_cells", blocks_for(out.size, 256), (256,)),
        (cells, where.upload(table), out, np.int32(out.size)),
        defines={"LABEL": value_type(cells.dtype), "NUMBER": value_type(dtype)},
    )
    return out
