"""Edge weights of the minimum spanning forest, and the total order of the edges.

Edges compare by weight, then, for ``max``, by the lower of the two cells, and last by the edge's
identity, which is unique. The order does not depend on how the grid is cut into tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.forest.order_keys import key_values, order_keys
from orograph.kernels.forest.weights import find_weight
from orograph.tiles.arrays import Keys

Values = npt.NDArray[Any]


def edge_keys(weight: str, a: Values, b: Values) -> tuple[Keys, Keys]:
    """Return the two leading keys of the order of edges between cells of heights ``a`` and ``b``.

    Parameters
    ----------
    weight
        One of `WEIGHTS`.
    a, b
        Heights of the two ends, of the same shape and the same real dtype.

    Returns
    -------
    major, minor : uint64 arrays
        Edges compare by ``major``, then ``minor``, then their identity.

    Notes
    -----
    All weights but ``max`` are of heights that have been rounded to float64, which changes only
    64-bit integers beyond 2**53.
    """
    row = find_weight(weight)
    if row.formula is None:
        keys_a, keys_b = order_keys(a), order_keys(b)
        return np.maximum(keys_a, keys_b), np.minimum(keys_a, keys_b)
    weights = row.formula.py_func(a.astype(np.float64), b.astype(np.float64))
    return order_keys(weights), np.zeros(weights.shape, np.uint64)


def key_weights(weight: str, major: Keys, dtype: npt.DTypeLike) -> npt.NDArray[np.float64]:
    """Return the float64 weights of edges between cells of ``dtype``, from their major keys."""
    return key_values(major, dtype if find_weight(weight).formula is None else np.float64)
