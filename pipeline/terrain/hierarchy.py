"""Build the nested depressions of pits whose merges are known, and sum up their volumes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.forest.order_keys import decode_keys
from orograph.kernels.terrain import depressions, exact_sums
from orograph.kernels.terrain.differences import subtract_keys, within_bounds
from orograph.kernels.terrain.exact_sums import Areas, Sums
from orograph.terrain.fates import Fates
from orograph.tiles.arrays import Array, Integers, Keys, Selection

# Significant bits of a height, and of an area, which is a float64.
HEIGHT_BITS = {exact_sums.INTEGERS: 64, exact_sums.DOUBLES: 53, exact_sums.SINGLES: 24}
AREA_BITS = 53


class Held(NamedTuple):
    """Cells, areas and sums of height times area of each depression, as exact sums."""

    cells: Integers
    areas: Sums
    """Area of each depression, an exact sum; of no words where each cell counts as one."""
    sums: Sums

    def take(self, which: Selection) -> Held:
        """Return the totals of some depressions."""
        areas, sums = (Sums(s.low, s.words[which]) for s in (self.areas, self.sums))
        return Held(self.cells[which], areas, sums)

    def sum_by(self, group: Integers, groups: int) -> Held:
        """Return the totals of groups of depressions."""
        totals = []
        for numbers in (self.cells, self.areas.words, self.sums.words):
            totals.append(np.zeros((groups, *numbers.shape[1:]), np.int64))
            np.add.at(totals[-1], group, numbers)
        cells, areas, sums = totals
        return Held(cells, Sums(self.areas.low, areas), Sums(self.sums.low, sums))


class Hierarchy:
    """Nested depressions of a set of pits.

    Parameters
    ----------
    fates
        Of all pits; an heir of -1 is the outside.
    order
        The pits by the saddles at which they yield, from the lowest on.
    own
        Those whose depressions these are; all that yield to one of them are among them.
    dtype
        Of the heights.
    areas
        Of a cell of each row of the grid; without them each cell counts as one.
    """

    def __init__(
        self,
        fates: Fates,
        order: Integers,
        own: npt.NDArray[np.bool_],
        dtype: np.dtype[Any],
        areas: Areas | None,
    ) -> None:
        self.dtype, self.order, self.areas = dtype, order, areas
        self.kind = exact_sums.kind_of(dtype)
        pits, died = fates.pits, fates.died
        self.found = depressions.list_depressions(
            order, own, fates.heir, pits.key, pits.cell, died.key, died.cell
        )
        self.count = self.found.level.size
        self.final = self.found.first[1:] - 1
        """Index of the outermost depression of each pit, which ends where its basin merges."""
        owner = np.repeat(np.arange(own.size), np.diff(self.found.first))
        self.pit, self.pit_key = pits.cell[owner], pits.key[owner]

    def find(self, pit: Array, height: Keys) -> Integers:
        """Return for each cell, by pit and height, the smallest depression it lies in, or -1."""
        return depressions.find_depressions(self.found, pit, height)

    def exponents(self, heights: Keys) -> tuple[int, int]:
        """Return the least and greatest binary exponent of the heights and spill levels."""
        low, high = zip(
            exact_sums.find_exponents(heights, self.kind),
            exact_sums.find_exponents(self.found.level, self.kind),
            strict=True,
        )
        return min(low), max(high)

    def nothing(self, exponents: tuple[int, int], cells: int) -> Held:
        """Return zero totals for all depressions, sized for a number of cells and heights."""
        count, (least, greatest) = self.count, exponents
        if least > greatest:  # all heights are 0
            least = greatest = 0
        # A sum over n cells is less than 2**bit_length(n) times the greatest term.
        bits = cells.bit_length() + HEIGHT_BITS[self.kind]
        areas = Sums(0, np.empty((count, 0), np.int64))
        if self.areas is not None:
            low, high = int(self.areas.exponent.min()), int(self.areas.exponent.max())
            areas = Sums.zeros(count, low, high, cells.bit_length() + AREA_BITS)
            least, greatest, bits = least + low, greatest + high, bits + AREA_BITS
        sums = Sums.zeros(count, least, greatest, bits)
        return Held(np.zeros(count, np.int64), areas, sums)

    def add(
        self,
        held: Held,
        number: Integers,
        height: Keys,
        count: Integers | None = None,
        row: Integers | None = None,
    ) -> None:
        """Add cells of given heights, one or ``count`` each, to their depressions' totals."""
        exact_sums.add_cells(number, height, self.kind, *held, count, self.areas, row)

    def add_up(self, held: Held) -> None:
        """Add the totals of each depression to those of the depressions that contain it."""
        found = self.found
        # In the order in which pits merge, so that each depression is complete before its parent.
        exact_sums.add_up(self.order, found.first, found.parent, *held)

    def columns(self, held: Held, cell_area: float, least: tuple[float, float]) -> dict[str, Array]:
        """Return table columns of the depressions of a minimum depth and area.

        ``area`` is among them where cells of a row have areas of their own.
        """
        level = self.found.level
        top, bottom = (decode_keys(keys, self.dtype) for keys in (level, self.pit_key))
        columns = {
            "elevation": bottom,
            "spill_elevation": top,
            "cells": held.cells,
            "pit": self.pit,
            "spill": self.found.spill,
        }
        if self.areas is not None:
            columns["area"] = exact_sums.round_sums(held.areas) * cell_area
        which = np.arange(self.count)
        if any(least):
            area = columns.get("area", held.cells * cell_area)
            depth = subtract_keys(level, self.pit_key, self.dtype)
            which = np.flatnonzero(within_bounds(depth, least[0]) & (area >= least[1]))
            columns = {name: column[which] for name, column in columns.items()}
            level = level[which]
        volume = exact_sums.round_volumes(which, level, self.kind, *held)
        with np.errstate(over="ignore"):
            volume *= cell_area
        return {"which": which, "volume": volume, **columns}
