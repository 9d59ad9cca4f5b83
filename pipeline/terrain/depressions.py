"""The hierarchy of depressions: which lies in which, where each spills, and how much it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from orograph.components_table import cell_areas
from orograph.engines.quadtree_pass import Table
from orograph.execution.backends import choose_backend
from orograph.execution.options import RunOptions, RunSpec
from orograph.kernels.forest.order_keys import decode_keys, order_keys
from orograph.operation import operation
from orograph.terrain.basin_tree import (
    OUTSIDE,
    Cells,
    LeafState,
    MergeState,
    Summary,
    Terminals,
    Tree,
    cells_at_edge,
    places_of,
)
from orograph.terrain.differences import subtract_keys, within_bounds
from orograph.terrain.fates import Fates, FateTree, TableSweep, resolve_fates
from orograph.terrain.hierarchy import Hierarchy, Pits
from orograph.terrain.run import TableJob, terrain_job
from orograph.tiles.arguments import check_choice, check_flag, check_number
from orograph.tiles.grid.crs import parse_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.execution.job import Job


Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
TileState = tuple[LeafState, Array]
LABELS = Variable(
    "labels",
    np.dtype(np.int64),
    None,
    {"long_name": "row-major index of the lowest cell of the smallest depression here, from 1"},
)


class Water(NamedTuple):
    """The cells of a tile that are under water."""

    fates: Fates
    under: npt.NDArray[np.bool_]
    """Which they are."""
    key: npt.NDArray[np.uint64]
    """Of the height of each."""
    pit: Integers
    """Of each the pit that is the lowest of what is joined below it."""


@dataclass(frozen=True)
class Depressions(FateTree):
    """Pits, where they spill and what is under water, as a problem of the quadtree sweep."""

    min_depth: float
    min_area: float
    cell_area: float | None
    """In square metres; None: cells of a row have areas of their own, or count as one."""
    degrees: bool
    """Whether cells of a row have areas of their own."""
    labels: bool

    name = "depressions"

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters of the result: labels or nothing."""
        return (LABELS,) if self.labels else ()

    @property
    def nodata_drains(self) -> bool:
        """Whether cells beside nodata drain: they do."""
        return True

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return the cells at the edge of the grid and beside nodata."""
        cells = cells_at_edge(place, labels, self.connectivity)
        return Terminals(cells, np.full(cells.size, OUTSIDE))

    def root(self, summary: Summary) -> tuple[Fates, dict[str, Any]]:
        """Return the fate of the outside, which never yields."""
        attributes = {
            "connectivity": self.connectivity,
            "min_depth": self.min_depth,
            "min_area": self.min_area,
            "area_unit": "m2" if self.degrees or self.cell_area is not None else "cell",
        }
        return Fates.lasting(summary.pits), attributes

    def reread(self, place: Place, saved: LeafState, *cells: Array) -> TileState:
        """Return a tile's basins and its heights."""
        return saved, cells[0]

    def finish(self, place: Place, saved: TileState, message: Fates) -> dict[str, Array]:
        """Return the labels of a tile, if they are asked for."""
        if not self.labels:
            return {}
        water = self._water(saved, message)
        labels = np.zeros(water.under.shape, np.int64)
        labels[water.under] = water.fates.pits.cell[water.pit] + 1
        return {LABELS.name: labels}

    def rows_of_tile(self, place: Place, saved: TileState, message: Fates) -> Table:
        """Return the pits that are decided in a tile, and how many cells under water are how high.

        A cell belongs to the pit that is the lowest of what is joined below the cell. If cells of a
        row have areas of their own, the cells of each row are counted for themselves.
        """
        fates, under, key, pit = self._water(saved, message)
        row = np.zeros(pit.size, np.int64)
        if self.degrees:
            row += np.nonzero(under)[0] + place.window.y
        order = np.lexsort((row, key, pit))
        key, pit, row = key[order], pit[order], row[order]
        other = (np.diff(key) != 0) | (np.diff(pit) != 0) | (np.diff(row) != 0)
        first = np.flatnonzero(np.append(True, other)[: key.size])
        counts = {
            "of": fates.pits.cell[pit[first]],
            "height": key[first],
            "count": np.diff(np.append(first, key.size)),
        }
        if self.degrees:
            counts["row"] = row[first]
        return {**_pits(saved[0].tree, fates), **counts}

    def rows_of_node(self, place: Place, saved: MergeState, message: Fates) -> Table:
        """Return the pits that are decided in a node."""
        none = np.empty(0, np.int64)
        counts = {"of": none, "height": none.astype(np.uint64), "count": none, "row": none}
        return {**_pits(saved.tree, resolve_fates(saved.tree, message)), **counts}

    def _water(self, saved: TileState, message: Fates) -> Water:
        state, heights = saved
        fates = resolve_fates(state.tree, message)
        top = np.arange(fates.heir.size)
        while True:
            after = fates.heir[top]
            goes_on = (after >= 0) & (fates.pits.cell[after] != OUTSIDE)
            if not goes_on.any():
                break
            top[goes_on] = after[goes_on]
        # 0 is nodata, and no height is below the lowest
        low = -np.inf if heights.dtype.kind == "f" else np.iinfo(heights.dtype).min
        levels = np.append(
            np.array([low], heights.dtype), decode_keys(fates.died.key[top], heights.dtype)
        )
        under = heights < levels[state.labels]
        key = order_keys(heights[under])
        pit = state.labels[under].astype(np.int64) - 1
        moving = np.arange(pit.size)
        while moving.size:
            moving = moving[fates.died.key[pit[moving]] <= key[moving]]
            pit[moving] = fates.heir[pit[moving]]
        return Water(fates, under, key, pit)


