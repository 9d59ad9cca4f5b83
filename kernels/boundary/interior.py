"""Interior distances: the costs of all cells of a block from those of its border cells.

This is the last step of a query. A path from outside enters the block for the last time at a border
cell and stays inside from there. The costs of the border cells, each the least over all paths, and
one relaxation inside the block (relax/tile.py) therefore give the least cost of every cell. Sources
inside the block are seeds as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.boundary.dissection import Indices, Rectangle, border_cells
from orograph.kernels.boundary.elimination import BlockCosts, check_block
from orograph.kernels.relax.tile import TileState, relax, seed
from orograph.kernels.vectors.lanes import LANES

Array = npt.NDArray[Any]


def interior_distances(
    costs: BlockCosts,
    block: Rectangle | None,
    border: Array | None,
    sources: Indices | None = None,
    values: Array | float = 0.0,
) -> Array:
    """Return the cost of every cell of a block.

    Parameters
    ----------
    costs : BlockCosts
    block : Rectangle, optional
        Default: the whole raster.
    border : (n,), optional
        Costs of the border cells, in the order of `border_cells`; infinity (int64: ``BARRIER``) for
        unreached cells.
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
        If the block lies outside the raster, or ``border`` has another length.
    """
    block = check_block(costs, block)
    cells = border_cells(block.height, block.width)
    if border is not None and border.shape != (len(cells),):
        raise ValueError(f"border has shape {border.shape}; must be {(len(cells),)}")
    rows = slice(block.top, block.top + block.height + 2)
    columns = slice(block.left, block.left + block.width + 2)
    rules = costs.rules._replace(factors=np.ascontiguousarray(costs.rules.factors[:, rows]))
    dist = np.full((block.height + 2, block.width + 2), rules.unreached, costs.dtype)
    blocks = (-(-block.height // LANES), -(-block.width // LANES))
    friction, elevation = (
        np.ascontiguousarray(raster[rows, columns]) for raster in (costs.friction, costs.elevation)
    )
    state = TileState(
        dist=dist,
        keys=np.full(blocks, rules.unreached, costs.dtype),
        fresh=np.zeros(blocks, np.uint8),
        friction=friction,
        elevation=elevation,
        block=LANES,
        rules=rules,
    )
    if border is not None:
        reached = border < rules.unreached
        seed(state, cells[reached, 0], cells[reached, 1], border[reached])
    if sources is not None and len(sources):
        seed(state, sources[:, 0], sources[:, 1], values)
    relax(state)
    return np.ascontiguousarray(dist[1:-1, 1:-1])
