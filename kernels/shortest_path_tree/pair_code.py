"""Pairs (label, hops) as single numbers: the place of a label among those known, above the hops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import RunError

Integers = npt.NDArray[np.int64]
NOBODY = np.int64(2**62)
_NO_LABELS: Integers = np.empty(0, np.int64)


class PairCode:
    """Pairs (label, hops) as single numbers, in the same order: int64, ``NOBODY`` for none.

    The labels of a tile have numbers in their order, and so may need others when there are more of
    them (`admit`).

    Parameters
    ----------
    cells : int
        Cells of the grid: no path has as many steps.
    labels : (n,) int64
        Those that are known from the first, ascending.
    """

    def __init__(self, cells: int, labels: Integers = _NO_LABELS) -> None:
        self.bits = (2 * cells).bit_length()  # of hops; no path found on the way has more
        self.labels = labels
        self._check()

    def _check(self) -> None:
        if self.labels.size << self.bits > NOBODY:
            raise RunError(
                f"sources: a tile has {self.labels.size} labels, and at most "
                f"{NOBODY >> self.bits} can be told apart on so large a grid: give smaller tiles"
            )

    def admit(self, labels: Integers, pairs: Integers) -> None:
        """Number labels among those known, and change the numbers in ``pairs`` accordingly."""
        new = np.unique(labels)
        places = (np.searchsorted(self.labels, new, side) for side in ("left", "right"))
        new = new[np.equal(*places)]
        if not new.size:
            return
        before = self.labels
        self.labels = np.union1d(before, new)
        self._check()
        more = np.searchsorted(self.labels, before) - np.arange(before.size)
        if more.any():
            known = pairs < NOBODY
            pairs[known] += (more << self.bits)[pairs[known] >> self.bits]

    def pairs(self, labels: Integers, hops: Integers) -> Integers:
        """Return pairs; the labels are known, or ``NOBODY``."""
        pairs = (np.searchsorted(self.labels, labels) << self.bits) | hops
        return np.where(labels < NOBODY, pairs, NOBODY)

    def labels_and_hops(self, pairs: Integers) -> tuple[Integers, Integers]:
        """Return the labels and hops of pairs, ``NOBODY`` both for none."""
        known = pairs < NOBODY
        labels, hops = np.full((2, *pairs.shape), NOBODY)
        labels[known] = self.labels[pairs[known] >> self.bits]
        hops[known] = pairs[known] & ((1 << self.bits) - 1)
        return labels, hops
