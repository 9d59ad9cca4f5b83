"""Water levels: the sweep problem that `fill_depressions` and `flood_level` share.

Both ask for the least greatest height on any path between a cell and the outside, into which
outlets drain, or from which water comes. On the way up the merge tree is made. On the way down the
level of each basin is known and heights are read a second time: a cell below the level of its basin
lies under water.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import Sources, is_source
from orograph.kernels.backends import get_backend
from orograph.kernels.forest.order_keys import decode_keys
from orograph.kernels.stages import kernel
from orograph.kernels.terrain import merge_tree
from orograph.kernels.terrain.differences import subtract_keys, within_bounds
from orograph.terrain.basin_tree import (
    OUTSIDE,
    BasinTree,
    Cells,
    LeafState,
    MergeState,
    Summary,
    Terminals,
    Tree,
    cells_at_edge,
)
from orograph.tiles.arrays import Array, Columns, Keys
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Variable

TileState = tuple[LeafState, Array]


@dataclass(frozen=True)
class Levels(Columns):
    """Water level of each basin, and whether water reaches it."""

    level: Keys
    reached: npt.NDArray[np.bool_]
    pits: Cells
    """Lowest cell under the same water as each basin."""


class Marks(NamedTuple):
    """Marks of cells in a raster: those that are neither 0 nor nodata, or have some values."""

    nodata: float | int | None
    values: tuple[float, ...] | None
    """Values that count; None: all but 0 and nodata."""


@dataclass(frozen=True)
class Outlets:
    """Cells where water leaves the grid, or ends."""

    points: Sources | None
    """Cells that are given as points."""
    marked: tuple[Marks, ...]
    """Marks of such cells in further rasters."""
    closed: bool
    """Whether none leaves at the edge of the grid, or flows into nodata."""

    def within(
        self, window: Window, frame: Window, cells: Sequence[Array]
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of these cells in a window; ``cells`` are those of the rasters."""
        found = np.zeros(window.shape, np.bool_)
        for marks, given in zip(self.marked, cells, strict=True):
            found |= is_source(given[window.within(frame)], *marks)
        if self.points is not None:
            y, x = self.points.rows - window.y, self.points.columns - window.x
            here = (y >= 0) & (y < window.height) & (x >= 0) & (x < window.width)
            found[y[here], x[here]] = True
        return found


@dataclass(frozen=True)
class WaterLevel(BasinTree):
    """Water levels as a problem of the quadtree sweep."""

    name: str
    outputs: tuple[Variable, ...]
    """Rasters of the result: heights under water, ``depth`` and ``depression``, or some of them."""
    points: Sources | None = None
    """Cells that drain, given as points."""
    marked: tuple[Marks, ...] = ()
    """Marks of cells that drain in further rasters."""
    nodata_drains: bool = False
    """Whether the cells at the edge and beside nodata drain."""
    max_depth: float = np.inf
    dry: float | int | None = None
    """Value of cells that no water reaches; None: they stay as they are."""

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return the cells of a tile that drain into the outside, or where water enters."""
        parts = []
        if self.nodata_drains:
            parts.append(cells_at_edge(place, labels, self.connectivity))
        if self.points is not None:
            parts.append(np.unique(self.cells_in(place, self.points.rows, self.points.columns)[1]))
        for marks, given in zip(self.marked, others, strict=True):
            marked = is_source(get_backend(self.backend).to_host(given), *marks)
            parts.append(np.flatnonzero(marked & (labels > 0)))
        cells = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        return Terminals(cells, np.full(cells.size, OUTSIDE))

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        return {"connectivity": self.connectivity}

    def root(self, summary: Summary) -> tuple[Levels, dict[str, Any]]:
        """Return the level of the outside, lower than any height, and the result attributes."""
        count = summary.pits.cell.size
        levels = Levels(np.zeros(count, np.uint64), np.ones(count, np.bool_), summary.pits)
        return levels, self.known_attributes

    def down(
        self, place: Place, saved: MergeState, message: Levels, children: Sequence[Place]
    ) -> list[Levels]:
        """Return the water levels of each child's basins."""
        levels = _spread(saved.tree, message)
        return [levels.take(member) for member in saved.members]

    def reread(self, place: Place, saved: LeafState, *cells: Array) -> TileState:
        """Return the saved state of a tile together with its heights, read again."""
        heights = self.turn(cells[0])
        return self.with_labels(saved, heights), heights

    def finish(self, place: Place, saved: TileState, message: Levels) -> dict[str, Array]:
        """Raise the cells of a tile to the water level; return the requested rasters."""
        state, heights = saved
        labels, dtype = state.labels, heights.dtype
        # Terminals stand after the pits and have no cells in the tile.
        count = int((state.tree.pits.cell >= 0).sum())
        water = _spread(state.tree, message).take(slice(count))
        height = decode_keys(water.level, dtype)
        wet = water.reached
        if self.max_depth < np.inf:
            depth = subtract_keys(water.level, water.pits.key, dtype)
            # A depression that is too deep is not filled at all; its depth is that of its lowest
            # cell.
            wet = wet & within_bounds(depth, most=self.max_depth)
        lowest = -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
        # Entry 0 is of nodata. The lowest level raises no cell: dry basins stay as they are.
        levels = np.full(count + 1, lowest, dtype)
        levels[1:][wet] = height[wet]
        filled = kernel("raise_cells", self.backend)(heights, labels, levels)
        names = {variable.name for variable in self.outputs}
        if self.dry is None and names.isdisjoint(("depth", "depression")):
            # a GPU encodes what it has raised
            return dict.fromkeys(names, self.turn(filled))
        filled, heights = map(get_backend(self.backend).to_host, (filled, heights))
        arrays = {}
        if "depth" in names:
            if dtype.kind in "iu":  # without overflow, and exactly where float64 has gaps
                raised = (filled - heights).view(f"u{dtype.itemsize}").astype(np.float64)
            else:
                raised = filled.astype(np.float64)
                with np.errstate(invalid="ignore"):  # where heights are infinite
                    raised -= heights
            raised[labels == 0] = np.nan
            arrays["depth"] = raised
        if "depression" in names:
            number = np.append(0, self.orientation.turn_cells(water.pits.cell, place.grid) + 1)
            arrays["depression"] = np.where(filled > heights, number[labels], 0)
        if self.dry is not None:
            filled[np.append(True, ~water.reached)[labels]] = self.dry
        for name in names - arrays.keys():
            arrays[name] = filled
        return {name: self.turn(array) for name, array in arrays.items()}


def _spread(tree: Tree, message: Levels) -> Levels:
    """Return the water levels of all of a node's basins, given those of its undecided ones."""
    count = tree.pits.cell.size
    level, reached = np.zeros(count, np.uint64), np.zeros(count, np.bool_)
    pits = Cells(tree.pits.key.copy(), tree.pits.cell.copy())
    for all_, kept in (
        (level, message.level),
        (reached, message.reached),
        (pits.key, message.pits.key),
        (pits.cell, message.pits.cell),
    ):
        # What the message says of kept basins goes before the others follow from it.
        all_[tree.kept] = kept
    merge_tree.spread_levels(
        tree.dead, tree.heir, tree.saddles.key, level, reached, pits.key, pits.cell
    )
    return Levels(level, reached, pits)
