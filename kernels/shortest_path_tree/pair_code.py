"""Pairs (label, hops) encoded as integers: rank of the label in the high bits, hops in the low."""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.relax.models import BARRIER
from orograph.tiles.arrays import Integers
from orograph.tiles.errors import RunError

NOBODY = np.int64(2**62)
_NO_LABELS: Integers = np.empty(0, np.int64)


class PairCode:
    """Pairs (label, hops) as single numbers, in the same order: int64, ``NOBODY`` for none.

    The labels of a tile have ranks in their order, and so may need others when there are more of
    them (`admit`). Those of a run that are known from the first need none (`code_of_run`).

    Parameters
    ----------
    hop_bits : int
        How many low bits of a pair are hops.
    labels : (n,) int64 or None
        Those that are known, ascending; None: all whole numbers from ``least`` on.
    least : int
    """

    def __init__(self, hop_bits: int, labels: Integers | None = _NO_LABELS, least: int = 0) -> None:
        self.hop_bits = hop_bits
        self.labels = labels
        self.least = least

    @classmethod
    def of_tile(cls, cells: int, labels: Integers = _NO_LABELS) -> PairCode:
        """Return the code of a tile in a grid of that size, before other labels are admitted.

        No path has more hops than cells, and one that was found before a tile was lost, and goes on
        in the tile that is made again, less than twice as many.
        """
        code = cls((2 * cells).bit_length(), labels)
        code._check()
        return code

    def _check(self) -> None:
        assert self.labels is not None
        if self.labels.size << self.hop_bits > NOBODY:
            raise RunError(
                f"sources: a tile has {self.labels.size} labels, and at most "
                f"{NOBODY >> self.hop_bits} can be told apart on so large a grid: give smaller "
                "tiles"
            )

    def admit(self, labels: Integers, pairs: Integers) -> None:
        """Add labels to the ranking, and re-encode the numbers in ``pairs``."""
        before = self.labels
        assert before is not None
        new = np.unique(labels)
        places = (np.searchsorted(before, new, side) for side in ("left", "right"))
        # A label is known if its places on the left and on the right differ.
        new = new[np.equal(*places)]
        if not new.size:
            return
        self.labels = np.union1d(before, new)
        self._check()
        # How many new labels come before each old one, by which its rank rises.
        more = np.searchsorted(self.labels, before) - np.arange(before.size)
        if more.any():
            known = pairs < NOBODY
            pairs[known] += (more << self.hop_bits)[pairs[known] >> self.hop_bits]

    def pairs(self, labels: Integers, hops: Integers | int) -> Integers:
        """Return pairs; the labels are known, or ``NOBODY``."""
        ranks = labels - self.least
        if self.labels is not None:
            ranks = np.searchsorted(self.labels, labels)
        return np.where(labels < NOBODY, (ranks << self.hop_bits) | hops, NOBODY)

    def labels_and_hops(self, pairs: Integers) -> tuple[Integers, Integers]:
        """Return the labels and hops of pairs, ``NOBODY`` both for none."""
        known = pairs < NOBODY
        labels, hops = np.full((2, *pairs.shape), NOBODY)
        ranks = pairs[known] >> self.hop_bits
        labels[known] = ranks + self.least if self.labels is None else self.labels[ranks]
        hops[known] = pairs[known] & ((1 << self.hop_bits) - 1)
        return labels, hops


def code_of_run(cells: int, known: Integers | None, dtype: np.dtype[Any]) -> PairCode | None:
    """Return one code for all tiles of a run, or None if pairs may not stay below ``BARRIER``.

    Hops that pass their bits, after a tile was lost, make a pair of a higher rank: it is improved
    by that of the shortest path as any other.

    Parameters
    ----------
    cells : int
        Cells of the grid: a path has no more.
    known : (n,) int64 or None
        The labels of all sources, if they are known.
    dtype : dtype
        Of the labels: otherwise any of its values may be one.
    """
    hop_bits = cells.bit_length()
    if dtype.kind in "iu" and dtype.itemsize < 8:
        values = np.iinfo(dtype)
        if (int(values.max) - int(values.min) + 1) << hop_bits <= BARRIER:
            return PairCode(hop_bits, None, int(values.min))
    if known is None:
        return None
    labels = np.unique(known)
    return PairCode(hop_bits, labels) if labels.size << hop_bits <= BARRIER else None
