"""Minimum spanning forest of one tile on a GPU: the host's side of ``forest.cu`` and ``mask.cu``.

The result equals that of `orograph.kernels.forest.tile` bit for bit. The edge list, the components
and the rounds stay on the device. The host reads a few counters once per batch of rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.device import (
    Buffer,
    Device,
    blocks_for,
    current_device,
    scalar,
    value_type,
)
from orograph.kernels.forest.exact_sum import fold_sum
from orograph.kernels.forest.keys import key_limits, native_buffer, unused_key
from orograph.kernels.forest.tile import TileForest, check_arguments, check_magnitude
from orograph.kernels.forest.weights import find_weight
from orograph.tiles.arrays import Array, Indices

SOURCE = "forest/forest.cu"
MASK = "forest/mask.cu"
THREADS = 256
MAX_BLOCKS = 2048  # blocks that stride over a list of unknown length; half as many every 3 rounds
MIN_BLOCKS = 256
BATCH = 8  # rounds between two reads of the counters
# From this many components on, batches are longer, and all paths are compressed after each of the
# first rounds. Fewer components take fewer rounds, and the launches more time than the work.
LARGE = 2**20
LONG_BATCH = 12
COMPRESSED = 4
# The words of state in forest.cu.
VALID, CLASHES, MAGNITUDE, ENTRIES, ROOTS, PICKED, EDGES = range(7)
LENGTHS, HOOKED = 8, 108
STATE_WORDS = 208
BINS = 2056
LAST_ROUND = HOOKED - LENGTHS - 2
UNSEEN = 0xFFFFFFFF  # both halves of the word of a component without an edge


@dataclass(frozen=True)
class Squares:
    """Sizes of the squares into which the kernels cut a tile; results do not depend on them."""

    side: int = 64
    rows: int = 8
    """Rows of a column that one thread holds."""
    capacity: int = 464
    """Edges and roots that a warp lists in shared memory; further edges take more time."""

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.side**2 // self.rows

    def edges_per_warp(self, key_bytes: int, most: int) -> int:
        """Return how many edges and roots a warp lists, in a block of ``most`` bytes at most.

        With keys of 8 bytes, the 64 KiB of a Turing have room for 248.
        """
        left = most - self.shared_bytes(key_bytes, 0)
        return min(self.capacity, left // (2 * self.threads // 32) // 8 * 8)

    def shared_bytes(self, key_bytes: int, edges: int) -> int:
        """Return the bytes of shared memory per block, whose warps list ``edges`` edges each.

        Beside the lists it holds the state, keys, words and marks.
        """
        lists = self.threads // 32 * edges + 8 * self.side + 4
        return 72 + (self.side + 2) ** 2 * (key_bytes + 4) + self.side**2 + 2 * lists

    def blocks_per_multiprocessor(self, shared: int, registers: int) -> int:
        """Return how many blocks fit a multiprocessor of 65,536 registers and 227 KiB at once."""
        by_memory = 227 * 1024 // (shared + 1024)
        return max(1, min(65536 // (registers * self.threads), by_memory, 16))


SQUARES = Squares()


class DeviceForest(NamedTuple):
    """A tile's forest in device memory; cells are row-major indices in the tile."""

    mask: Buffer
    """(ceil(h * w / 2),) uint8: final edges, two cells a byte."""
    vertex_count: int
    clashes: int
    """Valid cells with the key that stands for nodata; if there are any, the rest is invalid."""
    total: int
    """Sum of the weights of the mask's edges, in units of 2**-1074."""
    edge_count: int
    """Number of the mask's edges."""
    tag: Buffer
    """(k,) uint32: first end * 4 + direction of the tentative edges, unordered."""
    a: Buffer
    """(k,) int32: number of the border cell of the first end's component (see border_cell)."""
    b: Buffer
    """(k,) int32: number of the border cell of the other end's component."""


