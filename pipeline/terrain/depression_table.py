"""Build the table of depressions, one row of shards at a time.

Tiles finish the depressions of the pits that are decided in them. The client makes the *shared*
ones, those of pits that are decided above the tiles, whose number is O(border): it adds up what
the tiles count of their cells, and what depressions of tiles hold that lie in them. Then it joins
the rows of one row of shards at a time, which are a range of the table. Links to shared depressions
are -2 less their numbers until all rows are numbered; those of all but the last row of shards are
checkpoints until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from orograph.engines.quadtree_pass import TableMaker
from orograph.engines.sweep_problems import Table
from orograph.kernels.terrain.depressions import renumber
from orograph.kernels.terrain.differences import subtract_heights
from orograph.kernels.terrain.exact_sums import normalise
from orograph.kernels.terrain.order import order_indices
from orograph.terrain.basin_tree import Cells
from orograph.terrain.fates import Fates
from orograph.terrain.hierarchy import Held, Hierarchy
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.store.create import ColumnsInTurns

FATES = ("own_pit", "own_key", "died", "died_key", "heir")
"""Columns of pits whose merge is decided above the tiles, and of pits that merge into them."""
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
"""Columns of finished depressions from which each column of the result is made."""
DIMENSIONS = ("depression",)


class Shared(NamedTuple):
    """Depressions that span several tiles, and those that merge into them."""

    hierarchy: Hierarchy
    finished: Table
    """Columns of the depressions that no tile has finished."""
    pits: dict[Node, list[Integers]]
    """Numbers in the hierarchy of the pits of each table, by shard."""


class DepressionTable(TableMaker):
    """Builder of the table of depressions."""

    kinds = ("rows", "shared")

    def entries(self, tables: list[Table]) -> dict[str, list[Table]]:
        """Return the checkpoint entries of finished depressions, and of shared ones."""
        entries: dict[str, list[Table]] = {"rows": [], "shared": []}
        for table in tables:
            own = {"row", "area", *FINISHED} & table.keys()
            entries["rows"].append({name: table[name] for name in own})
            entries["shared"].append({name: table[name] for name in table.keys() - own})
        return entries

    def table(self) -> ColumnsInTurns:
        """Return the table's columns, in pieces of one row of shards each."""
        return ColumnsInTurns(dict.fromkeys(MADE_OF, DIMENSIONS), self._pieces_of_columns())

    def _pieces_of_columns(self) -> Iterator[tuple[str, Array, bool]]:
        """Yield (column name, piece, whether it is the column's last) for all columns.

        All columns of a row of shards come before those of the next, but links at the end.
        """
        shared = self._shared()
        # the row of each shared depression in the table; -1 where it is left out
        rows = np.full(shared.hierarchy.count, -1)
        count, bands = 0, self.run.bands()
        links: Table = {}
        for band, (lines, nodes) in enumerate(bands):
            columns = self._join(shared, lines, nodes, rows, count)
            count += columns["pit"].size
            links = {name: columns.pop(name) for name in LINKS}
            is_last = band == len(bands) - 1
            if not is_last:
                self.run.context.checkpoints.save("links", Node(0, band), links)
            for name, piece in self._pieces(columns):
                yield name, piece, is_last
        for band in range(len(bands)):
            is_last = band == len(bands) - 1
            if not is_last:
                part = self.run.context.checkpoints.load("links", Node(0, band))
                if part is None:
                    raise RunError(
                        f"{self.run.problem.name}: a part of the columns parent and spills_into "
                        "has been lost since it was saved; resume=True makes it again"
                    )
                self.run.context.checkpoints.drop("links", Node(0, band))
            else:
                part = links
            for name in LINKS:
                column = part.pop(name)
                later = np.flatnonzero(column <= -2)
                column[later] = rows[-2 - column[later]]
                yield name, column, is_last

    def _pieces(self, columns: Table) -> Iterator[tuple[str, Array]]:
        """Yield the result's columns except links, removing ``columns`` no longer needed."""
        made_of = MADE_OF if "area" not in columns else {**MADE_OF, "area": ("area",)}
        # The last column that is made of each source, after which that is dropped.
        last = {source: name for name, sources in made_of.items() for source in sources}
        for name, sources in made_of.items():
            if name not in LINKS:
                yield name, self._make(name, *(columns[source] for source in sources))
            for source in sources:
                if last[source] == name:
                    columns.pop(source, None)

    def _shared(self) -> Shared:
        """Combine the tiles' counts into the depressions that span several tiles."""
        problem: Any = self.run.problem
        hierarchy, pits, exponents = self._shared_pits()
        height, width = self.run.rasters[0].shape
        held = hierarchy.nothing(exponents, height * width)
        others = np.ones(hierarchy.count, np.bool_)
        for node in self.run.shards:
            for table, which in zip(self.run.rows_of([node], "shared"), pits[node], strict=True):
                if "words" in table:
                    # Pits that a tile lists are rows of that tile already; those of nodes get their
                    # rows here.
                    others[hierarchy.final[which]] = False
                    self._add(hierarchy, held, table, hierarchy.final[which])
        hierarchy.add_up(held)
        finished = problem.rows_of(hierarchy, held)
        own = others[finished["which"]]
        finished = {name: column[own] for name, column in finished.items()}
        for name, links in zip(LINKS, (hierarchy.found.parent, hierarchy.found.spills_into)):
            to = links[finished["which"]]
            finished[name] = np.where(to < 0, -1, -2 - to)
        return Shared(hierarchy, self._as_stored(finished), pits)

    def _as_stored(self, columns: Table) -> Table:
        """Return columns with row-major indices of cells in the grid, not in the turned one."""
        problem: Any = self.run.problem
        turn, shape = problem.orientation.turn_cells, self.run.rasters[0].shape
        return {**columns, **{name: turn(columns[name], shape) for name in ("pit", "spill")}}

    def _shared_pits(self) -> tuple[Hierarchy, dict[Node, list[Integers]], tuple[int, int]]:
        """Return the hierarchy of depressions that span tiles or merge into such.

        Return too, for each table of each node, its pits in it, and the exponents of the heights.
        """
        problem: Any = self.run.problem
        fates: list[Table] = []
        pits: dict[Node, list[Integers]] = {}
        # As `find_exponents` has them for zeros alone: beyond the exponents of all heights.
        low, high, count = 10000, -10000, 0
        levels = range(self.run.context.shard_level, self.run.tree.root.level + 1)
        for node in (node for level in levels for node in self.run.tree.nodes(level)):
            pits[node] = []
            for table in self.run.rows_of([node], "shared"):
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
        """Add the cells that one tile counted to the totals of shared depressions."""
        held.cells[final] += table["held_cells"]
        for sums, low, words in (
            (held.areas, int(table["words"][0]), table["held_areas"]),
            (held.sums, int(table["words"][1]), table["held_sums"]),
        ):
            if words.any():  # where all heights are 0 the words begin anywhere
                # The words of the tile begin at another exponent than those of the totals.
                start = low - sums.low
                sums.words[final, start : start + words.shape[1]] += words
        pits = hierarchy.pit[hierarchy.final]
        number = hierarchy.find(np.searchsorted(pits, table["of"]), table["height"])
        hierarchy.add(held, number, table["height"], table["count"], table.get("line"))
        for sums in (held.areas, held.sums):
            # Carries are passed on after each tile, so that no word of 64 bits overflows.
            normalise(sums)

    def _join(
        self, shared: Shared, lines: range, nodes: list[Node], rows: Integers, before: int
    ) -> Table:
        """Return the columns of depressions whose pits lie in a range of grid rows, sorted.

        ``before`` rows of the table come before them. Links to shared depressions are -2 less
        their numbers, and ``rows`` learns the rows of those that are among these.
        """
        problem: Any = self.run.problem
        raster, found, final = self.run.rasters[0], shared.hierarchy.found, shared.hierarchy.final
        names = FINISHED if problem.row_areas is None else (*FINISHED, "area")
        line = shared.finished["pit"] // raster.shape[1]
        here = (line >= lines.start) & (line < lines.stop)
        parts = [{name: column[here] for name, column in shared.finished.items()}]
        # shared depressions, and their rows in a part
        known = [(which := parts[0].pop("which"), np.arange(which.size))]
        for node in nodes:
            for table, pits in zip(self.run.rows_of([node]), shared.pits[node], strict=True):
                if "row" in table:
                    parts.append(self._as_stored({name: table[name] for name in names}))
                    known.append((final[pits], table["row"]))
        pit = np.concatenate([part["pit"] for part in parts])
        place = np.empty(pit.size, np.int64)
        place[order_indices(pit)] = np.arange(pit.size)
        places = np.split(place, np.cumsum([part["pit"].size for part in parts])[:-1])
        for part, at, (which, row) in zip(parts, places, known, strict=True):
            number = before + at
            # -1, of depressions that the table leaves out, picks the -1 appended at the end.
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

    def _make(self, name: str, *columns: Array) -> Array:
        """Compute one column of the result, such as depth or coordinates, from stored ones."""
        if name == "depth":
            lowest, highest = columns
            return subtract_heights(highest, lowest)
        (column,) = columns
        if name == "area" and column.dtype.kind == "i":
            problem: Any = self.run.problem
            areas: Array = column * problem.size_of_cell
            return areas
        if name == "pit":
            return column + 1
        if name[-2:] in ("_y", "_x"):
            raster = self.run.rasters[0]
            place, lines = raster.georeference, column // raster.shape[1]
            axis, index = place.y, lines
            if name.endswith("_x"):
                axis, index = place.x, column - lines * raster.shape[1]
            places: Array = index.astype(np.float64) if axis is None else axis[index]
            return places
        return column
