"""Allocation and back directions on a GPU, where pairs (label, hops) fit into one int64.

There they are distances over the steps that attain the distances of the cells: tiles are relaxed as
those of `orograph.distance.problem`, in the memory of the GPU. The order of visits is that of cost,
as on the CPU, and each visit takes all that is new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orograph.distance.allocation import ALLOCATION, BACK_DIRECTION, NO_SOURCE, AllocationProblem
from orograph.distance.problem import Distance
from orograph.engines.frontier.protocol import Request, Visit
from orograph.kernels.backends import CudaBackend, get_backend
from orograph.kernels.device import as_words
from orograph.kernels.relax.border import facing, inner_of
from orograph.kernels.relax.models import BARRIER
from orograph.kernels.relax.resident import ResidentTile
from orograph.kernels.shortest_path_tree.cuda import (
    back_directions,
    labels_of,
    open_pairs,
    set_distances,
)
from orograph.kernels.shortest_path_tree.pair_code import PairCode
from orograph.tiles.arrays import Array
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window


@dataclass(slots=True)
class State:
    """A tile of pairs (label, hops) in GPU memory."""

    place: Place
    tile: ResidentTile
    dist: list[Array]
    """Distances of the cells that face each neighbour, in the memory of this process."""
    least: float
    """Least distance of the tile's cells."""


def gpu_bytes_of_pairs(distance: Distance, cells: int) -> int:
    """Return the peak bytes of GPU memory of a tile of pairs, with its costs."""
    costs = replace(distance, keep_weights=False)  # steps are known by the distances
    return costs.gpu_bytes(cells) + (distance.dtype.itemsize + 24) * cells


@dataclass(frozen=True)
class AllocationOnGpu(AllocationProblem):
    """`AllocationProblem` computed on a GPU, with each pair (label, hops) as one integer."""

    backend = CudaBackend.name

    code: PairCode
    """Encoding of pairs (label, hops), the same for all tiles, since their borders are pairs."""

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile nothing: all kernels are those of the GPU."""

    def gpu_bytes(self, cells: int) -> int:
        """Return the peak bytes of GPU memory of a tile."""
        return gpu_bytes_of_pairs(self.distance, cells)

    def open(self, place: Place, cells: Sequence[Any], frame: Window) -> Any:
        """Return the initial state of a tile: only its sources are labelled."""
        *surface, cost = cells
        window, reach = place.window, self.halo_width
        solved = self.distance.surface(place, surface, frame)
        set_distances(solved.dist, cost, (frame.y - window.y + reach, frame.x - window.x + reach))
        tile = open_pairs(solved)
        to_host = get_backend(self.backend).to_host
        if self.distance.sources is None:
            surface[-1] = to_host(surface[-1])
        rows, columns, values, own = self.sources_in(window, frame, surface)
        if rows.size:
            attained = to_host(solved.dist[rows + reach, columns + reach]) == values
            rows, columns, own = rows[attained], columns[attained], own[attained]
        tile.seed(rows, columns, self.code.pairs(own, 0))
        sides = [to_host(part) for part in facing(inner_of(solved.dist, reach), reach)]
        # As words, whose order is that of numbers from 0 on: CuPy's minimum flushes subnormals to
        # 0.
        least = to_host(as_words(solved.dist).min()).view(solved.dist.dtype)
        return State(place, tile, sides, float(least))

    def visit(self, state: Any, request: Request, bound: float) -> Visit:
        """Spread labels from the neighbours' borders through the tile; return what changed."""
        sent = request.sent
        # Bounds are costs, which cannot limit pairs: a visit spreads all that is new, or nothing.
        found = state.tile.exchange(request.halo, sent, -1.0 if bound < 0 else math.inf)
        pending = state.least if math.isfinite(found.pending) else math.inf
        outward = [math.inf] * len(state.dist)
        for k, (dist, own, before) in enumerate(zip(state.dist, found.border, sent, strict=True)):
            # of what is new, and of nothing that the neighbour knows
            if own is not None and math.isfinite(found.outward[k]):
                outward[k] = float(dist[own < (BARRIER if before is None else before)].min())
        return Visit(pending, outward, found.border, found.settled, found.reached)

    def pack(self, state: Any) -> Any:
        """Return the pairs and the pending blocks; distances are read again."""
        return state.tile.pack()

    def unpack(self, state: Any, packed: tuple[Any, ...]) -> None:
        """Restore the pairs and the pending blocks."""
        state.tile.unpack(*packed)

    def size(self, state: Any) -> int:
        """Return the bytes of memory that a tile's state occupies."""
        return int(state.tile.nbytes)

    def finish(self, state: Any) -> tuple[dict[str, Any], dict[str, float]]:
        """Return the output cells of a converged tile, in GPU memory."""
        outputs: dict[str, Any] = {}
        pairs = state.tile.state
        if BACK_DIRECTION.name in self.wanted:
            outputs[BACK_DIRECTION.name] = back_directions(pairs, self.code, self.orientation)
        if ALLOCATION.name in self.wanted:
            outputs[ALLOCATION.name] = labels_of(pairs, self.code, NO_SOURCE)
        return outputs, {}
