"""The connected components of a graph on a GPU: the host's side of components.cu."""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.device import Buffer, Device, blocks_for, current_device
from orograph.kernels.device_rows import DeviceRows, rows_inside, upload_rows
from orograph.kernels.graph.components import leaving_arcs
from orograph.tiles.arrays import Array

SOURCE = "graph/components.cu"
THREADS = 256
SAMPLE = 1024
"""Threads of the block that looks for the largest tree."""
LIST_BLOCKS = 1056
"""Blocks that join the arcs of vertices of many."""


def components_on_device(rows: DeviceRows) -> Buffer:
    """Return the smallest vertex of each vertex's component, (n,) words on the device.

    Each edge is in the rows both ways.
    """
    device, n = rows.device, rows.n
    empty = device.array_module.empty
    parent, listed, largest = empty(n, rows.word), empty(n, rows.word), empty(1, rows.word)
    counts = empty(2, np.uint64)
    defines = {"WORD_BITS": rows.defines["WORD_BITS"]}
    everywhere, size = blocks_for(n, THREADS), np.int64(n)
    of_rows = rows.indptr, rows.indices, parent, size

    def launch(kernel: str, grid: tuple[int], *arguments: Any, threads: int = THREADS) -> None:
        device.launch(SOURCE, kernel, grid, (threads,), arguments, defines=defines)

    # Cheap joins that leave few trees come first, then all arcs of the vertices outside the largest
    # tree, as in Afforest.
    launch("start_parents", everywhere, *of_rows, counts)
    launch("shorten_paths", everywhere, parent, size)
    launch("join_last", everywhere, *of_rows)
    launch("find_largest", (1,), parent, size, largest, threads=SAMPLE)
    launch("join_few", everywhere, *of_rows, largest, listed, counts)
    many = (min(blocks_for(rows.arcs, THREADS)[0], LIST_BLOCKS),)
    launch("join_many", many, *of_rows, largest, listed, counts)
    launch("compress_paths", everywhere, parent, size)
    return parent


def number_on_device(device: Device, root: Buffer, stored: Buffer) -> tuple[Buffer, Buffer]:
    """Number components from 1 by their first vertex in the source.

    Parameters
    ----------
    root : (n,) words on the device
        The root of each vertex's component.
    stored : (n,) words on the device
        The vertex at each place of the source.

    Returns
    -------
    labels : (n,) int64 on the device
        The number at each place.
    sizes : (components,) int64 on the device
    """
    xp, n = device.array_module, root.size
    first, is_first = xp.full(n, n, root.dtype), xp.empty(n, root.dtype)
    labels, sizes = xp.empty(n, np.int64), xp.zeros(n, np.uint64)
    defines, size = {"WORD_BITS": 8 * root.dtype.itemsize}, np.int64(n)

    def launch(kernel: str, *arguments: Any) -> None:
        grid, of_places = blocks_for(n, THREADS), (root, stored, first, *arguments, size)
        device.launch(SOURCE, kernel, grid, (THREADS,), of_places, defines=defines)

    launch("note_firsts")
    launch("mark_firsts", is_first)
    # The number of first places up to each is the number of its component.
    number = xp.cumsum(is_first, dtype=root.dtype)
    launch("label_places", number, labels, sizes)
    return labels, sizes[: int(device.download(number[-1:])[0])].view(np.int64)


def part_components(
    indptr: Array, indices: Array, first: int, position: Array, *, device: Device | None = None
) -> tuple[Array, Array, Array, Array]:
    """Return the components of a part of a graph, joined by edges between its vertices.

    Parameters and results are those of `orograph.kernels.graph.components.part_components`.
    """
    where = device or current_device()
    rows, arcs = rows_inside(where, indptr, indices, first)
    root = components_on_device(rows)
    xp, n = where.array_module, rows.n
    # Roots are counted in the order of vertices; a vertex has the number of its root.
    member = xp.cumsum(root == xp.arange(n, dtype=root.dtype), dtype=root.dtype)[root] - 1
    count = int(where.download(member.max().reshape(1))[0]) + 1 if n else 0
    firsts, sizes = xp.full(count, 2**63, np.uint64), xp.zeros(count, np.uint64)
    where.launch(
        SOURCE, "measure_members", blocks_for(n, THREADS), (THREADS,),
        (member, where.upload(position), firsts, sizes, np.int64(n)),
        defines={"WORD_BITS": rows.defines["WORD_BITS"]},
    )  # fmt: skip
    leaving = np.empty((2, indices.size - arcs.size), np.int64)
    leaving_arcs(indptr, indices, first, leaving)
    numbers, *measures = map(where.download, (member, firsts, sizes))
    places, counts = (values.view(np.int64) for values in measures)
    return numbers.astype(indices.dtype, copy=False), places, counts, leaving


def graph_components(rows: tuple[Array, Array, Array], *, device: Device | None = None) -> Array:
    """Return the smallest vertex of each vertex's component, (n,) uint32 or uint64.

    Parameters and result are those of `orograph.kernels.graph.components.graph_components`.
    """
    where = device or current_device()
    return where.download(components_on_device(upload_rows(where, *rows[:2], None)))
