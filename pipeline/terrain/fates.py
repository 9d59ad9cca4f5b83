"""Downward sweep of the merge tree: the saddle where each basin merges, and the basin it joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import QuadtreePass, Table, Tabulated
from orograph.kernels.terrain.merge_tree import find_heirs
from orograph.terrain.basin_tree import BasinTree, Cells, MergeState, Tree
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.store.create import Variable

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
_NEVER = np.iinfo(np.uint64).max, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Fates:
    """Merges of some pits, and of all pits that they join in the end."""

    pits: Cells
    died: Cells
    """The saddle at which each yields; after all saddles where it does not."""
    heir: Integers
    """To which of them it yields: the lowest pit of what it meets there; -1 where it does not."""

    @classmethod
    def lasting(cls, pits: Cells) -> Fates:
        """Return the merges of pits that never merge."""
        count = pits.cell.size
        died = Cells(np.full(count, _NEVER[0], np.uint64), np.full(count, _NEVER[1]))
        return cls(pits, died, np.full(count, -1))

    def with_heirs(self, which: Integers) -> Fates:
        """Return the merges of some pits, in this order, then those of the pits they join."""
        place = np.full(self.heir.size + 1, -1, np.int64)  # -1 stays what it is
        place[which] = np.arange(which.size)
        taken, found = [which], which.size
        after = which
        while True:
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
    """A merge tree of which a table of pits is made."""

    dtype: np.dtype[Any]

    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The engine makes the table itself, of all rows."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of the result: none."""
        return ()

    def down(
        self, place: Place, saved: MergeState, message: Fates, children: Sequence[Place]
    ) -> list[Fates]:
        """Return the fates of the children's pits, and of those to which these yield."""
        fates = resolve_fates(saved.tree, message)
        return [fates.with_heirs(member) for member in saved.members]

    def finish(self, place: Place, saved: Any, message: Fates) -> dict[str, Array]:
        """Return no raster."""
        return {}

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return a column of some tables, in their order."""
        return np.concatenate([table[column] for table in tables])


@dataclass(frozen=True)
class TableSweep(QuadtreePass):
    """A sweep whose table is made of all rows at once."""

    @property
    def tabulated(self) -> Tabulated:
        """The problem, though the columns of the table are the engine's."""
        tabulated: Tabulated = self.problem  # type: ignore[assignment]
        return tabulated

    def table(self) -> dict[str, tuple[tuple[str, ...], Iterable[Array]]]:
        """Return the columns."""
        raise NotImplementedError

    def all_rows(self) -> Iterator[Table]:
        """Return the rows of all nodes, a table at a time."""
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        for level in levels:
            yield from self.rows_of(self.tree.nodes(level))


def resolve_fates(tree: Tree, message: Fates) -> Fates:
    """Return the fates of all of a node's vertices, from those that it handed up.

    After the vertices stand others that the message knows beyond them.
    """
    count, kept = tree.pits.cell.size, tree.kept.size
    more = message.heir.size - kept
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
    find_heirs(tree.dead, tree.heir, died.key, died.cell, heir)
    return Fates(pits, died, heir)
