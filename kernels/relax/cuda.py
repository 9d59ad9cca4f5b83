"""Shortest paths in one tile on a GPU: the host's side of relax.cu, and of the border around it.

A `DeviceTile` keeps a tile's costs and distances in the device's memory from visit to visit:
the neighbours' borders go up, its own border and the keys come down, and the whole tile once, at
the end. `relax`, `wake` and `probe_border` are the Numba functions of these names, done there and
back, with the same distances to the bit. A tile's rounds are launched in batches, all
but the first recorded, so that a launch costs the host little; it waits once for some batches.

Pending keys are those of the Numba counterpart where both have converged, and bounds as good
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels import device as cuda
from orograph.kernels.relax.border import (
    Border,
    facing,
    halo_strips,
    improved_parts,
    inner_of,
    last_sent,
    set_halo,
)
from orograph.kernels.relax.definitions import (
    AT_WORK,
    definitions,
    upload_costs,
    warp_bytes,
    weighed,
    weights_a_cell,
)
from orograph.kernels.relax.pad import ReadOut
from orograph.kernels.relax.pad_cuda import read_out
from orograph.kernels.relax.resident import Exchange, next_above
from orograph.kernels.relax.tile import RelaxStats, TileState, checked_seeds, limit_of
from orograph.kernels.vectors.lanes import LANES
from orograph.tiles.arrays import Array

SOURCE = "relax/relax.cu"
THREADS = 128
WEIGHED_AT_ONCE = 8  # rows of a block
MOST_LOOKING = 264  # blocks of threads that find the window of a round
FIRST_BATCH = 3  # rounds before the first look at the control words
BATCH = 4  # rounds that are recorded together
MOST_BATCHES = 4  # between two looks at the control words


# control words of relax.cu
_PENDING, _VISITS, _SIDES, _ROUNDS, _BOUND, _COUNT = 0, 1, 4, 5, 6, 7
_LEAST, _BEYOND, _WORDS = 12, 14, 112


class DeviceTile:
    """A tile of a shortest-path problem in the memory of a device.

    Parameters
    ----------
    state : TileState
        The tile as it is now. Arrays that are the device's already are worked on as they are, the
        others are copied there and left alone until `store`.
    device : Device, optional
        Where to keep it; by default this process's GPU.
    tight_steps : bool
        Whether the friction is a mask of tight steps: see edge_costs.cuh.
    keep_weights : bool
        Whether costs of steps that take long to compute stay in memory between the visits of a
        block, if the model has such.
    """

    def __init__(
        self,
        state: TileState,
        device: cuda.Device | None = None,
        *,
        tight_steps: bool = False,
        keep_weights: bool = True,
    ) -> None:
        self._device = device = device or cuda.current_device()
        self._given = state
        rules = state.rules
        # models without weights have one module, too
        self._keep_weights = keep_weights or not weighed(rules)
        kept = {"TIGHT_STEPS": int(tight_steps), "KEPT": int(self._keep_weights)}
        self._defines = {**definitions(rules), **kept}
        self._height, self._width = (n - 2 * rules.reach for n in state.dist.shape)
        rasters = (state.friction, state.elevation)
        friction, elevation = (self._put(r) if r.size else r for r in rasters)
        self.state = TileState(
            self._put(state.dist),
            self._put(state.keys),
            self._put(state.fresh),
            friction,
            elevation,
            state.block,
            rules,
            state.further,
            state.appended,
        )
        """The tile in the device's memory."""
        self._dist, self._keys, self._fresh = self.state.dist, self.state.keys, self.state.fresh
        self._costs = upload_costs(self.state, device)
        # LANES rings, each with room for all blocks; -1 marks an empty place.
        self._queues = device.array_module.full(LANES * state.keys.size, -1, np.int32)
        self._later = device.array_module.full(
            state.keys.size, state.rules.unreached, state.keys.dtype
        )
        self._rest = device.array_module.empty(3 * state.keys.size, np.int32)
        self._control = device.array_module.empty(_WORDS, np.uint64)
        self._weights: cuda.Buffer | None = None
        self._launch_batch: Callable[[], None] | None = None
        self.reached = self._count_reached()
        """Cells that hold a value."""
        shapes = [strip.shape for strip in halo_strips(state.dist, rules.reach)]
        self.halo = [np.full(shape, rules.unreached, state.dist.dtype) for shape in shapes]
        """The halo as the neighbours last sent it."""

    def _put(self, array: Any) -> cuda.Buffer:
        return cuda.on_device(self._device, array)

    def _count_reached(self) -> int:
        rules = self._given.rules
        reached = inner_of(self._dist, rules.reach) < rules.unreached
        return int(self._device.array_module.count_nonzero(reached))

    @property
    def nbytes(self) -> int:
        """Bytes in the device's memory."""
        state = self._given
        rasters = state.dist.nbytes + state.friction.nbytes + state.elevation.nbytes
        kept = weighed(state.rules) and self._keep_weights
        weights = self._weights_count() if kept else 0
        # Key and later key, a place in each ring, three words of unfinished work, and the mark of
        # seeds.
        a_block = 2 * state.keys.itemsize + 4 * LANES + 13
        return int(rasters + weights * state.dist.itemsize + state.keys.size * a_block)

    def seed(self, rows: Array, columns: Array, values: Array | float = 0.0) -> None:
        """Lower cells to given values, as `orograph.kernels.relax.tile.seed`."""
        rules, block = self._given.rules, self._given.block
        rows, columns, starts = checked_seeds(self._given, rows, columns, values)
        kept = starts <= rules.limit
        rows, columns, starts = rows[kept], columns[kept], starts[kept]
        if rows.size == 0:
            return
        lowered = self._lower(self._dist, rows + rules.reach, columns + rules.reach, starts)
        rows, columns, starts = rows[lowered], columns[lowered], starts[lowered]
        self._lower(self._keys, rows // block, columns // block, starts)
        upload = self._device.upload
        self._fresh[upload(rows // block), upload(columns // block)] = 1
        self.reached = self._count_reached()

    def values_at(self, rows: Array, columns: Array) -> Array:
        """Return the distances of cells."""
        reach, upload = self._given.rules.reach, self._device.upload
        return self._device.download(self._dist[upload(rows + reach), upload(columns + reach)])

    def _lower(self, buffer: cuda.Buffer, rows: Array, columns: Array, values: Array) -> Array:
        """Lower elements of a buffer; return the positions in ``values`` that lowered one."""
        # A scatter with equal indices would keep any of their values. So each element is written
        # once, with the least of its values: the first after sorting.
        order = np.lexsort((values, columns, rows))
        first = np.ones(order.size, bool)
        first[1:] = (np.diff(rows[order]) != 0) | (np.diff(columns[order]) != 0)
        least = order[first]
        upload, xp = self._device.upload, self._device.array_module
        where = upload(rows[least]), upload(columns[least])
        buffer = cuda.as_words(buffer)
        news, known = cuda.as_words(upload(values[least])), buffer[where]
        buffer[where] = xp.minimum(known, news)
        lowered: Array = least[self._device.download(news < known)]
        return lowered

    def wake(self, sides: int = 15, strips: list[Array] | None = None) -> None:
        """Take in a halo, and key the blocks that it can improve.

        Parameters
        ----------
        sides : int
            As for `orograph.kernels.relax.tile.wake`.
        strips : four arrays
            The halo, as `halo_strips` gives it; by default that of the state.
        """
        if strips is None:
            strips = halo_strips(self._given.dist, self._given.rules.reach)
        halo = pack_strips(strips)
        self._launch(
            "wake_blocks",
            cuda.blocks_for(halo.size, THREADS),
            (THREADS,),
            (self._keys, self._device.upload(halo)),
            (self._value(self._given.rules.limit), *self._ints(self._given.rules.reverse, sides)),
            block=True,
        )

    def relax(self, bound: float = math.inf) -> RelaxStats:
        """Relax the tile on a GPU, as `orograph.kernels.relax.tile.relax`; keep the state.

        Cells lowered are counted once: on a GPU a cell may be lowered many times in a call.
        """
        xp, known, words = self._device.array_module, self.reached, cuda.as_words(self._dist)
        # A copy, since the rounds lower the distances in place.
        before = xp.array(words)
        pending, visits, sets, rows, sides = self.run_rounds(bound)
        self.reached = self._count_reached()
        settled = int(xp.count_nonzero(words < before))
        return RelaxStats(pending, visits, sets, rows, settled, self.reached - known, sides)

    def run_rounds(self, bound: float = math.inf) -> tuple[float, int, int, int, int]:
        """Relax up to a bound; return the values of `relax` except the numbers of cells."""
        state, device = self._given, self._device
        rules = state.rules
        # Keys are compared by their bits, in whose order a negative bound would lie above all of
        # them.
        limit = max(limit_of(bound, state), state.dist.dtype.type(0))
        control = self._control
        control[...] = device.upload(self._fresh_control(limit))
        if self._weights is None and weighed(rules):
            self._weigh()
        batches = 0
        while True:
            self._launch_rounds(batches)
            # Few rounds before the first look, in case the tile converges at once; then more and
            # more, as each look waits for the device.
            batches = min(batches + 1, MOST_BATCHES)
            words = device.download(control)
            if words[_COUNT] == 0:
                break
        if not self._keep_weights:
            self._weights = self._launch_batch = None  # memory for other tiles
        least = self._from_bits(words[_PENDING])
        self.rounds = int(words[_ROUNDS])
        visits, sets, rows, sides = (int(n) for n in words[_VISITS : _SIDES + 1])
        pending = math.inf if least >= rules.unreached else float(least)
        return pending, visits, sets, rows, sides

    def _weigh(self) -> None:
        """Compute what the steps of the tile cost, or make room for what those of a block do."""
        state, device = self._given, self._device
        weights = device.array_module.empty(self._weights_count(), state.dist.dtype)
        self._weights = weights
        if not self._keep_weights:
            return
        sizes = self._height, self._width, state.block, state.rules.reverse
        device.launch(
            SOURCE,
            "weigh_blocks",
            (state.keys.size,),
            (LANES, WEIGHED_AT_ONCE),
            (*self._costs, weights, *self._ints(*sizes)),
            defines=self._defines,
        )

    def _weights_count(self) -> int:
        blocks, warps = int(self._given.keys.size), int(str(self._defines["WARPS"]))
        if not self._keep_weights:  # one for each warp of a round
            blocks = warps * cuda.blocks_for(min(AT_WORK[1], blocks), warps)[0]
        return blocks * LANES**2 * weights_a_cell(self._given.rules.steps)

    def _launch_rounds(self, batches: int) -> None:
        """Launch some batches of rounds; at first fewer rounds, one by one."""
        if batches == 0:
            self._launch_each(FIRST_BATCH)
            return
        if self._launch_batch is None:
            self._launch_batch = self._device.repeatable(lambda: self._launch_each(BATCH))
        for _ in range(batches):
            self._launch_batch()

    def _launch_each(self, rounds: int) -> None:
        rules, blocks = self._given.rules, int(self._given.keys.size)
        warps = int(str(self._defines["WARPS"]))
        sizes = self._ints(self._height, self._width, self._given.block)
        listed = self._keys, np.int32(blocks), self._queues, self._control
        grid = cuda.blocks_for(blocks, THREADS)
        fewest, most = AT_WORK
        # A front crosses about the square root of all blocks. With fewer warps the GPU idles, with
        # more they visit blocks whose values are not yet near the least.
        front = np.int32(min(max(4 * math.isqrt(blocks), fewest), most))  # blocks along it

        def launch(kernel: str, grid: tuple[int], arguments: tuple[Any, ...]) -> None:
            self._device.launch(SOURCE, kernel, grid, (THREADS,), arguments, defines=self._defines)

        for _ in range(rounds):
            window = *listed, self._later, front
            launch("open_window", (min(grid[0], MOST_LOOKING),), window)
            launch("list_blocks", grid, listed)
            self._device.launch(
                SOURCE,
                "relax_blocks",
                cuda.blocks_for(min(most, blocks), warps),
                (LANES, warps),
                (
                    *(self._dist, *self._costs, self._weights, self._keys, self._later),
                    *(self._fresh, self._rest, self._queues, self._control, *sizes),
                    *(self._value(rules.limit), front, *self._ints(rules.reverse)),
                ),
                defines=self._defines,
                shared=warps * warp_bytes(rules),
            )

    def exchange(self, halo: Border, sent: Border, bound: float) -> Exchange:
        """Set the halo, relax up to a bound, and return the changes on the border."""
        rules = self._given.rules
        sides, changed = set_halo(self.halo, halo, rules.reach, rules.unreached)
        if changed:
            self.wake(sides, self.halo)
        stats = self.relax(next_above(bound, self._dist.dtype))
        own = facing(inner_of(self._dist, rules.reach), rules.reach)
        known = last_sent(sent, own, rules.unreached)
        strips, outward = self.probe_border(known[:4])
        # those that face a corner are the ends of the first rows and of the last
        ends = np.s_[: rules.reach], np.s_[-rules.reach :]
        corners = [strips[y][:, end] for y in (0, 1) for end in ends]
        border = improved_parts(strips + corners, known)
        return Exchange(stats.pending, outward.tolist(), border, stats.settled, self.reached)

    def probe_border(self, sent: list[Array]) -> tuple[list[Array], npt.NDArray[np.float64]]:
        """Return the tile's border, and the least value its changes may pass on to each neighbour.

        Parameters
        ----------
        sent : four arrays
            As for `orograph.kernels.relax.border.probe_border`.

        Returns
        -------
        four arrays
            Distances of the border: north (r, w), south (r, w), west (h, r), east (h, r).
        (8,) float64
            As `orograph.kernels.relax.border.probe_border` returns them.
        """
        state, device = self._given, self._device
        rules = state.rules
        known = pack_strips(sent).astype(state.dist.dtype, copy=False)
        border = device.array_module.empty(known.size, known.dtype)
        outward = device.upload(np.full(8, rules.unreached, state.dist.dtype))
        self._launch(
            "probe_border",
            cuda.blocks_for(known.size, THREADS),
            (THREADS,),
            (device.upload(known), border, outward),
            (self._value(rules.limit), *self._ints(rules.reverse)),
        )
        keys = device.download(outward)
        found = keys.astype(np.float64)
        found[keys >= rules.unreached] = np.inf
        return _unpack_strips(device.download(border), sent), found

    def store(self) -> None:
        """Write distances and keys back to the state."""
        state = self._given
        state.dist[...], state.keys[...], state.fresh[...] = self.pack()

    def pack(self) -> tuple[Array, Array, Array]:
        """Distances, keys, and which blocks were seeded, as they are now."""
        download = self._device.download
        return download(self._dist), download(self._keys), download(self._fresh)

    def unpack(self, dist: Array, keys: Array, fresh: Array) -> None:
        """Restore a packed state."""
        upload, xp = self._device.upload, self._device.array_module
        # Values only fall, so the lesser of two is the later one.
        for mine, packed in ((self._dist, dist), (self._keys, keys)):
            words = cuda.as_words(mine)
            xp.minimum(words, cuda.as_words(upload(packed)), out=words)
        xp.maximum(self._fresh, upload(fresh), out=self._fresh)
        self.reached = self._count_reached()
        for strip, known in zip(self.halo, halo_strips(dist, self._given.rules.reach), strict=True):
            np.minimum(strip, known, out=strip)

    def read_out(self, dtype: np.dtype[Any], blank: float, per: int = 1) -> ReadOut:
        """Return the tile's result."""
        self._weights = self._launch_batch = None  # memory for the result
        return read_out(self.state, dtype, blank, per, device=self._device)

    def _launch(
        self,
        kernel: str,
        grid: tuple[int],
        threads: tuple[int, ...],
        buffers: tuple[Any, ...],
        tail: tuple[Any, ...],
        *,
        block: bool = False,
    ) -> None:
        """Launch a kernel on the tile and its costs."""
        sizes = self._ints(self._height, self._width, *((self._given.block,) if block else ()))
        self._device.launch(
            SOURCE,
            kernel,
            grid,
            threads,
            (self._dist, *self._costs, *buffers, *sizes, *tail),
            defines=self._defines,
        )

    def _fresh_control(self, bound: Any) -> npt.NDArray[np.uint64]:
        words = np.zeros(_WORDS, np.uint64)
        # As the kernels hold them: the bits of the value, in the low half of a word for single
        # precision.
        values = np.array([self._given.unreached, bound], self._given.dist.dtype)
        bits, words[_BOUND] = values.view(f"u{values.itemsize}")
        words[_LEAST] = words[_BEYOND] = bits
        return words

    def _from_bits(self, word: Any) -> Any:
        dtype = self._given.dist.dtype
        return np.array([word], np.uint64).astype(f"u{dtype.itemsize}").view(dtype)[0]

    def _value(self, value: Any) -> Any:
        return cuda.scalar(self._given.dist.dtype, value)

    @staticmethod
    def _ints(*values: Any) -> tuple[np.int32, ...]:
        return tuple(np.int32(value) for value in values)


def pack_strips(strips: list[Array]) -> Array:
    """Strips one behind the other."""
    return np.concatenate([strip.ravel() for strip in strips])


def _unpack_strips(packed: Array, like: list[Array]) -> list[Array]:
    ends = np.cumsum([strip.size for strip in like])
    parts = np.split(packed, ends[:-1])
    return [part.reshape(strip.shape) for part, strip in zip(parts, like, strict=True)]


def relax(
    state: TileState,
    bound: float = math.inf,
    *,
    device: cuda.Device | None = None,
    keep_weights: bool = True,
) -> RelaxStats:
    """Work on the tile until nothing below a bound can improve in it.

    Parameters
    ----------
    state : TileState
        Changed in place.
    bound : float
        As for `orograph.kernels.relax.tile.relax`.
    device : Device, optional
        Where to do it; by default this process's GPU.
    keep_weights : bool
        As for `DeviceTile`.

    Returns
    -------
    RelaxStats
    """
    tile = DeviceTile(state, device, keep_weights=keep_weights)
    stats = tile.relax(bound)
    tile.store()
    return stats


def wake(state: TileState, sides: int = 15, *, device: cuda.Device | None = None) -> float:
    """Key the blocks that the halo can improve; as `orograph.kernels.relax.tile.wake`."""
    tile = DeviceTile(state, device)
    tile.wake(sides)
    tile.store()
    return state.pending


def probe_border(
    state: TileState, sent: list[Array], *, device: cuda.Device | None = None
) -> npt.NDArray[np.float64]:
    """Return lower bounds of the values that the border gives its neighbours, on a GPU."""
    return DeviceTile(state, device).probe_border(sent)[1]


__all__ = ["DeviceTile", "probe_border", "relax", "wake"]
