"""Downward sweep of the merge tree: the saddle where each basin merges, and the basin it joins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from orograph.engines.sweep_problems import Table
from orograph.kernels.terrain.merge_tree import find_heirs
from orograph.terrain.basin_tree import BasinTree, Cells, MergeState, Tree
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable

_NEVER = np.iinfo(np.uint64).max, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Fates:
    """Merges of pits: the saddle at which each basin merges, and the lower pit it merges into."""

    pits: Cells
    died: Cells
    """Saddle at which the basin of each pit merges; if it never does, one after all saddles."""
    heir: Integers
    """Index of the pit into whose basin each pit's basin merges; -1 where it does not."""

    @classmethod
    def lasting(cls, pits: Cells) -> Fates:
        """Return the record of pits that never merge."""
        count = pits.cell.size
        died = Cells(np.full(count, _NEVER[0], np.uint64), np.full(count, _NEVER[1]))
        return cls(pits, died, np.full(count, -1))

    def with_heirs(self, which: Integers) -> Fates:
        """Return the records of some pits, followed by those of all pits they merge into."""
        place = np.full(self.heir.size + 1, -1, np.int64)  # -1 stays what it is
        place[which] = np.arange(which.size)
        taken, found = [which], which.size
        after = which
        while True:
            # Heirs may have heirs in turn: a child needs the whole chain to resolve its own merges.
            after = np.unique(self.heir[after])
            after = after[(after >= 0) & (place[after] < 0)]
            if not after.size:
                break
            place[after] = found + np.arange(after.size)
            found += after.size
            taken.append(after)
        chosen = np.concatenate(taken)
        return Fates(self.pits.take(chosen), self.died.take(chosen), place[self.heir[chosen]])


@dataclass(frozen=True)
class FateTree(BasinTree):
    """Merge tree of basins whose result is a table of pits."""

    dtype: np.dtype[Any]

    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Columns that the engine joins from tiles: none, as a `TableMaker` makes the table."""
    coordinates: ClassVar[tuple[str, ...]] = ()
    """Names of the columns that are coordinates."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """No rasters: the result is a table."""
        return ()

    def down(
        self, place: Place, saved: MergeState, message: Fates, children: Sequence[Place]
    ) -> list[Fates]:
        """Return for each child where its undecided pits merge, and where those they join merge."""
        fates = resolve_fates(saved.tree, message)
        return [fates.with_heirs(member) for member in saved.members]

    def finish(self, place: Place, saved: Any, message: Fates) -> dict[str, Array]:
        """Return no rasters."""
        return {}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Concatenate one column of several tables."""
        return np.concatenate([table[column] for table in tables])


def resolve_fates(tree: Tree, message: Fates) -> Fates:
    """Return the merges of all pits of a node, given those of its undecided pits.

    After the vertices stand others that the message knows beyond them.
    """
    count, kept = tree.pits.cell.size, tree.kept.size
    more = message.heir.size - kept
    # The message has the kept pits first, then those into which they merge further up; the entry -1
    # at the end stands for "does not merge", an index of -1.
    place = np.concatenate([tree.kept, count + np.arange(more), [-1]])
    total = count + more
    pits = Cells(np.empty(total, np.uint64), np.empty(total, np.int64))
    died = Cells(np.full(total, _NEVER[0]), np.full(total, _NEVER[1]))
    heir = np.full(total, -1, np.int64)
    pits.key[:count], pits.cell[:count] = tree.pits.key, tree.pits.cell
    known = place[:-1]
    pits.key[known], pits.cell[known] = message.pits.key, message.pits.cell
    died.key[known], died.cell[known] = message.died.key, message.died.cell
    heir[known] = place[message.heir]
    died.key[tree.dead], died.cell[tree.dead] = tree.saddles.key, tree.saddles.cell
    # The tree knows the lowest basin here of the component that each one met; further up that
    # component may have merged into another before.
    find_heirs(tree.dead, tree.heir, died.key, died.cell, heir)
    return Fates(pits, died, heir)