def _pits(tree: Tree, fates: Fates) -> Table:
    """Return the decided pits; those without any depth are none, but cells of flat ground."""
    own = tree.dead[fates.died.key[tree.dead] > fates.pits.key[tree.dead]]
    return {
        "pit": fates.pits.cell[own],
        "pit_key": fates.pits.key[own],
        "spill": fates.died.cell[own],
        "spill_key": fates.died.key[own],
        "heir": fates.pits.cell[fates.heir[own]],
    }


@dataclass(frozen=True)
class DepressionSweep(TableSweep):
    """The sweep that makes the table of depressions."""

    def table(self) -> dict[str, tuple[tuple[str, ...], Iterable[Array]]]:
        """Return the columns."""
        problem: Any = self.problem
        raster = self.rasters[0]
        names = ("pit", "pit_key", "spill", "spill_key", "heir")
        tables = [{name: rows[name] for name in names} for rows in self.all_rows()]
        joined = {name: np.concatenate([rows[name] for rows in tables]) for name in names}
        del tables
        hierarchy = Hierarchy(
            Pits(
                Cells(joined["pit_key"], joined["pit"]),
                Cells(joined["spill_key"], joined["spill"]),
                joined["heir"],
            ),
            raster.dtype,
            cell_areas(raster.georeference, raster.shape[0])[0] if problem.degrees else None,
        )
        for rows in self.all_rows():
            hierarchy.add(rows["of"], rows["height"], rows["count"], rows.get("row"))
        count, area, volume = hierarchy.totals()
        size = 1.0 if problem.cell_area is None else problem.cell_area
        pit, level = (
            decode_keys(keys, raster.dtype) for keys in (hierarchy.pit_key, hierarchy.level)
        )
        depth = subtract_keys(hierarchy.level, hierarchy.pit_key, raster.dtype)
        with np.errstate(over="ignore"):
            area, volume = area * size, volume * size
        kept = within_bounds(depth, problem.min_depth) & (area >= problem.min_area)
        number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
        columns = {
            "elevation": pit,
            "spill_elevation": level,
            "depth": depth.astype(np.float64),
            "cells": count,
            "area": area,
            "volume": volume,
            "parent": number[hierarchy.parent],
            "spills_into": number[hierarchy.spills_into],
            "pit": hierarchy.pit + 1,
        }
        for name, cells in (("pit", hierarchy.pit), ("spill", hierarchy.spill)):
            place = places_of(cells, raster)
            columns |= {f"{name}_y": place[:, 1], f"{name}_x": place[:, 0]}
        return {name: (("depression",), [column[kept]]) for name, column in columns.items()}


