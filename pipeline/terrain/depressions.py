"""The operation `depressions`: the hierarchy of nested depressions and their volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from orograph.components.table import cell_areas
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.engines.sweep_problems import Table
from orograph.kernels.backends import get_backend
from orograph.kernels.forest.order_keys import decode_keys
from orograph.kernels.terrain import depressions as kernel
from orograph.kernels.terrain import exact_sums
from orograph.kernels.terrain.order import order_cells
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunSpec, TableOptions
from orograph.run.problem import Bytes, CellCounts
from orograph.terrain.basin_tree import (
    OUTSIDE,
    LeafState,
    MergeState,
    Summary,
    Terminals,
    Tree,
    cells_at_edge,
)
from orograph.terrain.depression_table import DepressionTable
from orograph.terrain.fates import Fates, FateTree, resolve_fates
from orograph.terrain.hierarchy import Held, Hierarchy
from orograph.tiles.arguments import check_choice, check_flag, check_number
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.lengths import warn_of_web_mercator
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.units import METRE, UNSTATED, parse_length_unit, unit_of_heights
from orograph.tiles.nodata import UNUSED_LABEL
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.store.create import TABLE_ROWS, Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

TileState = tuple[LeafState, Array]
LABELS = Variable(
    "labels",
    np.dtype(np.int64),
    None,
    {"long_name": "smallest depression, by pit"} | UNUSED_LABEL,
)

HEIGHTS = ("elevation", "spill_elevation", "depth")
"""Columns with the units of the elevation."""


# depressions of a pit; bytes of one: its row, in the table, and while it is made in its tile, and
# while its row of shards is joined
DEPRESSIONS, DEPRESSION_ROW, DEPRESSION_COLUMNS, DEPRESSION_LINKS = 2, 8 * 8, 13 * 8, 2 * 8
DEPRESSION_OF_TILE, DEPRESSION_JOINED = 180, 200
# of a height of cells under water: its row, and while its tile is counted, or added to the table
HEIGHT_ROW, HEIGHT_OF_TILE, HEIGHT_ADDED = 3 * 8, 100, 100
# of floats each cell under water has its own; those of terrain and of noise are four in ten. They
# are rows unless their pits are decided in their tile, which have this many or more of them
WET, HEIGHTS_OF_PIT, CELLS_OF_PIT = 0.4, 8, 3


@dataclass(frozen=True)
class Depressions(FateTree):
    """Hierarchy of depressions as a problem of the quadtree sweep.

    If the merge of a pit is decided in a tile, the tile contains all its depressions with all their
    cells: they are finished rows. For other pits, the tile counts cells and lists its own pits that
    yield to them; `orograph.terrain.depression_table` converts these to rows.
    """

    min_depth: float
    min_area: float
    cell_area: float | None
    """Area of a cell in square metres; None: areas differ by row, or each cell counts as one."""
    row_areas: exact_sums.Areas | None
    """Area of a cell in each row of the grid, if rows differ."""
    labels: bool

    name = "depressions"

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, with two depressions for each pit."""
        needs, pits = super().bytes(cells), self.pits(cells)
        heights, count = max(int(WET * cells.grid) - CELLS_OF_PIT * pits, 0), DEPRESSIONS * pits
        if cells.dtypes[0].kind != "f":
            heights = min(heights, HEIGHTS_OF_PIT * pits)
        in_tile, in_shard = (cells.share(heights, part) for part in (cells.tile, cells.shard))
        in_band = cells.share(count, cells.band)
        rows_read = in_shard * 2 * HEIGHT_ROW
        # of each column less than a chunk waits while the next row of shards is joined
        kept = min(count - in_band, TABLE_ROWS) * DEPRESSION_COLUMNS
        return replace(
            needs,
            more=needs.more
            + cells.share(count, cells.tile) * DEPRESSION_OF_TILE
            + cells.share(count, cells.shard) * 2 * DEPRESSION_ROW
            + in_tile * HEIGHT_OF_TILE
            + rows_read,
            checkpoints=needs.checkpoints
            + count * DEPRESSION_ROW
            + (count - in_band) * DEPRESSION_LINKS
            + heights * HEIGHT_ROW,
            table=in_band * DEPRESSION_JOINED + rows_read + in_tile * HEIGHT_ADDED + kept,
            columns=count * DEPRESSION_COLUMNS,
        )

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of merge trees, and those that measure depressions."""
        super().compile_kernels(dtypes, several)
        kernel.compile_kernels(dtypes[0])
        exact_sums.compile_kernels()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of labels, if requested."""
        return (LABELS,) if self.labels else ()

    @property
    def nodata_drains(self) -> bool:
        """True: cells next to nodata drain into the outside."""
        return True

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return the cells that drain outside: those at the edge of the grid and next to nodata."""
        cells = cells_at_edge(place, labels, self.connectivity)
        return Terminals(cells, np.full(cells.size, OUTSIDE))

    @property
    def in_metres(self) -> bool:
        """Whether areas are in square metres; else they count cells."""
        return self.row_areas is not None or self.cell_area is not None

    def root(self, summary: Summary) -> tuple[Fates, dict[str, Any]]:
        """Return a message that the outside never merges, and the result attributes."""
        attributes = {
            "connectivity": self.connectivity,
            "min_depth": self.min_depth,
            "min_area": self.min_area,
            "area_unit": "m2" if self.in_metres else "cell",
        }
        return Fates.lasting(summary.pits), attributes

    def reread(self, place: Place, saved: LeafState, *cells: Array) -> TileState:
        """Return the saved state of a tile together with its heights, read again."""
        heights = self.turn(cells[0])
        return self.with_labels(saved, heights), get_backend(self.backend).to_host(heights)

    def finish(self, place: Place, saved: TileState, message: Fates) -> dict[str, Array]:
        """Return the depression label of each cell of a tile, if labels are requested."""
        if not self.labels:
            return {}
        fates, water = self._water(saved, message)
        labels = np.zeros(saved[1].shape, np.int64)
        pits = self.orientation.turn_cells(fates.pits.cell, place.grid)
        labels.ravel()[water.cells] = pits[water.pit] + 1
        return {LABELS.name: self.turn(labels)}

    def table_maker(self, run: QuadtreePass) -> DepressionTable:
        """Return the builder of the table of depressions."""
        return DepressionTable(run)

    def rows_of_tile(self, place: Place, saved: TileState, message: Fates) -> Table:
        """Return the depressions decided in a tile, and its cell counts for other depressions."""
        tree, heights = saved[0].tree, saved[1]
        fates, (cells, pit, key) = self._water(saved, message)
        own = np.zeros(fates.heir.size, np.bool_)
        # Pits that are decided in this tile: all cells of their depressions lie here.
        own[_with_depth(tree, fates)] = True
        hierarchy = self.hierarchy(fates, tree.dead, own)
        row = None
        if self.row_areas is not None:
            in_tile = self.orientation.turn_cells(cells.astype(np.int64), heights.shape)
            row = in_tile // heights.shape[1] + place.window.y
        number = hierarchy.find(pit, key)
        exponents = hierarchy.exponents(key)
        held = hierarchy.nothing(exponents, heights.size)
        hierarchy.add(held, number, key, None, row)
        hierarchy.add_up(held)
        columns = self.rows_of(hierarchy, held)
        which = columns.pop("which")
        numbers, some = which, which.size < hierarchy.count
        if some:
            numbers = np.full(hierarchy.count, -1)
            numbers[which] = np.arange(which.size)
        # pits that yield to one that is decided further up: what holds them is known there
        leaving = np.flatnonzero(own & (fates.heir >= 0) & ~own[fates.heir])
        number_of_leaving = np.empty(own.size, np.int64)
        number_of_leaving[leaving] = np.arange(leaving.size)
        parent, into = hierarchy.found.parent, hierarchy.found.spills_into
        for name, links in (("parent", parent), ("spills_into", into)):
            columns[name] = kernel.renumber(
                links[which] if some else links, numbers, -2 - number_of_leaving
            )
        # others that yield to them at the same height lie in the same depression
        # (-2 less a leaving pit: the parent of the depression is found further up, with that pit)
        beside = np.flatnonzero(parent <= -2)
        taken = held.take(beside).sum_by(number_of_leaving[-2 - parent[beside]], leaving.size)
        return {
            **columns,
            **_fates_of(fates, leaving),
            "row": numbers[hierarchy.final[leaving]],
            "held_cells": taken.cells,
            "held_areas": taken.areas.words,
            "held_sums": taken.sums.words,
            "words": np.array([taken.areas.low, taken.sums.low, *exponents]),
            **_count_heights(fates.pits.cell, pit, key, row, number < 0),
        }

    def rows_of_node(self, place: Place, saved: MergeState, message: Fates) -> Table:
        """Return the pits whose merge was decided in a node."""
        fates = resolve_fates(saved.tree, message)
        return _fates_of(fates, _with_depth(saved.tree, fates))

    def hierarchy(self, fates: Fates, order: Integers, own: npt.NDArray[np.bool_]) -> Hierarchy:
        """Build the hierarchy of nested depressions from the merges of pits."""
        return Hierarchy(fates, order, own, self.dtype, self.row_areas)

    @property
    def size_of_cell(self) -> float:
        """Area of a cell in the unit of the result: square metres, or 1 cell."""
        return 1.0 if self.cell_area is None else self.cell_area

    def rows_of(self, hierarchy: Hierarchy, held: Held) -> Table:
        """Return the table columns of the depressions that reach the minimum depth and area."""
        return hierarchy.columns(held, self.size_of_cell, (self.min_depth, self.min_area))

    def _water(self, saved: TileState, message: Fates) -> tuple[Fates, kernel.Water]:
        """Return the merges of a tile's pits, and its cells that lie in any depression."""
        state, heights = saved
        fates = resolve_fates(state.tree, message)
        # An heir of -1 picks the last pit here, and is -1 afterwards whatever that pit is.
        outside = fates.pits.cell[fates.heir] == OUTSIDE
        fates = replace(fates, heir=np.where(outside, -1, fates.heir))
        died = decode_keys(fates.died.key, heights.dtype)
        highest = died[kernel.find_outermost(fates.heir)]
        return fates, kernel.find_water(heights, state.labels, died, highest, fates.heir)


