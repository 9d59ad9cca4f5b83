"""Interior distances: the costs of all cells of a block from those of its border cells.

This is the last step of a query. A path from outside enters the block for the last time at a border
cell, or at the end of a link, and stays inside from there. The costs of these cells, each the least
over all paths, and one relaxation inside the block (relax/tile.py) therefore give the least cost of
every cell. Sources inside the block are seeds as well.
"""

from __future__ import annotations

import numpy as np

from orograph.kernels.boundary.elimination import BlockCosts
from orograph.kernels.relax.links import InnerLinks
from orograph.kernels.relax.tile import TileState, relax, seed
from orograph.kernels.vectors.lanes import LANES
from orograph.tiles.arrays import Array, Indices


def interior_distances(
    costs: BlockCosts,
    border: Array | None,
    sources: Indices | None = None,
    values: Array | float = 0.0,
) -> Array:
    """Return the cost of every cell of a block.

    Parameters
    ----------
    costs : BlockCosts
    border : (n,), optional
        Costs of the cells `BlockCosts.ends`; infinity (int64: ``BARRIER``) for unreached cells.
    sources : (k, 2) int64, optional
        Rows and columns, in the block, of the cells where paths begin.
    values : (k,) or a number
        Costs of the sources.

    Returns
    -------
    (height, width) of the rasters' dtype

    Raises
    ------
    ValueError
        If ``border`` has another length.
    """
    height, width = costs.shape
    rules = costs.rules
    cells = costs.ends
    if border is not None and border.shape != (len(cells),):
        raise ValueError(f"border has shape {border.shape}; must be {(len(cells),)}")
    dist = np.full((height + 2, width + 2), rules.unreached, costs.dtype)
    blocks = (-(-height // LANES), -(-width // LANES))
    state = TileState(
        dist=dist,
        keys=np.full(blocks, rules.unreached, costs.dtype),
        fresh=np.zeros(blocks, np.uint8),
        friction=costs.friction,
        elevation=costs.elevation,
        block=LANES,
        rules=rules,
    )
    if border is not None:
        reached = border < rules.unreached
        seed(state, cells[reached, 0], cells[reached, 1], border[reached])
    if sources is not None and len(sources):
        seed(state, sources[:, 0], sources[:, 1], values)
    relax(state)
    if costs.links is not None and costs.links.cost.size:
        _alternate(state, costs.links.inner)
    return np.ascontiguousarray(dist[1:-1, 1:-1])


def _alternate(state: TileState, links: InnerLinks) -> None:
    """Lower costs along links and steps in turn until neither lowers any."""
    rows, columns = links.cells
    settled = None
    # Costs only fall, each to a sum along a path, so the turns end.
    while True:
        known = state.dist[rows + 1, columns + 1]
        settled = links.lower(known, settled, state.unreached, state.rules.limit)
        lowered = settled < known
        if not lowered.any():
            break
        seed(state, rows[lowered], columns[lowered], settled[lowered])
        relax(state)
