"""Build the hierarchy of depressions from the merges of pits, with areas and volumes."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.forest.order_keys import decode_keys
from orograph.terrain.basin_tree import Cells

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


class Pits(NamedTuple):
    """Pits, the saddles at which they yield, and the pits to which they do."""

    pits: Cells
    spills: Cells
    heir: Integers
    """Cell of the pit; negative for the outside."""


class Hierarchy:
    """Depressions in the order of their pits, those of one pit from the inside out.

    The water above a pit rises until it meets other water; then the depression is full, and a
    larger one begins, which is that of the lower of the two pits. Waters that meet at one height
    make one larger depression, however many they are. So a pit has a depression for each height at
    which others yield to it, and one more, which ends where it yields itself.

    ``areas`` are those of a cell of each row of the grid; without them each cell counts as one.
    """

    def __init__(
        self, given: Pits, dtype: np.dtype[Any], areas: npt.NDArray[np.float64] | None = None
    ) -> None:
        self.dtype = dtype
        mantissa, exponent = np.frexp(np.ones(1) if areas is None else areas)
        self._area_unit = 53 - int(exponent.min())  # areas are multiples of 2**-unit
        wholes = np.ldexp(mantissa, 53).astype(np.int64).tolist()
        powers = (exponent - exponent.min()).tolist()
        self._areas = [whole << power for whole, power in zip(wholes, powers, strict=True)]
        order = np.argsort(given.pits.cell)
        pits, spills = given.pits.take(order), given.spills.take(order)
        heir = given.heir[order]
        inside = heir >= 0
        heir = np.where(inside, np.searchsorted(pits.cell, heir), -1)
        n = pits.cell.size
        self._cells = pits.cell

        # meetings by (pit, height, cell, lowest pit first); those at the end are not a boundary
        lost = np.flatnonzero(inside)
        lost = lost[
            np.lexsort(
                (pits.cell[lost], pits.key[lost], spills.cell[lost], spills.key[lost], heir[lost])
            )
        ]
        by, height = heir[lost], spills.key[lost]
        new = np.append(True, (np.diff(by) != 0) | (np.diff(height) != 0))[: lost.size]
        met, by, height = lost[new], by[new], height[new]
        last = height == spills.key[by]
        self._levels = np.unique(height)
        self._bounds = self._place(by[~last], height[~last])
        self._first = np.arange(n + 1) + np.concatenate(
            [[0], np.cumsum(np.bincount(by[~last], minlength=n))]
        )

        count = int(self._first[-1])
        owner = np.repeat(np.arange(n), np.diff(self._first))
        final = self._first[1:] - 1
        self.pit, self.pit_key = pits.cell[owner], pits.key[owner]
        self.level, self.spill = np.empty(count, np.uint64), np.empty(count, np.int64)
        self.parent, self.spills_into = np.full(count, -1), np.full(count, -1)

        # those that end where another yields
        full = np.delete(np.arange(count), final)
        self.level[full], self.spill[full] = height[~last], spills.cell[met[~last]]
        self.parent[full] = full + 1
        self.spills_into[full] = final[met[~last]]

        # those that end where their own pit yields: to what is joined there in the end
        self.level[final], self.spill[final] = spills.key, spills.cell
        after = heir.copy()
        while True:
            on = np.flatnonzero(after >= 0)
            on = on[spills.key[after[on]] == spills.key[on]]
            if not on.size:
                break
            after[on] = heir[after[on]]
        known = after >= 0
        self.parent[final[known]] = self.at(after[known], spills.key[known])
        known = heir >= 0
        self.spills_into[final[known]] = self.at(heir[known], spills.key[known], below=True)
        # another yields at the same height, at an earlier cell
        at, other = by[last], met[last]
        earlier = spills.cell[other] < spills.cell[at]
        at, other = at[earlier], other[earlier]
        self.spill[final[at]] = spills.cell[other]
        self.spills_into[final[at]] = final[other]

        self._count = np.zeros(count, np.int64)
        self._area = [0] * count
        self._sum = [0] * count  # of heights times areas, exactly, in units of 2**-unit
        # the least positive value of the dtype is a multiple of 2**-unit, by its 53-bit mantissa
        self._unit = 0 if dtype.kind in "iu" else 201 if dtype.itemsize == 4 else 1126

    def _place(
        self, pit: Integers, height: Keys, side: Literal["left", "right"] = "left"
    ) -> Integers:
        """Return numbers in the order of (pit, height); side as of `numpy.searchsorted`."""
        rank = np.searchsorted(self._levels, height, side)
        places: Integers = pit * (self._levels.size + 1) + rank
        return places

    def at(self, pit: Integers, height: Keys, below: bool = False) -> Integers:
        """Return the depressions of pits that hold a height, or ``below`` it end there or later."""
        if below:
            passed = np.searchsorted(self._bounds, self._place(pit, height))
        else:
            passed = np.searchsorted(self._bounds, self._place(pit, height, "right"))
        depressions: Integers = passed + pit
        return depressions

    def add(
        self, pit: Integers, height: Keys, count: Integers, row: Integers | None = None
    ) -> None:
        """Add cells: their pit, height and count, and their row if areas are given."""
        row = np.zeros(pit.size, np.int64) if row is None else row
        number = self.at(np.searchsorted(self._cells, pit), height)
        np.add.at(self._count, number, count)
        whole, exponent = self._integers(height)
        order = np.lexsort((exponent, row, number))
        number, exponent, row = number[order], exponent[order], row[order]
        whole, count = whole[order], count[order]
        other = (np.diff(number) != 0) | (np.diff(exponent) != 0) | (np.diff(row) != 0)
        new = np.append(True, other)[: number.size]
        start = np.flatnonzero(new)
        if not start.size:
            return
        # two parts of 32 bits, whose sums over a shard, of at most 2**32 cells, cannot overflow
        high = np.add.reduceat((whole >> 32) * count, start)
        low = np.add.reduceat((whole & 0xFFFFFFFF).view(np.uint64) * count.view(np.uint64), start)
        cells = np.add.reduceat(count, start)
        parts = (number[start], exponent[start], row[start], cells, high, low)
        for at, power, y, n, a, b in zip(*(part.tolist() for part in parts), strict=True):
            area = self._areas[y]
            self._area[at] += n * area
            self._sum[at] += (((a << 32) + b) << (power + self._unit)) * area

    def _integers(self, keys: Keys) -> tuple[Integers, npt.NDArray[np.int32]]:
        """Return integers and powers of two whose products are heights, up to a constant.

        Volumes do not depend on the constant; for unsigned heights it is 2**63.
        """
        if self.dtype.kind in "iu":
            return decode_keys(keys, np.int64), np.zeros(keys.size, np.int32)
        mantissa, exponent = np.frexp(decode_keys(keys, self.dtype).astype(np.float64))
        return np.ldexp(mantissa, 53).astype(np.int64), exponent - 53

    def totals(self) -> tuple[Integers, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the cells below the spill level of each depression, their area and volume."""
        count, area, height = self._count.tolist(), list(self._area), list(self._sum)
        parent = self.parent.tolist()
        # a parent ends above what lies in it
        for number in np.argsort(self.level, kind="stable").tolist():
            if parent[number] >= 0:
                count[parent[number]] += count[number]
                area[parent[number]] += area[number]
                height[parent[number]] += height[number]
        wholes, powers = self._integers(self.level)
        volume = np.empty(len(count))
        for number, (whole, power) in enumerate(zip(wholes.tolist(), powers.tolist(), strict=True)):
            level = whole << (power + self._unit)
            whole_volume = area[number] * level - height[number]
            volume[number] = _ratio(whole_volume, self._unit + self._area_unit)
        areas = np.array([_ratio(n, self._area_unit) for n in area], np.float64)
        return np.array(count, np.int64), areas, volume


def _ratio(whole: int, unit: int) -> float:
    """Return a multiple of 2**-unit, rounded; infinity if it overflows."""
    try:
        return whole / (1 << unit)
    except OverflowError:
        return math.inf
