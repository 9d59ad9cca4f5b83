"""The table of depressions, a row of shards at a time.

Tiles finish the depressions of the pits that are decided in them. The client makes the *shared*
ones, those of pits that are decided above the tiles, whose number is O(border): it adds up what
the tiles count of their cells, and what depressions of tiles hold that lie in them. Then it joins
the rows of one row of shards at a time, which are a range of the table, and saves them by column as
checkpoints. Until a column is read, links to shared depressions are -2 less their numbers, since
later rows of the table are not numbered yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import Table
from orograph.kernels.terrain.depressions import renumber
from orograph.kernels.terrain.exact_sums import normalise
from orograph.kernels.terrain.order import order_indices
from orograph.terrain.basin_tree import Cells
from orograph.terrain.differences import subtract_heights
from orograph.terrain.fates import Fates, TableSweep
from orograph.terrain.hierarchy import Held, Hierarchy
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

FATES = ("own_pit", "own_key", "died", "died_key", "heir")
"""Columns of pits that are decided above the tiles, and of those that yield to them."""
LINKS = ("parent", "spills_into")
FINISHED = ("elevation", "spill_elevation", "cells", "volume", *LINKS, "pit", "spill")
"""Columns of finished depressions; beside them ``area`` where it is not that of the cells."""
MADE_OF = {
    "elevation": ("elevation",),
    "spill_elevation": ("spill_elevation",),
    "depth": ("elevation", "spill_elevation"),
    "cells": ("cells",),
    "area": ("cells",),
    "volume": ("volume",),
    "parent": ("parent",),
    "spills_into": ("spills_into",),
    "pit": ("pit",),
    "pit_y": ("pit",),
    "pit_x": ("pit",),
    "spill_y": ("spill",),
    "spill_x": ("spill",),
}
"""Of which columns of finished depressions each column of the result is made."""


class Shared(NamedTuple):
    """Depressions of pits that are decided above the tiles, and of those that yield to them."""

    hierarchy: Hierarchy
    finished: Table
    """Columns of those that no tile has finished."""
    pits: dict[Node, list[Integers]]
    """For each table of each shard its pits in the hierarchy."""


@dataclass(frozen=True)
class DepressionSweep(TableSweep):
    """The sweep that makes the table of depressions."""

    def table(self) -> dict[str, tuple[tuple[str, ...], Iterable[Array]]]:
        """Return the columns, in pieces that belong to a row of shards each."""
        shared = self._shared()
        # the row of each shared depression in the table; -1 where it is left out
        rows = np.full(shared.hierarchy.count, -1)
        count, bands = 0, self.bands()
        for band, (lines, nodes) in enumerate(bands):
            columns = self._join(shared, lines, nodes, rows, count)
            count += columns["pit"].size
            for name, column in columns.items():
                self.context.checkpoints.save(f"column-{name}", Node(0, band), column)
        made_of = MADE_OF if "area" not in columns else {**MADE_OF, "area": ("area",)}
        last = {source: name for name, sources in made_of.items() for source in sources}
        table: dict[str, tuple[tuple[str, ...], Iterable[Array]]] = {}
        for name, sources in made_of.items():
            done = {source for source in sources if last[source] == name}
            table[name] = ("depression",), _Column(self, name, sources, done, len(bands), rows)
        return table

    def _shared(self) -> Shared:
        """Return the depressions that no tile could finish, and what they hold."""
        problem: Any = self.problem
        hierarchy, pits, exponents = self._shared_pits()
        height, width = self.rasters[0].shape
        held = hierarchy.nothing(exponents, height * width)
        others = np.ones(hierarchy.count, np.bool_)
        for node in self.shards:
            for table, which in zip(self.rows_of([node]), pits[node], strict=True):
                if "words" in table:
                    others[hierarchy.final[which]] = False
                    self._add(hierarchy, held, table, hierarchy.final[which])
        hierarchy.add_up(held)
        finished = problem.rows_of(hierarchy, held)
        own = others[finished["which"]]
        finished = {name: column[own] for name, column in finished.items()}
        for name, links in zip(LINKS, (hierarchy.found.parent, hierarchy.found.spills_into)):
            to = links[finished["which"]]
            finished[name] = np.where(to < 0, -1, -2 - to)
        return Shared(hierarchy, finished, pits)

    def _shared_pits(self) -> tuple[Hierarchy, dict[Node, list[Integers]], tuple[int, int]]:
        """Return the hierarchy of pits decided above the tiles, and of those that yield to them.

        And for each table of each node its pits in it, and the exponents of the heights of tiles.
        """
        problem: Any = self.problem
        fates: list[Table] = []
        pits: dict[Node, list[Integers]] = {}
        low, high, count = 10000, -10000, 0
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        for node in (node for level in levels for node in self.tree.nodes(level)):
            pits[node] = []
            for table in self.rows_of([node]):
                fates.append({name: table[name] for name in FATES})
                pits[node].append(count + np.arange(table["own_pit"].size))
                count += table["own_pit"].size
                if "words" in table:
                    low, high = min(low, int(table["words"][2])), max(high, int(table["words"][3]))
        columns = {name: np.concatenate([table[name] for table in fates]) for name in FATES}
        del fates
        order = order_indices(columns["own_pit"])
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        pits = {node: [place[which] for which in tables] for node, tables in pits.items()}
        pit, key, saddle, saddle_key, heir = (columns[name][order] for name in FATES)
        died = Cells(saddle_key, saddle)
        heir = np.where(heir >= 0, np.searchsorted(pit, heir), -1)
        own = np.ones(order.size, np.bool_)
        hierarchy: Hierarchy = problem.hierarchy(
            Fates(Cells(key, pit), died, heir), died.order(), own
        )
        least, greatest = hierarchy.exponents(np.empty(0, np.uint64))
        return hierarchy, pits, (min(low, least), max(high, greatest))

    def _add(self, hierarchy: Hierarchy, held: Held, table: Table, final: Integers) -> None:
        """Add what a tile counted to shared depressions; ``final`` are those of its own pits."""
        held.cells[final] += table["held_cells"]
        for sums, low, words in (
            (held.areas, int(table["words"][0]), table["held_areas"]),
            (held.sums, int(table["words"][1]), table["held_sums"]),
        ):
            if words.any():  # where all heights are 0 the words begin anywhere
                start = low - sums.low
                sums.words[final, start : start + words.shape[1]] += words
        pits = hierarchy.pit[hierarchy.final]
        number = hierarchy.find(np.searchsorted(pits, table["of"]), table["height"])
        hierarchy.add(held, number, table["height"], table["count"], table.get("line"))
        for sums in (held.areas, held.sums):
            normalise(sums)

    def _join(
        self, shared: Shared, lines: range, nodes: list[Node], rows: Integers, before: int
    ) -> Table:
        """Return the columns of depressions whose pits lie in some lines of the grid.

        ``before`` rows of the table come before them. Links to shared depressions are -2 less
        their numbers, and ``rows`` learns the rows of those that are among these.
        """
        problem: Any = self.problem
        raster, (found, final) = self.rasters[0], (shared.hierarchy.found, shared.hierarchy.final)
        names = FINISHED if problem.row_areas is None else (*FINISHED, "area")
        line = shared.finished["pit"] // raster.shape[1]
        here = (line >= lines.start) & (line < lines.stop)
        parts = [{name: column[here] for name, column in shared.finished.items()}]
        # shared depressions, and their rows in a part
        known = [(which := parts[0].pop("which"), np.arange(which.size))]
        for node in nodes:
            for table, pits in zip(self.rows_of([node]), shared.pits[node], strict=True):
                if "words" in table:
                    parts.append({name: table[name] for name in names})
                    known.append((final[pits], table["row"]))
        pit = np.concatenate([part["pit"] for part in parts])
        place = np.empty(pit.size, np.int64)
        place[order_indices(pit)] = np.arange(pit.size)
        places = np.split(place, np.cumsum([part["pit"].size for part in parts])[:-1])
        for part, at, (which, row) in zip(parts, places, known, strict=True):
            number = before + at
            rows[which] = np.append(number, -1)[row]
            if part is not parts[0]:
                for name, links in zip(LINKS, (found.parent, found.spills_into)):
                    elsewhere = np.where(links[which] < 0, -1, -2 - links[which])
                    part[name] = renumber(part[name], number, elsewhere)
        columns = {}
        for name in names:
            columns[name] = np.empty(pit.size, parts[0][name].dtype)
            for part, at in zip(parts, places, strict=True):
                columns[name][at] = part.pop(name)
        return columns


@dataclass(frozen=True)
class _Column:
    """A column of the result in pieces, each of which is made once."""

    run: DepressionSweep
    name: str
    sources: tuple[str, ...]
    """The columns of which it is made."""
    done: set[str]
    """Those that no later column needs."""
    bands: int
    rows: Integers

    def __iter__(self) -> Iterator[Array]:
        for node in (Node(0, band) for band in range(self.bands)):
            yield self._make(*(self._load(source, node) for source in self.sources))

    def _load(self, source: str, node: Node) -> Array:
        column: Array | None = self.run.context.checkpoints.load(f"column-{source}", node)
        if column is None:
            raise RunError(
                f"{self.run.problem.name}: a part of the column {source} has been lost since it "
                "was saved; resume=True makes it again"
            )
        if source in self.done:
            self.run.context.checkpoints.drop(f"column-{source}", node)
        return column

    def _make(self, *columns: Array) -> Array:
        if self.name == "depth":
            lowest, highest = columns
            return subtract_heights(highest, lowest)
        (column,) = columns
        if self.name == "area" and self.sources == ("cells",):
            problem: Any = self.run.problem
            areas: Array = column * problem.size_of_cell
            return areas
        if self.name == "pit":
            return column + 1
        if self.name in LINKS:
            later = np.flatnonzero(column <= -2)
            column[later] = self.rows[-2 - column[later]]
        if self.name[-2:] in ("_y", "_x"):
            raster = self.run.rasters[0]
            place, lines = raster.georeference, column // raster.shape[1]
            axis, index = place.y, lines
            if self.name.endswith("_x"):
                axis, index = place.x, column - lines * raster.shape[1]
            places: Array = index.astype(np.float64) if axis is None else axis[index]
            return places
        return column