def border_cell(number: Array, h: int, w: int) -> Array:
    """Return cells from border cell numbers, which count the north, south, west and east side."""
    y = np.where(number < 2 * w + h, number - 2 * w, number - 2 * w - h)
    side = np.where(number < 2 * w + h, y * w, y * w + w - 1)
    row = np.where(number < w, number, number - w + (h - 1) * w)
    return np.where(number < 2 * w, row, side).astype(np.int32)


class _Rounds:
    """Borůvka rounds on the edge list."""

    def __init__(
        self,
        device: Device,
        defines: Mapping[str, object],
        edges: tuple[Buffer, ...],
        state: Buffer,
    ) -> None:
        self.device, self.defines, self.state = device, defines, state
        self.a, self.b, self.high, self.low, self.tag = edges
        xp = device.array_module
        self.lists = (xp.empty(self.a.size, np.uint32), xp.empty(self.a.size, np.uint32))
        self.round = 0

    def launch(self, kernel: str, count: int, *arguments: Any) -> None:
        """Launch a kernel with a grid-stride loop over up to ``count`` items."""
        blocks = min(blocks_for(count, THREADS)[0], max(MAX_BLOCKS >> self.round // 3, MIN_BLOCKS))
        self.device.launch(SOURCE, kernel, (blocks,), (THREADS,), arguments, defines=self.defines)

    def run(
        self, parent: Buffer, count: int, fixed: int, every: bool, mask: tuple[Any, ...]
    ) -> Array:
        """Run rounds until a round hooks nothing; return the state.

        The list of the remaining edges is the one of ``self.round``.

        parent : at most ``count`` components; the first ``fixed`` of them never choose.
        every : whether the components include roots, or border cells alone.
        mask : last arguments of hook_components, which say where chosen edges are written.
        """
        xp = self.device.array_module
        best = [xp.full(2 * count, UNSEEN, np.uint32).view(np.uint64) for _ in range(2)]
        first = self.round
        ends = (self.a, self.b)
        while True:
            for _ in range(LONG_BATCH if count >= LARGE else BATCH):
                if self.round > LAST_ROUND:
                    raise RuntimeError(f"no end after {self.round} rounds of Boruvka")
                now, then = self.lists[self.round % 2], self.lists[(self.round + 1) % 2]
                numbers = (scalar(np.int32, self.round), scalar(np.int32, first))
                of_round, of_next = best[self.round % 2], best[(self.round + 1) % 2]
                self.launch(
                    *("propose_edges", now.size, *ends, self.high, self.low, self.tag, now, then),
                    *(self.state, *numbers, parent, of_round, scalar(np.int32, fixed)),
                )
                self.launch(
                    *("hook_components", count, *ends, self.tag, self.state, *numbers, parent),
                    *(of_round, of_next, scalar(np.int32, fixed if every else count)),
                    *(scalar(np.int32, every), *mask),
                )
                if every and count >= LARGE and self.round - first < COMPRESSED:
                    last = numbers[0], scalar(np.int32, fixed)
                    self.launch("lead_components", count, parent, self.state, *last)
                self.round += 1
            state = self.device.download(self.state)
            hooked = state[HOOKED + first : HOOKED + self.round]
            if not hooked.all():
                self.round = first + int(hooked.argmin()) + 1
                return state


def _key_type(dtype: np.dtype[Any], by_formula: bool) -> type[np.generic]:
    """Return the type of a cell's key, or of its height if edges are weighed by a formula."""
    if by_formula:
        narrow = dtype == np.float32 or dtype.itemsize <= 2
        return np.float32 if narrow else np.float64
    return np.uint64 if dtype.itemsize == 8 else np.uint32


def forest_on_device(
    values: Buffer,
    nodata: Any,
    sides: tuple[bool, bool, bool, bool],
    weight: str = "max",
    connectivity: int = 8,
    *,
    device: Device | None = None,
    squares: Squares = SQUARES,
    gap: int | None = None,
) -> DeviceForest:
    """Return the forest of a tile in device memory.

    Parameters
    ----------
    values : (h, w) C-contiguous buffer of a native integer dtype, float32 or float64
    nodata : scalar of that dtype, or None
    sides, weight, connectivity
        As in `tile_forest`.
    device : Device
        Device of ``values``; by default the current one.
    squares : Squares
        Sizes of the squares of a tile.
    gap : int
        An unused key; needed if a value has the key of nodata.

    Raises
    ------
    InputError
        If a weight could overflow.
    """
    device = device or current_device()
    xp = device.array_module
    h, w = values.shape
    dtype = np.dtype(values.dtype)
    bits = 8 * dtype.itemsize
    by_formula = find_weight(weight).formula is not None
    key = np.dtype(_key_type(dtype, by_formula))
    edges_per_warp = squares.edges_per_warp(key.itemsize, device.shared_bytes())
    shared = squares.shared_bytes(key.itemsize, edges_per_warp)
    defines = {
        "VALUE": value_type(dtype),
        "VALUE_BITS": bits,
        "WEIGHT": int(by_formula),
        **({"FORMULA": weight} if by_formula else {}),
        "DIAGONAL": int(connectivity == 8),
        "SIDE": squares.side,
        "ROWS": squares.rows,
        "CAPACITY": edges_per_warp,
        "RESIDENT": squares.blocks_per_multiprocessor(shared, 40 if by_formula else 32),
    }
    size, border = (scalar(np.int32, h), scalar(np.int32, w)), 2 * (h + w)
    count = -(-h // squares.side) * -(-w // squares.side)
    perimeter = count * 4 * squares.side
    most = count * (4 * squares.side + 4) + border

    # The counters, and the bins of the sum of weights by sign, part and exponent.
    state = xp.zeros(STATE_WORDS + 2 * 2 * BINS, np.uint64)
    bins = state[STATE_WORDS:]
    mask = xp.zeros(-(-h * w // 8), np.uint32)
    link = xp.empty(perimeter, np.int32)
    wide = not by_formula and bits == 64
    edges = (
        *(xp.empty(most, np.int32), xp.empty(most, np.int32), xp.empty(most, np.uint64)),
        *(xp.empty(most if wide else 1, np.uint64), xp.empty(most, np.uint32)),
    )
    limits = [int(limit) for limit in key_limits(dtype, nodata)]
    limits.append(gap if gap is not None else 2**64 - 1)
    missing = scalar(key, np.inf if by_formula else 2 ** (8 * key.itemsize) - 1)
    device.launch(
        *(SOURCE, "contract_squares", (count,), (squares.threads,)),
        (
            *(values, *size, scalar(np.int32, sum(1 << k for k in range(4) if sides[k]))),
            *(missing, *(scalar(np.uint64, limit) for limit in limits)),
            *(scalar(np.int32, nodata is not None), mask, link, *edges, state, bins),
        ),
        defines=defines,
        shared=shared,
    )
    rounds = _Rounds(device, defines, edges, state)
    cells = scalar(np.int32, perimeter)
    rounds.launch("number_roots", perimeter, link, cells, scalar(np.int32, border), state)
    device.launch(
        *(SOURCE, "lead_perimeters", blocks_for(perimeter, THREADS), (THREADS,), (link, cells)),
        defines=defines,
    )
    rounds.launch("number_ends", most, *edges[:2], link, rounds.lists[0], state)
    # Of two perimeter cells that are each other's parent, one is a root.
    components = border + perimeter // 2
    parent = xp.arange(components, dtype=np.int32)
    tile = (values, scalar(np.int32, w), bins)
    seen = rounds.run(parent, components, border, True, (mask, *tile, None))
    if by_formula:
        check_magnitude(float(seen[MAGNITUDE : MAGNITUDE + 1].view(np.float64)[0]), weight)
    edge_count = int(seen[EDGES])
    total = fold_sum(0, np.zeros(4), seen[STATE_WORDS:].reshape(2, 2, BINS))

    left = int(seen[LENGTHS + rounds.round])
    tentative = edges[4], edges[0], edges[1]
    if left:
        picked = xp.empty(min(left, border), np.uint32)
        list_now = rounds.lists[rounds.round % 2]
        number = scalar(np.int32, rounds.round)
        rounds.launch("settle_ends", left, *edges[:2], list_now, state, number, parent)
        # Without a mask, chosen edges are appended to ``picked``.
        counts = rounds.run(parent, border, 0, False, (None, *tile, picked))
        picked = picked[: int(counts[PICKED])]
        tentative = (*(column[picked] for column in tentative),)
    else:
        tentative = (*(xp.empty(0, column.dtype) for column in tentative),)
    return DeviceForest(
        mask.view(np.uint8)[: -(-h * w // 2)],
        int(seen[VALID]),
        int(seen[CLASHES]),
        total,
        edge_count,
        *tentative,
    )


def _find_gap(values: Array, nodata: Any) -> int:
    """Return a key that no value has."""
    bits = values.view(f"u{values.dtype.itemsize}")
    low, high, sign, *_ = key_limits(values.dtype, nodata)
    keys = bits ^ np.where(bits >= sign, high, low)
    return unused_key(np.unique(keys if nodata is None else keys[values != nodata]))


def tile_forest(
    values: Array,
    nodata: float | None,
    sides: tuple[bool, bool, bool, bool],
    weight: str = "max",
    connectivity: int = 8,
    *,
    device: Device | None = None,
    squares: Squares = SQUARES,
) -> TileForest:
    """Return the minimum spanning forest of one tile, compressed to its border, from a GPU.

    Parameters, results and errors are those of `orograph.kernels.forest.tile.tile_forest`, plus:

    Parameters
    ----------
    device : Device
        By default the GPU of this process.
    squares : Squares
        Sizes of the squares of a tile; the result does not depend on them.

    Notes
    -----
    Besides the values and the mask the device needs about 2.7 bytes per cell. If integers of 32 or
    64 bits span the whole range of their dtype, a value may have the key that stands for nodata.
    The host then finds an unused key and runs the work a second time.
    """
    check_arguments(values, weight, connectivity)
    device = device or current_device()
    cells, mark = native_buffer(device, values, nodata)
    h, w = cells.shape

    call = partial(forest_on_device, device=device, squares=squares)
    found = call(cells, mark, sides, weight, connectivity)
    if found.clashes:
        gap = _find_gap(device.download(cells), mark)
        found = call(cells, mark, sides, weight, connectivity, gap=gap)
    tags = device.download(found.tag)
    order = np.argsort(tags)
    tags = tags[order]
    return TileForest(
        device.download(found.mask),
        (h, w),
        found.edge_count,
        found.vertex_count,
        found.total,
        (tags >> np.uint32(2)).astype(np.int32),
        (tags & np.uint32(3)).astype(np.uint8),
        border_cell(device.download(found.a)[order], h, w),
        border_cell(device.download(found.b)[order], h, w),
    )


def draw_edges(
    packed: npt.NDArray[np.uint8],
    shape: tuple[int, int],
    first: Indices,
    bits: npt.NDArray[np.uint8],
    *,
    device: Device | None = None,
) -> Buffer:
    """Return a mask unpacked from two cells a byte, with further bits set, on a GPU.

    As `orograph.kernels.forest.nibbles.draw_edges`.
    """
    device = device or current_device()
    xp, cells = device.array_module, shape[0] * shape[1]
    words = xp.empty(-(-cells // 4), np.uint32)
    mask = words.view(np.uint8)[:cells].reshape(shape)

    def launch(kernel: str, count: int, *arguments: Any) -> None:
        grid, given = blocks_for(count, THREADS), (*arguments, np.int32(count))
        device.launch(MASK, kernel, grid, (THREADS,), given)

    launch("unpack_cells", packed.size, device.upload(packed), mask, np.int32(cells))
    if first.size:
        places = device.upload(first.astype(np.int32))
        launch("set_bits", first.size, places, device.upload(bits), words)
    return mask
