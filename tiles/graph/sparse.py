"""Check SciPy sparse arrays, whose index arrays may be inconsistent."""

from __future__ import annotations

import copy
from typing import Any

from orograph.tiles.errors import InputError


def entries_of(matrix: Any, argument: str) -> Any:
    """Return a sparse array in COO form, with its indices checked.

    Raises
    ------
    InputError
        If the array's indices or index pointers do not fit its shape.
    """
    try:
        if matrix.format in ("csr", "csc", "bsr"):
            copy.copy(matrix).check_format(full_check=True)  # it changes what it checks
        entries = matrix.tocoo()
        for places, size in zip((entries.row, entries.col), matrix.shape, strict=True):
            if places.size and not (places.min() >= 0 and places.max() < size):
                raise ValueError(f"{places.min()} to {places.max()}, and {size} would fit")
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{argument}: a {matrix.format} array of shape {matrix.shape} whose indices do not fit "
            f"({error}); make it anew from rows, columns and values (scipy.sparse.coo_array)"
        ) from None
    return entries
