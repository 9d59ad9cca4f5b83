"""Edge weights of the minimum spanning forest, one row of `WEIGHTS` each.

``max``, the greater of the two heights, is ordered by the heights as they are, in their own dtype.
All others are two files of this folder: the row with the formula for Numba, and the same for CUDA.
"""

from __future__ import annotations

from pathlib import Path

from orograph.kernels.forest.weights.weight import Weight
from orograph.kernels.formulas import rows_in
from orograph.tiles.errors import InputError

FOLDER = Path(__file__).parent

WEIGHTS: dict[str, Weight] = {
    "max": Weight(summary="the greater of the two heights"),
    **rows_in(__name__, FOLDER, Weight),
}
"""The weights by name; the place of a weight is the number by which compiled code knows it."""


def find_weight(name: str) -> Weight:
    """Return the row of a weight.

    Raises
    ------
    InputError
        If there is none of this name.
    """
    if name not in WEIGHTS:
        raise InputError(f"weight: {name!r} is unknown; choose one of {', '.join(WEIGHTS)}")
    return WEIGHTS[name]


def number_of(name: str) -> int:
    """Return the number by which compiled code knows a weight; raises as `find_weight`."""
    find_weight(name)
    return list(WEIGHTS).index(name)


def lacking_on_gpu(weight: str) -> str:
    """Return the argument for which a GPU lacks weight formulas; empty if it lacks nothing."""
    there = find_weight(weight).formula is None or (FOLDER / f"{weight}.cuh").exists()
    return "" if there else f"weight={weight!r}"
