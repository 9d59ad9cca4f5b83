"""Tiles of a shortest-path problem that stay in a backend's memory from visit to visit.

`ResidentTile` is all that the pipeline knows of them. `HostTile` keeps a tile in this process's
memory and works on it with Numba; `orograph.kernels.relax.cuda.DeviceTile` is its CUDA
counterpart, with the same distances to the bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from orograph.kernels.relax.border import (
    Border,
    facing,
    halo_strips,
    improved_parts,
    inner_of,
    last_sent,
    passable_sides,
    probe_border,
    set_halo,
)
from orograph.kernels.relax.pad import ReadOut, read_out
from orograph.kernels.relax.tile import (
    TileState,
    relax,
    seed,
    wake,
)
from orograph.tiles.arrays import Array


class Exchange(NamedTuple):
    """Result of an exchange of borders: values for the neighbours of a tile."""

    pending: float
    """Least value by which the tile itself can still be improved; infinite at the fixpoint."""
    outward: list[float]
    """Lower bound of what the new border can pass on to each neighbour; infinite for nothing."""
    border: Border
    """Cells that face each neighbour; None where they are as last sent."""
    settled: int
    """Cells lowered by this exchange."""
    reached: int
    """Cells of the tile that hold a value."""


class ResidentTile(Protocol):
    """A tile in a backend's memory, which is released with the last reference."""

    @property
    def state(self) -> TileState:
        """Its arrays, in the memory of the backend."""

    @property
    def halo(self) -> list[Array]:
        """Return the distances of the halo in host memory, in the form of `halo_strips`."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""

    def seed(self, rows: Array, columns: Array, values: Array | float = 0.0) -> None:
        """Lower cells to given values, as `orograph.kernels.relax.tile.seed`."""

    def values_at(self, rows: Array, columns: Array) -> Array:
        """Return the distances of cells, counted from the first, in this process's memory."""

    def exchange(self, halo: Border, sent: Border, bound: float) -> Exchange:
        """Set the halo, relax up to a bound, and return the changes on the border.

        Parameters
        ----------
        halo : Border
            The borders of the neighbours that face the tile, as last received.
        sent : Border
            The tile's own border, as last sent.
        bound : float
            Values up to it, itself included, are settled.
        """

    def pack(self) -> tuple[Array, Array, Array]:
        """Return the part of the tile that cannot be read again: distances, keys, seeded blocks."""

    def unpack(self, dist: Array, keys: Array, fresh: Array) -> None:
        """Restore a packed state in a newly opened tile."""

    def read_out(self, dtype: np.dtype[Any], blank: float, per: int = 1) -> ReadOut:
        """Return the tile's result, as `orograph.kernels.relax.pad.read_out`; ends the tile.

        Its values lie in the memory of the backend, maybe in that of the distances.
        """


class HostTile:
    """A tile in host memory for the Numba kernels; initially unreached."""

    def __init__(self, state: TileState) -> None:
        self.state = state
        self.halo = halo_strips(state.dist, state.rules.reach)
        # a raster of one tile has none: the kernel that looks beyond it need not be compiled
        self._passable = passable_sides(state)
        self._reached = 0
        self._starts_on_barrier = False

    @property
    def nbytes(self) -> int:
        """Bytes of distances and costs."""
        state = self.state
        return int(state.dist.nbytes + state.friction.nbytes + state.elevation.nbytes)

    def seed(self, rows: Array, columns: Array, values: Array | float = 0.0) -> None:
        """Lower cells to given values."""
        self._reached += seed(self.state, rows, columns, values)
        for raster in (self.state.friction, self.state.elevation):
            if raster.size:
                starts = inner_of(raster, self.state.rules.reach)[rows, columns]
                # Such a cell has a distance and is a barrier, so reading out has to look at all
                # cells.
                self._starts_on_barrier |= not (starts < self.state.unreached).all()

    def values_at(self, rows: Array, columns: Array) -> Array:
        """Return the distances of cells."""
        inner: Array = inner_of(self.state.dist, self.state.rules.reach)[rows, columns]
        return inner

    def exchange(self, halo: Border, sent: Border, bound: float) -> Exchange:
        """Set the halo, relax up to a bound, and return the changes on the border."""
        state, reach = self.state, self.state.rules.reach
        sides, _ = set_halo(self.halo, halo, reach, state.unreached)
        # A halo that has only risen, or not changed, wakes nothing.
        if sides:
            wake(state, sides)
        stats = relax(state, next_above(bound, state.dist.dtype))
        inner = inner_of(state.dist, reach)
        own = facing(inner, reach)
        # The strips of the four sides hold the corner cells too, so the probe needs no more than
        # these.
        known = last_sent(sent, own, state.unreached)
        border = improved_parts(own, known)
        outward = np.full(8, np.inf)
        if any(self._passable) and any(part is not None for part in border):
            outward = probe_border(state, known[:4], self._passable)
        self._reached += stats.found
        return Exchange(stats.pending, outward.tolist(), border, stats.settled, self._reached)

    def pack(self) -> tuple[Array, Array, Array]:
        """Return distances, pending keys and seeded blocks."""
        return self.state.dist, self.state.keys, self.state.fresh

    def unpack(self, dist: Array, keys: Array, fresh: Array) -> None:
        """Restore a packed state."""
        state = self.state
        # Values only fall and each is the cost of a real path, so the lesser of two states is the
        # later one, and any mixture of both is a valid state.
        np.minimum(state.dist, dist, out=state.dist)
        np.minimum(state.keys, keys, out=state.keys)
        np.maximum(state.fresh, fresh, out=state.fresh)
        inner = inner_of(state.dist, state.rules.reach)
        self._reached = int(np.count_nonzero(inner < state.unreached))

    def read_out(self, dtype: np.dtype[Any], blank: float, per: int = 1) -> ReadOut:
        """Return the tile's result, in the memory of its distances where it can be."""
        inner = inner_of(self.state.dist, self.state.rules.reach)
        complete = self._reached == inner.size and not self._starts_on_barrier
        return read_out(self.state, dtype, blank, per, complete)


def next_above(bound: float, dtype: np.dtype[Any]) -> float:
    """Return the least number of a dtype above a bound: kernels work strictly below it."""
    if math.isinf(bound):
        return math.inf
    if dtype.kind == "i":
        return math.floor(bound) + 1
    with np.errstate(over="ignore"):
        return float(np.nextafter(dtype.type(bound), dtype.type(np.inf)))
