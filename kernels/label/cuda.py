"""Connected components of one tile on a GPU: the host's side of label.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.label.labels import CellLabels
from orograph.kernels.label.tile import TileComponents, TileLabels, classes_as_words

SOURCE = "label/label.cu"
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
    roots: Buffer
    """(h, words) uint32: one bit per cell, set for the first cells of components."""
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
    nodes, roots = (empty((h, -(-w // 32)), np.uint32) for _ in range(2))
    words, scans = np.uint32(nodes.size), blocks_for(nodes.size, SCAN_THREADS)
    counts = empty(scans[0] + 1, np.uint32)
    defines = {"WORD_BITS": classes.dtype.itemsize * 8}

    def launch(kernel: str, grid: tuple[int], block: tuple[int, ...], *arguments: Any) -> None:
        device.launch(SOURCE, kernel, grid, block, arguments, defines=defines)

    blocks = (-(-h // BLOCK[0]) * -(-w // BLOCK[1]),)
    edges = (h - 1) // BLOCK[0] * w + (w - 1) // BLOCK[1] * h
    tile = (classes, height, width, np.int32(connectivity == 8), *limits[:, 0])
    launch("label_blocks", blocks, LABEL_THREADS, *tile, local, labels, nodes)
    if edges:
        launch("join_blocks", blocks_for(edges, 256), (256,), *tile, local, labels)
    launch("count_roots", scans, (SCAN_THREADS,), nodes, labels, roots, counts, words, width)
    launch("add_counts", (1,), (1024,), counts, np.int32(scans[0]))
    launch("number_roots", scans, (SCAN_THREADS,), roots, counts, labels, words, width)
    launch("write_labels", blocks, THREADS, local, labels, height, width)
    return LabelBuffers(labels, local, roots, counts)


def measure_buffers(
    device: Device, found: LabelBuffers, count: int
) -> tuple[Buffer, Buffer, Buffer]:
    """Return first cell, size and box of each of the ``count`` components, on the device."""
    array_module = device.array_module
    h, w = found.labels.shape
    first = array_module.empty(count, np.int32)
    size = array_module.zeros(count, np.uint64)
    box = array_module.zeros((count, 4), np.int32)
    box[:, 1] = w
    if count:
        blocks = (-(-h // BLOCK[0]) * -(-w // BLOCK[1]),)
        arguments = (found.local, found.labels, found.roots, first, size, box)
        device.launch(SOURCE, "measure", blocks, THREADS, (*arguments, np.int32(h), np.int32(w)))
    return first, size, box


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
    bits, limits = classes_as_words(classes, nodata, connectivity)
    where = device or current_device()
    found = label_buffers(where, where.upload(bits), limits, connectivity)
    count = int(where.download(found.counts[-1:])[0])
    first, size, box = map(where.download, measure_buffers(where, found, count))
    if narrow and count < 2**16:
        labels = where.download(found.labels.astype(np.uint16))
    else:
        labels = where.download(found.labels).view(np.int32)
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

    Parameters, errors and result are those of `orograph.kernels.label.tile.find_components`, but
    that the components are always measured: it is how their first cells are found.
    """
    tile = label_tile(classes, nodata, connectivity, narrow=True, device=device)
    h, w = classes.shape
    rows = np.searchsorted(tile.first, np.arange(h + 1) * w)
    box = tile.box.astype(np.int64)
    return TileComponents(CellLabels(tile.labels), tile.first, rows, tile.size, box)
