"""The operation `peaks`: peaks with their prominences and key cols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from orograph.engines.quadtree_pass import QuadtreePass, TableMaker
from orograph.engines.sweep_problems import Table
from orograph.kernels.forest.order_keys import decode_keys
from orograph.kernels.terrain.differences import subtract_keys, within_bounds
from orograph.kernels.terrain.order import order_indices
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunSpec, TableOptions
from orograph.run.problem import Bytes, CellCounts
from orograph.run.run import ResultTable
from orograph.terrain.basin_tree import (
    NO_LABELS,
    LeafState,
    MergeState,
    Summary,
    Terminals,
    places_of,
)
from orograph.terrain.fates import Fates, FateTree, resolve_fates
from orograph.tiles.arguments import check_choice, check_number
from orograph.tiles.arrays import Array
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.raster.raster import RasterLike

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

HEIGHTS = ("elevation", "col_elevation", "prominence")
"""Columns with the units of the elevation."""


PEAK_ROW, PEAK_COLUMNS = 6 * 8, 8 * 8  # bytes of a peak while the table is made, and in it


@dataclass(frozen=True)
class Peaks(FateTree):
    """Peaks as a problem of the quadtree sweep: pits of the terrain turned upside down."""

    min_prominence: float

    name = "peaks"
    upside_down = True

    read_twice = False

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, with a peak for each pit."""
        needs, pits = super().bytes(cells), self.pits(cells)
        return replace(
            needs,
            more=needs.more + cells.share(pits, cells.shard) * 2 * PEAK_ROW,
            checkpoints=needs.checkpoints + pits * PEAK_ROW,
            table=pits * (2 * PEAK_ROW + PEAK_COLUMNS),
            columns=pits * PEAK_COLUMNS,
        )

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return no terminals: no peak is fixed beforehand."""
        return Terminals(np.empty(0, np.int64), np.empty(0, np.int64))

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, LeafState]:
        """Return the merge tree of a tile's peaks, without labels of cells."""
        summary, saved = super().leaf(place, *cells)
        return summary, LeafState(NO_LABELS, saved.tree)

    def root(self, summary: Summary) -> tuple[Fates, dict[str, Any]]:
        """Return a message that no remaining peak merges, and the result attributes."""
        attributes = {"connectivity": self.connectivity, "min_prominence": self.min_prominence}
        return Fates.lasting(summary.pits), attributes

    def table_maker(self, run: QuadtreePass) -> PeakTable:
        """Return the builder of the table of peaks."""
        return PeakTable(run)

    def rows_of_tile(self, place: Place, saved: LeafState, message: Fates) -> Table:
        """Return the peaks whose key cols were decided in a tile."""
        return self._rows(saved, message)

    def rows_of_node(self, place: Place, saved: MergeState, message: Fates) -> Table:
        """Return the peaks whose key cols were decided in a node."""
        return self._rows(saved, message)

    def _rows(self, saved: LeafState | MergeState, message: Fates) -> Table:
        tree = saved.tree
        fates = resolve_fates(tree, message)
        kept = np.zeros(tree.pits.cell.size, np.bool_)
        kept[tree.kept] = True
        own = np.flatnonzero(~kept)
        # The highest peak of each connected land merges into none: it has no key col.
        last = fates.heir[own] < 0
        # ``~`` undoes the flip of keys by which the terrain is upside down.
        drop = subtract_keys(~fates.pits.key[own], ~fates.died.key[own], self.dtype)
        # a flat top may have several cells without a higher neighbour: they are one peak
        rows = last | (drop > 0) & within_bounds(drop, self.min_prominence)
        own, last, drop = own[rows], last[rows], drop[rows]
        height = decode_keys(~fates.died.key[own], self.dtype)
        return {
            "peak": fates.pits.cell[own],
            "key": fates.pits.key[own],
            "col": np.where(last, -1, fates.died.cell[own]),
            "col_elevation": np.where(last, np.nan, height.astype(np.float64)),
            "prominence": np.where(last, np.inf, drop),
            "parent": np.where(last, -1, fates.pits.cell[fates.heir[own]]),
        }


class PeakTable(TableMaker):
    """Builder of the table of peaks."""

    def table(self) -> ResultTable:
        """Return the columns of the table, peaks in row-major order."""
        tables = list(self.run.all_rows())
        rows = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        raster, problem = self.run.rasters[0], cast("Peaks", self.run.problem)
        for name in ("peak", "col", "parent"):
            rows[name] = problem.orientation.turn_cells(rows[name], raster.shape)
        order = order_indices(rows["peak"])
        rows = {name: column[order] for name, column in rows.items()}
        lost = rows["col"] < 0
        peak = places_of(rows["peak"], raster)
        col = places_of(np.where(lost, 0, rows["col"]), raster)
        col[lost] = np.nan
        parent = np.full(lost.size, -1)
        order = order_indices(rows["parent"])[np.count_nonzero(lost) :]  # those without come first
        # in order, since a search far from the last one waits for memory
        parent[order] = np.searchsorted(rows["peak"], rows["parent"][order])
        columns = {
            "y": peak[:, 1],
            "x": peak[:, 0],
            "elevation": decode_keys(~rows["key"], raster.dtype),
            "col_y": col[:, 1],
            "col_x": col[:, 0],
            "col_elevation": rows["col_elevation"],
            "prominence": rows["prominence"],
            "parent": parent,
        }
        return {name: (("peak",), [column]) for name, column in columns.items()}


@operation(counts=("pits",))
def peaks(
    elevation: RasterLike,
    *,
    min_prominence: float = 0,
    connectivity: int = 8,
    **options: Unpack[TableOptions],
) -> Job[xr.Dataset]:
    """Return the peaks of a raster of any size, with their prominences and key cols.

    The prominence of a peak is the least descent on any path from it to a higher peak; the lowest
    cell of that path is its key col.

    Parameters
    ----------
    elevation
    min_prominence : float
        Leave out peaks whose prominence is smaller.
    connectivity
    **options

    Returns
    -------
    xarray.Dataset
        Columns along ``peak``, in row-major order: ``y``, ``x`` and ``elevation``; ``col_y``,
        ``col_x`` and ``col_elevation`` of the key col; ``prominence``; and ``parent``, the number
        of the peak that it yields to at the key col. The highest peak of each connected part of the
        raster has infinite prominence, no col (NaN) and no parent (-1). Attribute ``crs_wkt`` if
        the input has a CRS.

    Raises
    ------
    InputError, StoreExistsError, BackendError

    Notes
    -----
    Cells are ordered by height; among equal heights, the first from the north-west, row by row,
    counts as higher. So the result is the same for any tiling. A flat top is one peak, at its first
    cell. The parent is the highest of the peaks that are joined at the key col; it is always in the
    table. ``col_elevation`` and ``prominence``, the exact difference of two heights, are rounded
    once to float64. Each cell is read once.

    References
    ----------
    H. Edelsbrunner, D. Letscher, A. Zomorodian, "Topological persistence and simplification",
    doi:10.1007/s00454-002-2885-2.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> found = og.peaks(np.array([[5, 2, 9, 4, 7]]))
    >>> found["x"].values, found["prominence"].values, found["parent"].values
    (array([0., 2., 4.]), array([ 3., inf,  3.]), array([ 1, -1,  1]))
    >>> found["col_elevation"].values
    array([ 2., nan,  4.])
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    least = check_number("min_prominence", min_prominence, 0)
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    orientation = raster.georeference.orientation
    problem = Peaks(raster.nodata, connectivity, raster.dtype, least, orientation=orientation)
    return raster_job(problem, (raster,), spec, units=units_of(raster, *HEIGHTS))
