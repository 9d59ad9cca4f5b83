"""Links over a raster, as boundary matrices and relaxations of its blocks take them.

A link between neighbours is another cost of the step between them, and takes part in eliminations.
The ends of all others are *terminals* of the blocks in which they lie: a boundary matrix has a row
for each, behind those of the border cells, so that what enters or leaves a block by a link does so
there, as at its border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from orograph.kernels.relax.links import InnerLinks
from orograph.tiles.arrays import Array, Indices

_MOVES = 9


@dataclass(frozen=True, eq=False)
class BlockLinks:
    """Links with an end in a raster; cells are counted without its halo."""

    shape: tuple[int, int]
    """Rows and columns of the raster without its halo."""
    codes: Indices
    """(n,): the steps between neighbours that links go along, ascending; see `_codes`."""
    costs: Array
    """(n,): the least cost of a link along each."""
    tail: Indices
    head: Indices
    """(m, 2): cells that links within the raster join, neighbours among them."""
    cost: Array
    terminals: Indices
    """(k, 2): cells within the raster at ends of links that do not join neighbours, ascending."""
    symmetric: bool
    """Whether there is another link back for each, at the same cost; maybe not all are here."""

    def lowered(self, cells: Indices, moves: Indices | tuple[int, int], costs: Array) -> Array:
        """Return the costs of steps from cells, lowered to those of links along them."""
        wanted = _codes(cells, np.broadcast_to(moves, cells.shape), self.shape[1])
        if not self.codes.size:
            return costs
        # The first code that is not less than the wanted one; past the end the last code, which
        # differs from it.
        place = np.minimum(np.searchsorted(self.codes, wanted), self.codes.size - 1)
        found = self.codes[place] == wanted
        return np.where(found, np.minimum(costs, self.costs[place]), costs)

    @property
    def steps(self) -> tuple[Indices, Indices]:
        """The steps between neighbours: their first cells and moves, (n, 2) each."""
        place, move = np.divmod(self.codes, _MOVES)
        cells = np.stack(np.divmod(place, self.shape[1] + 2), axis=1) - 1
        return cells, np.stack(np.divmod(move, 3), axis=1) - 1

    @cached_property
    def inner(self) -> InnerLinks:
        """The links within the raster, to spread costs along."""
        return InnerLinks(self.tail, self.head, self.cost, self.shape)


def are_neighbours(tail: Indices, head: Indices, steps: int) -> npt.NDArray[np.bool_]:
    """Return which links join neighbours; ``steps``: 1 if diagonal ones are none, else 2."""
    away = np.abs(head - tail)
    near = (away.max(axis=1, initial=0) == 1) & (away.sum(axis=1) <= steps)
    return np.asarray(near)


def block_links(
    tail: Indices,
    head: Indices,
    cost: Array,
    shape: tuple[int, int],
    *,
    steps: int,
    symmetric: bool,
) -> BlockLinks:
    """Return links with an end in a raster, prepared for its boundary matrix.

    Parameters
    ----------
    tail, head : (n, 2) int64
        Rows and columns, counted from the raster's first cell; outside for an end elsewhere.
    cost : (n,)
        In the dtype of the matrix, not negative.
    shape : (int, int)
        Rows and columns of the raster without its halo.
    steps : int
        As of `orograph.kernels.relax.models.Rules`.
    symmetric : bool
        Whether for each link there is one back at the same cost.
    """
    near = are_neighbours(tail, head, steps)
    codes = _codes(tail[near], (head - tail)[near], shape[1])
    # By code, then by cost: the first of each code is the cheapest.
    order = np.lexsort((cost[near], codes))
    codes, first = np.unique(codes[order], return_index=True)
    inside = [((ends >= 0) & (ends < shape)).all(axis=1) for ends in (tail, head)]
    within = inside[0] & inside[1]
    ends = np.concatenate([tail[inside[0] & ~near], head[inside[1] & ~near]])
    return BlockLinks(
        shape=shape,
        codes=codes,
        costs=cost[near][order][first],
        tail=tail[within],
        head=head[within],
        cost=cost[within],
        terminals=np.unique(ends, axis=0),
        symmetric=symmetric,
    )


def _codes(cells: Indices, moves: Array, width: int) -> Indices:
    """Number steps to neighbours, from cells in a raster or its halo."""
    place = (cells[:, 0] + 1) * (width + 2) + cells[:, 1] + 1
    codes: Indices = place * _MOVES + (moves[:, 0] + 1) * 3 + moves[:, 1] + 1
    return codes