def _with_depth(tree: Tree, fates: Fates) -> Integers:
    """Return the decided pits with a positive depth; others are just flat ground."""
    return tree.dead[fates.died.key[tree.dead] > fates.pits.key[tree.dead]]


def _fates_of(fates: Fates, which: Integers) -> Table:
    """Return table columns of pits: cell, height, the saddle where each merges, and the absorbing
    pit.
    """
    heir = fates.heir[which]
    return {
        "own_pit": fates.pits.cell[which],
        "own_key": fates.pits.key[which],
        "died": fates.died.cell[which],
        "died_key": fates.died.key[which],
        "heir": np.where(heir < 0, OUTSIDE, fates.pits.cell[heir]),
    }


def _count_heights(
    name: Integers, pit: Array, key: npt.NDArray[np.uint64], row: Integers | None, which: Array
) -> Table:
    """Count the cells of each pit by height, and by grid row if rows are given.

    ``name`` holds the number of the pit of each cell.
    """
    # By pit and height, as runs of equal cells become one row with their number.
    pit, key = name[pit[which]], key[which]
    order = order_cells(key, pit)
    pit, key = pit[order], key[order]
    other = (np.diff(key) != 0) | (np.diff(pit) != 0)
    counts = {"of": pit, "height": key}
    if row is not None:  # in order, since those of one height stay in theirs
        counts["line"] = row[which][order]
        other |= np.diff(counts["line"]) != 0
    # Index of the first cell of each run of equal pit, height and row; empty without cells.
    first = np.flatnonzero(np.append(True, other)[: key.size])
    counts = {column: values[first] for column, values in counts.items()}
    return {**counts, "count": np.diff(np.append(first, key.size))}


