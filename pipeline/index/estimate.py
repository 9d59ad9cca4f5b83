"""Estimate the resources of building a distance index, and its size on disk.

How many numbers an index holds follows from its form alone. How far they can be compressed depends
on the raster: float sums have random last bytes, integers are mostly zeros, and barriers take next
to nothing. So, if there is a raster, the borders of some hundred blocks are looked at for barriers,
and pieces of some of these blocks are made and thrown away, more where they differ much. They lie
scattered over the grid, the same ones each time. No kernel is compiled for that, but where sums are
left out: which ones can be known of a whole block alone.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.distance.arguments import first_raster
from orograph.execution.settings import setting
from orograph.index.arguments import BLOCK, LEVELS, BuildSpec, check_form, wanted_index
from orograph.index.costs import as_stored, costs_of, with_halo
from orograph.index.format import Form, encode_block, encode_record
from orograph.index.sample import leaves, numbers_of, piece_at, rows_of, ways_in
from orograph.index.store import IndexStore
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import Rectangle, border_cells
from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.propagate import leaving_costs
from orograph.kernels.relax.models import MODELS
from orograph.operations.plan import (
    CLIENT_BYTES,
    MIB,
    WORKER_BYTES,
    Plan,
    RasterSpec,
    memory_of_tasks,
)
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import ArrayRaster
from orograph.tiles.store.decoded_cache import LIMIT_BYTES

Array = npt.NDArray[Any]

# Compiled code of eliminations and products, measured as the rest is.
KERNEL_BYTES = 45 * MIB
# While one is made or written, in matrices of the stored blocks' size: two halves, their whole and
# the products between; then the record, packed, and packed with its checksum.
MATRICES = 3.4
MATRICES_SPARSIFIED = 5.4  # and while sums are left out
LARGEST_SAMPLE, LARGEST_SPARSIFIED = 256, 512  # cells a side
MOST_WORK = 5_000_000  # cells that rows of samples look at
GOLDEN = (math.sqrt(5) - 1) / 2
LOOKED_AT, CELLS_LOOKED_AT = 512, 2**26  # blocks, and cells of them
TILES = 32  # of which the rasters' cells are compressed
ENOUGH = 0.02  # standard error of what is sampled, at which sampling ends
BARRED = 0.008  # bytes that an entry takes where there is no way, for each byte of another one


def estimate_index(
    raster: Any,
    *,
    workers: int,
    dtype: str = "float64",
    cost: str = "friction",
    friction: Any = None,
    coefficients: Mapping[str, float] | None = None,
    connectivity: int = 8,
    block: int = BLOCK,
    levels: int = LEVELS,
    cell_size: float | tuple[float, float] | None = None,
    nodata: float | int | None = None,
    sparsify: bool = False,
) -> Plan:
    """Return the plan of `DistanceIndex.build`, for a raster or a `RasterSpec`."""
    if isinstance(raster, RasterSpec):
        cost, connectivity, block, levels, name, sparsify = check_form(
            cost, connectivity, block, levels, dtype, sparsify
        )
        names = tuple(n for n in MODELS[cost].takes if n != "friction" or friction is not None)
        names = names or (first_raster(cost),)
        form = Form(
            shape=raster.shape,
            block=block,
            levels=levels,
            cost=cost,
            coefficients=(),
            connectivity=connectivity,
            dtype=name,
            rasters=names,
            fingerprint="",
            sparsify=sparsify,
        )
        read = [np.dtype(name).itemsize] * len(names)
        return _plan_of(form, workers, read, 0, None)
    wanted = wanted_index(
        raster,
        cost=cost,
        friction=friction,
        coefficients=coefficients,
        connectivity=connectivity,
        block=block,
        levels=levels,
        dtype=dtype,
        cell_size=cell_size,
        nodata=nodata,
        sparsify=sparsify,
    )
    read = [r.dtype.itemsize for r in wanted.rasters]
    cells = wanted.form.shape[0] * wanted.form.shape[1]
    # workers cannot see what is in this process's memory
    copied = sum(cells * r.dtype.itemsize for r in wanted.rasters if isinstance(r, ArrayRaster))
    return _plan_of(wanted.form, workers, read, copied, bytes_on_disk(wanted))


def _plan_of(form: Form, workers: int, read: list[int], copied: int, on_disk: int | None) -> Plan:
    layout, itemsize = form.layout, np.dtype(form.dtype).itemsize
    # shards with the cells around them: all, and the largest, along each axis
    down, across = layout.count(form.shape)
    axes = tuple(zip(form.shape, (down, across), strict=True))
    read_cells = math.prod(n + 2 * (count - 1) for n, count in axes)
    largest = math.prod(min(layout.shard, n) + min(2, count - 1) for n, count in axes)
    height, width = (min(form.side, n) for n in form.shape)
    border = 2 * (height + width)
    # cells as they are read and stored, and whether they are barriers, of a shard; the padded
    # rasters and the steps' weights of a block
    shard = largest * (sum(read) + 2 * itemsize + 2)
    block = height * width * itemsize * (2 * len(read) + 4)
    # tiles that are read in parts, for the cells around shards, are kept for a while
    kept = min(LIMIT_BYTES, form.shape[0] * form.shape[1] * sum(read))
    return Plan(
        operation="DistanceIndex.build",
        shape=form.shape,
        tile=form.side,
        shard=layout.shard,
        tiles=form.count,
        tasks=down * across,
        memory_per_worker=WORKER_BYTES
        + KERNEL_BYTES
        + shard
        + block
        + kept
        + int((MATRICES_SPARSIFIED if form.sparsify else MATRICES) * border * border * itemsize),
        memory_client=CLIENT_BYTES + memory_of_tasks(down * across, workers),
        bytes_read=read_cells * sum(read),
        bytes_written=form.bytes_uncompressed,
        bytes_checkpoints=copied,
        workers=workers,
        bytes_on_disk=on_disk,
    )


def bytes_on_disk(wanted: BuildSpec) -> int:
    """Estimate the size of an index on disk by compressing a sample of its blocks."""
    form = wanted.form
    while form.side > (LARGEST_SPARSIFIED if form.sparsify else LARGEST_SAMPLE):
        # a larger block takes some hundredths less of its numbers; its rows would take seconds
        if form.levels:
            form = replace(form, levels=form.levels - 1)
        else:
            form = replace(form, block=-(-form.block // 2))
    most = max(4, min(LOOKED_AT, CELLS_LOOKED_AT // form.side**2))
    looks = [_look(wanted, form, n, i < TILES) for i, n in zip(range(most), _scattered(form))]
    worth = sum(look.worth for look in looks) / sum(look.numbers for look in looks)
    tiles = sum(look.tile_bytes for look in looks) / sum(look.tile_cells for look in looks)
    sizes: list[tuple[float, float]] = []
    work = 0
    for i, look in enumerate(sorted(looks, key=lambda look: look.ways == 0)):
        if form.sparsify:
            sizes.append((_size_of_block(wanted, form, look.block), look.worth))
            work += (form.side // 2) ** 3
        else:
            size, of, read = _size_of_piece(wanted, form, look.block, (0.5 + i * GOLDEN) % 1)
            sizes.append((size, of))
            work += read
        if len(sizes) >= 4 and (work > MOST_WORK or (len(sizes) >= 8 and _error(sizes) < ENOUGH)):
            break
    taken, of = np.sum(sizes, axis=0).tolist()
    cells = wanted.form.shape[0] * wanted.form.shape[1] * len(wanted.rasters)
    numbers = wanted.form.bytes_uncompressed // np.dtype(form.dtype).itemsize - cells
    total: float = taken / of * worth * numbers + tiles * cells + _bytes_of_an_empty(wanted)
    return math.ceil(total)


def _scattered(form: Form) -> Iterator[int]:
    """Yield all block numbers in an order that covers the grid evenly from the start.

    Multiples of a number near the golden section of their count, which it has no divisor with.
    """
    stride = max(1, round(form.count * GOLDEN))
    while math.gcd(stride, form.count) > 1:
        stride += 1
    for i in range(form.count):
        yield (form.count // 2 + i * stride) % form.count


class _Look(NamedTuple):
    """Quick measurements of a sampled block, such as how many entries are finite."""

    block: int
    ways: int
    """Numbers of which no end is a barrier."""
    worth: float
    """So many numbers will take what all its numbers do."""
    numbers: int
    tile_bytes: int
    tile_cells: int


def _look(wanted: BuildSpec, form: Form, number: int, compress: bool) -> _Look:
    part = form.window(number)
    passable = _passable_border(wanted, part)
    taken = cells = 0
    for raster in wanted.rasters if compress else ():
        stored = as_stored(raster.read(part), raster.nodata, np.dtype(form.dtype))
        tile = np.zeros((form.side, form.side), form.dtype)  # as large at the grid's end, too
        tile[: part.height, : part.width] = stored
        taken += len(encode_record(tile, level=5))
        cells += part.size
    out = int((leaves(part.height, part.width) & passable).sum())
    ways, numbers = form.entries(int(passable.sum())) + out, form.numbers(part.height, part.width)
    return _Look(number, ways, _worth(ways, numbers), numbers, taken, cells)


def _passable_border(wanted: BuildSpec, part: Window) -> Array:
    """Return a mask of the passable cells on the border of a block."""
    border = tuple(border_cells(part.height, part.width).T)
    passable = np.ones(len(border[0]), bool)
    for raster in wanted.rasters:
        passable &= valid_cells(raster.read(part)[border], raster.nodata)
    return passable


def _worth(ways: int, numbers: int) -> float:
    return ways + BARRED * (numbers - ways)


def _costs_of(wanted: BuildSpec, form: Form, part: Window) -> BlockCosts:
    frame = with_halo(part, form.shape)
    cells = [raster.read(frame) for raster in wanted.rasters]
    wanted.problem.check(cells, frame)
    return costs_of(wanted.problem, cells, part, frame, form.shape)


def _size_of_piece(
    wanted: BuildSpec, form: Form, number: int, position: float
) -> tuple[int, float, int]:
    """Compress a piece of a block; return its bytes, its weight, and the cells worked on."""
    part = form.window(number)
    piece = piece_at(form, part.height, part.width, position)
    numbers = numbers_of(form, _costs_of(wanted, form, part), piece)
    passable = _passable_border(wanted, part)
    ways = ways_in(form, passable, part.height, part.width, piece)
    there = min(piece.end, form.numbers(part.height, part.width)) - piece.start
    work = len(rows_of(form, passable.size, piece)) * part.size
    return len(encode_record(numbers)), _worth(ways, there), work


def _size_of_block(wanted: BuildSpec, form: Form, number: int) -> int:
    """Return the compressed bytes of a whole block."""
    costs = _costs_of(wanted, form, form.window(number))
    matrix = block_matrix(costs, Rectangle(0, 0, *costs.shape), form.block)
    return len(encode_block(form, matrix, leaving_costs(costs)))


def _error(sizes: list[tuple[float, float]]) -> float:
    """Return the relative standard error of the sampled bytes per entry."""
    taken, worth = np.array(sizes).T
    rest = taken - taken.sum() / worth.sum() * worth
    spread = math.sqrt((rest**2).sum() / (len(rest) - 1))
    return spread / math.sqrt(len(rest)) / float(taken.mean())


def _bytes_of_an_empty(wanted: BuildSpec) -> int:
    """Return the bytes of an index without blocks: metadata, coordinates, shard indices."""
    place = wanted.rasters[0].georeference
    form = replace(wanted.form, fingerprint="0" * 64 * len(wanted.rasters))
    with tempfile.TemporaryDirectory(dir=setting("scratch")) as folder:
        path = Path(folder) / "empty"
        store = IndexStore.create(path, form, wanted.problem.lengths, place, "0" * 32)
        shards = math.prod(form.layout.count(form.shape)) * len(form.rasters)
        tiles = (form.layout.shard // form.layout.tile) ** 2
        return store.bytes() + shards * (16 * tiles + 4)
