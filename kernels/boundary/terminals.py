"""Boundary matrices with the ends of links: rows for terminals, and paths that go by links.

A path inside the block that takes a link passes a terminal, unless the link joins neighbours: those
are in the matrix of the border cells already. So one relaxation from each terminal gives its rows,
and the least sums over the terminals lower all others.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.boundary.interior import interior_distances
from orograph.kernels.compiled import compiled
from orograph.kernels.minplus.product import product
from orograph.tiles.arrays import Array


def with_terminals(matrix: Array, costs: BlockCosts, back: BlockCosts | None) -> Array:
    """Return the boundary matrix of a block with rows and columns for the terminals of links.

    Parameters
    ----------
    matrix : (n, n)
        Of the block's border cells, from ``costs``.
    costs : BlockCosts
        Its steps and links.
    back : BlockCosts or None
        The same with each step and each link the other way round; None where both cost the same.

    Returns
    -------
    (n + k, n + k)
        Distances between `BlockCosts.ends`.
    """
    links = costs.links
    if links is None or not len(links.terminals):
        return matrix
    leaving = arriving = _of_terminals(costs)
    if back is not None:
        arriving = _of_terminals(back)
    n, k = len(matrix), len(leaving)
    out = np.empty((n + k, n + k), matrix.dtype)
    out[:n, :n] = matrix
    # The rows of terminals are written last, so that between terminals they count.
    out[:, n:] = arriving.T
    out[n:] = leaving
    into, away = np.ascontiguousarray(arriving[:, :n].T), np.ascontiguousarray(leaving[:, :n])
    _lower_by_terminals(out.reshape(-1), n + k, into.reshape(-1), away.reshape(-1), n, k)
    return out


def _of_terminals(costs: BlockCosts) -> Array:
    """Return the distances from each terminal of a block to all its ends, (k, n + k)."""
    assert costs.links is not None
    ends = tuple(costs.ends.T)
    rows = [interior_distances(costs, None, cell[None])[ends] for cell in costs.links.terminals]
    return np.stack(rows)


@compiled
def _lower_by_terminals(out, stride, into, away, n, k):
    # not literals, for which Numba would compile another version of `product`
    start, no = n - n, n < 0
    product(out, start, stride, into, start, k, away, start, n, n, n, k, no, no)