@dataclass(frozen=True)
class DepressionJob(TableJob):
    """The table of depressions, and labels if they are asked for."""

    @property
    def georeference(self) -> Georeference:
        """Georeference of the labels."""
        return self.rasters[0].georeference if self.problem.labels else super().georeference


def _cell_area(place: Georeference) -> float | None:
    """Return the area of a cell in square metres; None where there is no one area of all cells."""
    if place.crs_wkt is None or place.is_geographic or place.cell_size is None:
        return None
    dy, dx = place.cell_size
    axes = parse_crs(place.crs_wkt, "elevation").axis_info
    return float(dy * dx * axes[0].unit_conversion_factor ** 2)


@operation("orograph.terrain.estimate:estimate_depressions")
def depressions(
    elevation: Any,
    *,
    min_depth: float = 0,
    min_area: float = 0,
    labels: bool = False,
    connectivity: int = 8,
    nodata: float | int | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the hierarchy of depressions: where they spill, how much they hold, what holds them.

    The water above a pit rises until it meets that of another pit, or the edge of the raster or
    nodata, into which it drains. At that level the depression is full. Where waters meet, a larger
    depression begins, which is their parent.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`.
    min_depth : float
        Only depressions that are so deep, from their lowest cell to their spill level.
    min_area : float
        Only depressions of this area or more.
    labels : bool
        Write a raster of depressions too.
    connectivity : {8, 4}
        8 or 4 neighbours.
    nodata : float or int, optional
        The value of cells without a height, in place of what the raster itself says. NaN and
        infinite cells have none either.
    **options
        Options of the run, see `RunOptions`.

    Returns
    -------
    xarray.Dataset
        Over ``depression``, in row-major order of the lowest cells, those of one cell from the
        inside out: ``pit_y``, ``pit_x`` and ``elevation`` of the lowest cell; ``spill_y``,
        ``spill_x`` and ``spill_elevation``; ``depth``; ``cells`` below the spill level; ``area``
        and ``volume``; ``parent``, the number of the depression in which it lies, and
        ``spills_into``, of the one into which it spills, both -1 where there is none; ``pit``, the
        lowest cell's row-major index from 1, as in `fill_depressions`. Areas are in square metres,
        and volumes in these times the unit of heights, where a CRS says how long a unit is, or a
        degree: then cells of each row have their area on WGS 84. Otherwise areas are in cells
        (attribute ``area_unit``).
        Attribute ``crs_wkt`` if the input has a CRS. ``labels``, int64: on each cell under water
        the column ``pit`` of the smallest depression that holds it, however small, else 0. So the
        cells of a depression are those below its spill level that have the label of one in it.

    Raises
    ------
    InputError
        If an argument is invalid.
    StoreExistsError, BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    Cells are ordered by (height, row-major index), and volumes are exact sums, rounded once: the
    result is the same for any tiling. Waters that meet at one height make one larger depression.
    A depression spills at the first cell at which it meets other water, into that with the lowest
    cell; -1 is the outside, or a depression that is left out as too small. Each cell is read twice.

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
    raster = open_raster(elevation, nodata=nodata, argument="elevation")
    spec = RunSpec(**options)
    chosen = choose_backend("tile_basins", (raster,), spec)
    place = raster.georeference
    degrees = place.crs_wkt is not None and place.is_geographic and place.cell_size is not None
    problem = Depressions(
        raster.nodata,
        connectivity,
        chosen,
        raster.dtype,
        *least,
        _cell_area(place),
        degrees,
        labels,
    )
    parameters = {"least": repr(least), "labels": labels}
    return terrain_job(problem, (raster,), parameters, spec, DepressionSweep, DepressionJob)
