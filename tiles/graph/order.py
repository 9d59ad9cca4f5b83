"""Order the vertices of a graph for storage, so that neighbours are close together.

By z-order of coordinates where there are some, else by reverse Cuthill-McKee (SciPy's). Kernels
then find most of what they read in the cache, and few edges lead from part to part.

References
----------
E. Cuthill, J. McKee, "Reducing the bandwidth of sparse symmetric matrices", ACM 1969,
doi:10.1145/800195.805928.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Integers


def storage_order(
    n: int,
    tail: Integers,
    head: Integers,
    coordinates: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None,
) -> Integers:
    """Return the order in which to store n vertices, as indices in the source."""
    if coordinates is not None:
        return np.argsort(z_order(*coordinates), kind="stable").astype(np.int64)
    if n >= 2**31 or tail.size >= 2**31:  # SciPy's indices end there
        return np.arange(n)
    from scipy import sparse  # slow to import
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ones = np.ones(tail.size, bool)  # parallel edges are one, however many
    links = sparse.csr_matrix((ones, (tail.astype(np.int32), head.astype(np.int32))), (n, n))
    # Directions do not matter for the order, and `symmetric_mode` takes the matrix as symmetric.
    both: Any = links + links.T
    return np.asarray(reverse_cuthill_mckee(both, symmetric_mode=True), np.int64)


def z_order(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the Morton code (z-order) of each point, with 31 bits for each axis.

    Examples
    --------
    >>> z_order(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])).argsort().tolist()
    [0, 2, 1, 3]
    """
    # Both axes have one scale, so that a range of codes is a compact area.
    side = max(float(np.ptp(x)), float(np.ptp(y))) if x.size else 0.0
    scale = (2**31 - 1) / side if side else 0.0
    columns, rows = (((values - values.min()) * scale).astype(np.uint64) for values in (x, y))
    return _spread(columns) << np.uint64(1) | _spread(rows)


def _spread(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread the 32 bits of each number, inserting a zero before each bit."""
    # In each step the upper half of each group of bits moves up by half the group's length.
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        bits = (bits | bits << np.uint64(shift)) & np.uint64(mask)
    return bits
