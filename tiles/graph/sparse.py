"""Recognise SciPy sparse arrays, and check their index arrays, which may be inconsistent."""

from __future__ import annotations

import copy
import sys
from typing import Any

from orograph.tiles.errors import InputError


def is_sparse(value: Any) -> bool:
    """Return whether a value is a SciPy sparse array, without importing scipy.sparse for it."""
    sparse = sys.modules.get("scipy.sparse")  # whoever has made one has imported it
    return sparse is not None and bool(sparse.issparse(value))


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