def _cell_area(place: Georeference) -> float | None:
    """Return the area of a cell in square metres, or None if it varies or is unknown."""
    if place.length_unit is None or place.is_geographic or place.cell_size is None:
        return None
    warn_of_web_mercator(place)
    dy, dx = place.cell_size
    return float(dy * dx * place.metres**2)


@operation(counts=("pits",))
def depressions(
    elevation: RasterLike,
    *,
    min_depth: float = 0,
    min_area: float = 0,
    labels: bool = False,
    connectivity: int = 8,
    **options: Unpack[TableOptions],
) -> Job[xr.Dataset]:
    """Return the hierarchy of nested depressions with their volumes and spill points.

    The water above a pit rises until it meets the water of another pit, or the edge of the raster
    or nodata, into which it drains. At that level the depression is full. Where the water of two
    depressions meets, a larger depression begins, which is their parent.

    Parameters
    ----------
    elevation
    min_depth : float
        Leave out depressions whose depth, from lowest cell to spill level, is smaller.
    min_area : float
        Leave out depressions whose area is smaller.
    labels : bool
        Also return a raster of depressions.
    connectivity
    **options

    Returns
    -------
    xarray.Dataset
        Columns along ``depression``, in row-major order of the lowest cells; depressions with the
        same lowest cell are ordered from the innermost to the outermost:

        - ``pit_y``, ``pit_x`` and ``elevation`` of the lowest cell;
        - ``spill_y``, ``spill_x`` and ``spill_elevation``;
        - ``depth``;
        - ``cells`` below the spill level;
        - ``area`` and ``volume``;
        - ``parent``, the number of the depression that contains it, -1 if none;
        - ``spills_into``, the number of the depression that it spills into, -1 if none;
        - ``pit``, the row-major index of the lowest cell from 1, as in `fill_depressions`.

        If the CRS gives the length of a unit or of a degree, areas are in square metres, and
        volumes in square metres times the unit of heights, which are metres if nothing tells
        another and the CRS is in metres or degrees; in a geographic CRS, the cells of each row have
        their area on its ellipsoid. Otherwise areas are in cells (attribute
        ``area_unit``).

        ``labels``, int64: in each cell under water the column ``pit`` of the smallest depression
        that contains it, however small; 0 elsewhere. So the cells of a depression are those below
        its spill level that have the label of a depression within it. Attribute ``crs_wkt`` if the
        input has a CRS.

    Raises
    ------
    InputError, StoreExistsError, BackendError

    Notes
    -----
    Cells are ordered by height, equal ones row by row from the north-west, and volumes are exact
    sums, rounded once: the result is the same for any tiling. If waters meet at the same height,
    they form one larger depression. A depression spills at the first cell where it meets other
    water, into the water with the lowest cell; -1 is the outside, or a depression that was left out
    as too small. Each cell is read twice.

    References
    ----------
    R. Barnes, K. L. Callaghan, A. D. Wickert, "Computing water flow through complex landscapes -
    Part 2", doi:10.5194/esurf-8-431-2020.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> found = og.depressions(np.array([[9, 9, 9, 9, 9], [9, 2, 4, 3, 7], [9, 9, 9, 9, 9]]))
    >>> found["spill_elevation"].values, found["volume"].values
    (array([4, 7, 4]), array([ 2., 12.,  1.]))
    >>> found["parent"].values, found["spills_into"].values
    (array([ 1, -1,  1]), array([ 2, -1,  0]))
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    least = check_number("min_depth", min_depth, 0), check_number("min_area", min_area, 0)
    labels = check_flag("labels", labels)
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    place = raster.georeference
    degrees = place.crs_wkt is not None and place.is_geographic and place.cell_size is not None
    row_areas = exact_sums.Areas.of(cell_areas(place, raster.shape[0])[0]) if degrees else None
    problem = Depressions(
        raster.nodata,
        connectivity,
        raster.dtype,
        *least,
        _cell_area(place),
        row_areas,
        labels,
        orientation=place.orientation,
    )
    units = units_of(raster, *HEIGHTS)
    if problem.in_metres:
        units["area"] = "m2"
        stated = str(raster.attrs.get("units", ""))
        decided = unit_of_heights(raster.attrs, place.crs_wkt, place.length_unit)
        if stated.strip().lower() not in UNSTATED and parse_length_unit(stated) is None:
            units["volume"] = f"m2 {stated}"  # not a length
        elif decided is not None:
            units["volume"] = "m3" if decided == METRE else f"m2 {decided.name}"
    return raster_job(problem, (raster,), spec, units=units)
