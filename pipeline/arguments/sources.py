"""Parse the sources of distances: points, vector layers, or a raster of labels."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from orograph.arguments.grids import check_same_grid
from orograph.arguments.keywords import Keywords
from orograph.arguments.source_costs import (
    ByLabel,
    Strength,
    check_labels,
    check_runs,
    strengths_by_label,
    strengths_of_points,
)
from orograph.tiles.arguments import as_plain, check_choice, check_flag, is_number, shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.marks import marks_all, warn_once_read
from orograph.tiles.raster.mask import replace_sources, sources_of
from orograph.tiles.raster.outline import RasterOutline
from orograph.tiles.raster.points import (
    PointsLike,
    as_points,
    cells_of,
    points_inside,
)
from orograph.tiles.raster.raster import ArrayRaster, Raster, RasterLike, open_raster
from orograph.tiles.raster.snapping import SnapLike, distances_moved, parse_snap, snap_to_valid
from orograph.tiles.vector.burn import cell_space
from orograph.tiles.vector.layer import VectorLayer, column_of, read_layer

MOST_LABELS = 1000
"""Greatest number of labels of sources that a result lists."""
OUTSIDE = ("error", "skip")
SKIP = "pass outside='skip' to go on without them"


class PlaceOptions(TypedDict, total=False):
    """Keywords that tell where sources lie, and what they are called."""

    source_values: Sequence[float] | None
    label: str | None
    all_touched: bool
    snap: SnapLike


class SourceOptions(PlaceOptions, total=False):
    """Keywords of sources.

    source_values : sequence of float, optional
        Raster values (by default all but 0) or labels of lines and areas (all) that are sources.
    label : str, optional
        Column of a vector layer that holds the labels of its geometries: integers, or names, which
        are numbered from 0 as they first occur and listed in the attribute ``source_names``.
    all_touched : bool
        Include all cells that areas touch.
    initial_cost : float, sequence of float, or mapping of int to float
        Cost at the sources: one number, one number for each point, or a dict by label; labels
        missing from the dict start at 0.
    source_cost : mapping of str to float, str, sequence or mapping, optional
        How costs grow from each source: ``"multiplier"``, above 0; ``"rate"``, 0 or more; and
        ``"maximum"``, where its paths end, initial cost included. Each is one number, one for each
        point, a dict by label, or the name of a column. See the notes of `cost_distance`.
    snap : bool, int or str
        Move points and ends of links on nodata to the nearest valid cell: True within 10 cells, or
        within a number of cells, or within a length such as ``"300 m"``. The attribute
        ``snap_distances`` tells how far each of up to 1000 points lies from the cell it was moved
        to, in metres (without a CRS in the unit of the coordinates), 0 if it was not.
    outside : {"error", "skip"}
        Refuse points and geometries outside the raster, or skip them. The attribute
        ``sources_outside`` counts the skipped ones; the labels of the others do not change.
    """

    initial_cost: float | Sequence[float] | Mapping[int, float]
    source_cost: Mapping[str, float | str | Sequence[float] | Mapping[int, float]] | None
    outside: str


@dataclass(frozen=True)
class SourceSpec(Keywords):
    """Given keywords about sources; see `SourceOptions`.

    Raises
    ------
    InputError
        If ``outside`` is not a choice.
    """

    heading = "Sources"
    documented = SourceOptions

    source_values: Sequence[float] | None = None
    label: str | None = None
    all_touched: bool = False
    initial_cost: float | Sequence[float] | Mapping[int, float] = 0.0
    source_cost: Mapping[str, Any] | None = None
    snap: SnapLike = False
    outside: str = "error"

    def __post_init__(self) -> None:
        check_choice("outside", self.outside, OUTSIDE)


@dataclass(frozen=True)
class Sources:
    """Source cells, with an initial cost and a label for each."""

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    costs: Array
    """Initial cost at each cell: float64, or int64 where distances are integers."""
    labels: npt.NDArray[np.int64]


@dataclass(frozen=True)
class AllBut:
    """All values of a raster of sources but 0 and some."""

    values: tuple[float, ...]


Targets = tuple[float, ...] | AllBut | None
"""Values of a raster of sources that count; None: all but 0."""


SourcesLike = RasterLike | PointsLike
"""Sources: a raster whose cells that are not 0 or nodata are sources, points, or a vector layer."""


def _doubt_sources(
    name: str, sources: Raster, first: Raster, targets: Targets, copies: Mapping[Raster, Raster]
) -> str | None:
    sources, first = (replace_sources(raster, copies) for raster in (sources, first))
    if not marks_all(sources, first, partial(is_source, targets=targets)):
        return None
    return (
        f"{name}: all cells are {name}, so that nothing is to be found; is the raster another one "
        "than meant, such as the friction?"
    )


def is_source(values: Array, nodata: float | int | None, targets: Targets) -> npt.NDArray[np.bool_]:
    """Return a mask of the source cells in a raster of sources."""
    if isinstance(targets, AllBut):
        return is_source(values, nodata, None) & ~is_source(values, nodata, targets.values)
    # in the dtype of the cells: float64 takes 2**53 + 1 for 2**53
    wanted: npt.NDArray[np.bool_]
    if targets is None:
        wanted = values != 0
    elif values.dtype.kind in "iu":
        limits = np.iinfo(values.dtype)
        exact = [int(v) for v in targets if v == int(v) and limits.min <= v <= limits.max]
        wanted = np.isin(values, np.array(exact, values.dtype))
    else:
        wanted = np.isin(values, [float(v) for v in targets if v == float(v)])
    return wanted & valid_cells(values, nodata)


def parse_source_values(source_values: Sequence[float] | None) -> tuple[float, ...] | None:
    """Check ``source_values``; whole numbers become integers."""
    if source_values is None:
        return None
    source_values = as_plain(source_values)
    if isinstance(source_values, str | bytes | Mapping) or not isinstance(source_values, Iterable):
        raise InputError(f"source_values: {shown(source_values)}; give a list of numbers")
    values = tuple(as_plain(value) for value in source_values)
    if not values:
        raise InputError("source_values: none; give at least one, or leave it out")
    for value in values:
        # no cell holds what is beyond float64
        if not is_number(value) or not abs(value) <= sys.float_info.max:
            raise InputError(f"source_values: {shown(value)}; they must be finite numbers")
    return tuple(int(v) if isinstance(v, Integral) else float(v) for v in values)


class Origin(NamedTuple):
    """Parsed sources: single cells, or a raster and the values that mark sources in it."""

    cells: Sources | None
    raster: Raster | None
    targets: tuple[float, ...] | None
    """Values of the raster that are sources; None: all but 0."""
    outside: int | None = None
    """Number of points or geometries left out because they lie outside; None: they are refused."""
    names: list[str] | None = None
    """Names for which the integer labels stand; None: labels are plain numbers."""
    strengths: npt.NDArray[np.float64] | ByLabel | None = None
    """Multiplier, rate and maximum of each cell, shape (cells, 3), or of labels; None: all
    alike."""
    column: str | None = None
    """Name of the column that holds the labels of a vector layer."""
    moved: npt.NDArray[np.float64] | None = None
    """Distance by which each point was moved; None if points are not moved, or many."""

    @property
    def notes(self) -> dict[str, Any]:
        """Return the attributes of a result that tell of its sources."""
        notes = {
            "sources_outside": self.outside,
            "source_names": self.names,
            "source_labels": self._labels(),
            "snap_distances": None if self.moved is None else self.moved.tolist(),
        }
        return {name: value for name, value in notes.items() if value is not None}

    def _labels(self) -> list[int] | None:
        """Return the labels of the sources, if a column or a raster gave them and they are few.

        None where they are names, numbers of points, or would have to be read.
        """
        if self.names is not None:
            return None
        labels: Any = None
        if isinstance(self.raster, ArrayRaster):
            values = self.raster.read(Window(0, 0, *self.raster.shape))
            labels = values[is_source(values, self.raster.nodata, self.targets)]
        elif isinstance(self.raster, LayerRaster):
            labels = self.targets if self.column is not None else None
        elif self.raster is not None:
            labels = self.targets
        elif self.column is not None and self.cells is not None:
            labels = self.cells.labels
        if labels is None:
            return None
        few = np.sort(pd.unique(np.asarray(labels)))
        whole = few.size <= MOST_LABELS and all(int(label) == label < 2**62 for label in few)
        return few.astype(np.int64).tolist() if whole else None

    def groups(self) -> list[tuple[Strength, Sources | None, Targets]]:
        """Return the sources of each strength: its cells, or values of its raster.

        Raises
        ------
        InputError
            If there are more strengths than runs may be.
        """
        if isinstance(self.strengths, ByLabel):
            alike: dict[Strength, list[float]] = {}
            labels: Iterable[float] = self.targets or self.strengths.known
            for label in labels:
                own = self.strengths.known.get(int(label)) if label == int(label) else None
                alike.setdefault(own or self.strengths.others, []).append(label)
            found: list[tuple[Strength, Sources | None, Targets]]
            usual = self.strengths.others
            # Labels of the usual strength need no list: they are all that are in no other one.
            if self.targets is None:
                alike.pop(usual, None)
            found = [(strength, None, tuple(values)) for strength, values in alike.items()]
            if self.targets is None:
                apart = [label for values in alike.values() for label in values]
                found.append((usual, None, AllBut(tuple(apart)) if apart else None))
        else:
            assert self.cells is not None
            assert self.strengths is not None
            rows, of_row = np.unique(self.strengths, axis=0, return_inverse=True)
            found = []
            for place, row in enumerate(rows.tolist()):
                here = of_row.ravel() == place
                own_cells = Sources(*(values[here] for values in vars(self.cells).values()))
                found.append((Strength(*row), own_cells, None))
        check_runs(len(found))
        return sorted(found, key=lambda group: group[0])


def read_columns(
    sources: SourcesLike, given: SourceSpec, name: str
) -> tuple[SourcesLike, SourceSpec]:
    """Replace columns of a vector layer that ``source_cost`` names by the numbers in them.

    Return the sources, read if there are such columns, and the keywords, whose ``source_cost`` then
    has of points lists with a number for each, of lines and areas dicts by label.
    """
    source_cost, label = given.source_cost, given.label
    if not isinstance(source_cost, Mapping):
        return sources, given
    columns = {k: v for k, v in source_cost.items() if isinstance(v, str)}
    if not columns:
        return sources, given
    layer, found = read_layer(sources, name), dict(source_cost)
    if layer is None:
        key, column = next(iter(columns.items()))
        raise InputError(
            f"source_cost: {key}: {shown(column)} is not a column, as {name} are no vector layer; "
            "give numbers"
        )
    for key, column in columns.items():
        if column not in layer.columns:
            listed = ", ".join(map(str, layer.columns)) or "none"
            raise InputError(
                f"source_cost: {key}: {name} has no column {shown(column)}; its columns are "
                f"{listed}"
            )
        values = found[key] = layer.columns[column].tolist()
        if not layer.has_extent():
            continue
        numbered, of_labels = layer, label
        if label is not None:
            numbered, of_labels, _ = layer.numbered(label, name)
        labels = numbered.labels(of_labels, name).tolist()
        by_label = found[key] = dict(zip(labels, values, strict=True))
        # The dict holds the last value of each label; any other one contradicts it.
        for own, value in zip(labels, values, strict=True):
            if by_label[own] != value:
                raise InputError(
                    f"source_cost: {key}: column {shown(column)} holds both {shown(value)} and "
                    f"{shown(by_label[own])} for the label {own}; give it one number"
                )
    return layer, replace(given, source_cost=found)


def parse_sources(
    sources: SourcesLike,
    first: Raster,
    given: SourceSpec,
    *,
    barriers: str = "nodata",
    name: str = "sources",
    skips: bool = True,
) -> Origin:
    """Parse sources into single cells, or into a raster that is read tile by tile.

    Parameters
    ----------
    sources
    first
        Raster on whose valid cells they must lie.
    given
        Keywords about them, with ``source_cost`` as `parse_source_cost` returns it.
    barriers
        Name of the other cells in errors.
    name
        Name of the argument ``sources`` in errors.
    skips
        Whether the operation has the keyword ``outside``.
    """
    initial_cost, snap = given.initial_cost, given.snap
    outside = given.outside if skips else None
    label, source_cost = given.label, given.source_cost
    by_label = initial_cost if isinstance(initial_cost, Mapping) else None
    starts = np.asarray(initial_cost if by_label is None else 0)
    # Integers stay integers, so that distances in integers are exact.
    starts = starts if starts.dtype.kind == "i" else starts.astype(np.float64)
    if not (np.isfinite(starts).all() and (starts >= 0).all()):
        raise InputError(f"initial_cost: {initial_cost}; it must be finite and 0 or more")
    targets = parse_source_values(given.source_values)
    all_touched = check_flag("all_touched", given.all_touched)
    layer = read_layer(sources, name)
    if layer is None and label is not None:
        raise InputError(
            f"label: {shown(label)}; it is a column of a vector layer of sources; leave it out"
        )
    names, given_label = None, label
    if layer is not None and label is not None:
        layer, label, names = layer.numbered(label, name)
    # Lines and areas are burnt onto the grid: a raster of their labels.
    if layer is not None and layer.has_extent():
        layer, label, lost = _inside(layer, first, label, name, outside)
        skipped = lost if outside == "skip" else None
        raster = LayerRaster.of_layer(
            layer, first.georeference, first.shape, name, label, all_touched
        )
        _check_starts_of_areas(starts, "lines and areas")
        check_labels("initial_cost", by_label or (), raster.labels)
        known, strengths = raster.labels, None
        if source_cost is not None:
            strengths = strengths_by_label(source_cost, known, "lines and areas")
        labels_of_layer = _known_labels(targets, raster)
        return Origin(None, raster, labels_of_layer, skipped, names, strengths, given_label)
    # A raster, read tile by tile.
    if layer is None and is_raster(sources, first.shape):
        raster_of_sources = _source_raster(sources, first, starts, targets, name)
        alike = by_label is None and source_cost is None
        if alike and name in ("sources", "outlets"):
            check = partial(_doubt_sources, name, raster_of_sources, first, targets)
            warn_once_read(check, *sources_of(raster_of_sources), *sources_of(first))
        strengths = None
        if source_cost is not None:
            strengths = strengths_by_label(source_cost, None, "a raster of sources")
        return Origin(None, raster_of_sources, targets, strengths=strengths)
    if isinstance(sources, np.ndarray) and sources.ndim == 2 and sources.shape[1] != 2:
        raise InputError(
            f"{name}: shape {sources.shape} is neither that of the grid, {first.shape}, nor that "
            "of points, (n, 2); bring the raster to the grid first"
        )
    if targets is not None:
        raise InputError("source_values: they are for a raster of sources; leave them out")
    # Points: known cell by cell before the run.
    reach = parse_snap(snap, first.georeference)
    points, number, labels = labelled_points(cast("PointsLike", sources), layer, first, label, name)
    # Numbers ascend. A geometry of several points has one number, and one cost.
    count = int(number[-1]) + 1
    if starts.ndim and starts.shape != (count,):
        raise InputError(
            f"initial_cost: shape {starts.shape} for {count} points; give one each, or one"
        )
    # All points of a geometry have its cost.
    costs, skipped = np.broadcast_to(starts, count)[number], None
    if by_label is not None:
        of_points = labels.tolist()
        check_labels("initial_cost", by_label, of_points)
        costs = np.array([by_label.get(label, 0) for label in of_points])
    own = None if source_cost is None else strengths_of_points(source_cost, number, labels)
    # What belongs to points outside is dropped after it was checked, as lists count all points.
    if outside == "skip":
        inside = points_inside(points, first.georeference, first.shape, name)
        skipped = int(np.count_nonzero(~inside))
        points, costs, labels = points[inside], costs[inside], labels[inside]
        own = None if own is None else own[inside]
    step = None if outside is None else SKIP
    rows, columns = cells_of(points, first.georeference, first.shape, name, step)
    before = np.stack([rows, columns])
    rows, columns = snap_to_valid(rows, columns, first, points, reach, name, barriers)
    cells = Sources(rows, columns, costs, labels)
    moved = None
    if reach and len(points) <= MOST_LABELS:
        moved = distances_moved(points, rows, columns, before, first.georeference)
    return Origin(cells, None, None, skipped, names, own, given_label, moved)


def point_names(points: PointsLike, label: str | None, name: str) -> npt.NDArray[Any] | None:
    """Return the column of a layer of points that holds their names; None without ``label``."""
    if label is None:
        return None
    layer = read_layer(points, name)
    if layer is None:
        raise InputError(
            f"label: {shown(label)}; it is a column of a vector layer of {name}; leave it out"
        )
    return column_of(layer, label, name)


def _inside(
    layer: VectorLayer, first: Raster, label: str | None, name: str, outside: str | None
) -> tuple[VectorLayer, str | None, int]:
    """Return the geometries of a layer that meet the grid, and how many do not.

    Those that are left keep their labels, which are in the column whose name comes second.
    """
    inside, moved = geometries_inside(layer, first, name, outside)
    if inside.all():
        return layer, label, 0
    columns = {"label": layer.labels(label, name)[inside]}
    kept = VectorLayer(moved.geometry[inside], columns, moved.crs, layer.bare)
    return kept, "label", int(np.count_nonzero(~inside))


def geometries_inside(
    layer: VectorLayer, first: Raster, name: str, outside: str | None
) -> tuple[npt.NDArray[np.bool_], VectorLayer]:
    """Return a mask of the geometries that meet the grid, and the layer in the grid's CRS.

    ``outside`` is ``"skip"`` to leave out what lies outside the grid, ``"error"`` to say that this
    is possible; None: it is not.

    Raises
    ------
    InputError
        If some lie outside and are not to be skipped, or all do.
    """
    import shapely

    place = first.georeference
    moved = layer.on_grid(place, name)
    # In rows and columns the grid is a rectangle, whatever its coordinates are.
    in_cells = shapely.transform(moved.geometry, lambda points: cell_space(points, place, name))
    height, width = first.shape
    inside = shapely.intersects(in_cells, shapely.box(0, 0, width, height))
    lost = int(np.count_nonzero(~inside))
    if lost and (outside != "skip" or not inside.any()):
        number = int(inside.argmin())
        low_x, low_y, high_x, high_y = moved.geometry[number].bounds
        more = f" (and {lost - 1} more)" if lost > 1 else ""
        step = SKIP if inside.any() and outside else "check its CRS"
        raise InputError(
            f"{name}: geometry {number}, a {moved.geometry[number].geom_type} of "
            f"x = {low_x:.10g} to {high_x:.10g}, y = {low_y:.10g} to {high_y:.10g}, lies outside "
            f"the grid{more}; leave it out, or {step}"
        )
    return inside, moved


def labelled_points(
    given: PointsLike, layer: VectorLayer | None, first: Raster, label: str | None, name: str
) -> tuple[Any, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return coordinates of points, the index of each one's geometry, and labels.

    ``layer`` is what `read_layer` has made of them. Without a column labels are these numbers.
    """
    if layer is None:
        points = as_points(given, name, first.georeference)
        number = np.arange(len(points))
        return points, number, number
    points, number = layer.on_grid(first.georeference, name).points()
    return points, number, layer.labels(label, name)[number]


def _source_raster(
    sources: RasterLike, first: Raster, starts: Array, targets: tuple[float, ...] | None, name: str
) -> Raster:
    """Open a raster of sources and check it."""
    raster = open_raster(sources, argument=name)
    check_same_grid(name, raster, first)
    _check_starts_of_areas(starts, "a raster of sources")
    if isinstance(raster, ArrayRaster):
        values = raster.read(Window(0, 0, *raster.shape))
        if not is_source(values, raster.nodata, targets).any():
            raise InputError(
                f"{name}: the raster has no {name.removesuffix('s')}; cells that are not 0 or "
                "nodata"
                + (f" and have one of the values {list(targets)}" if targets else "")
                + f" are {name}"
            )
    return raster


def _check_starts_of_areas(starts: Array, what: str) -> None:
    if starts.ndim:
        raise InputError(
            f"initial_cost: a list is for points; with {what} give one number, or a dict by label"
        )


def _known_labels(targets: tuple[float, ...] | None, raster: LayerRaster) -> tuple[float, ...]:
    """Return the labels of those geometries of a layer that are sources."""
    if targets is None:
        return raster.labels
    known = tuple(label for label in raster.labels if label in set(targets))
    if not known:
        raise InputError(
            f"source_values: {list(targets)}; no geometry has one of these labels, which are "
            f"{list(raster.labels[:10])}{' ...' if len(raster.labels) > 10 else ''}"
        )
    return known


def is_raster(sources: object, shape: tuple[int, int]) -> TypeGuard[RasterLike]:
    """Return whether sources are a raster, and not points or a layer."""
    if isinstance(sources, str | Path | RasterOutline):
        return True
    if hasattr(sources, "dims") or hasattr(sources, "dask"):
        return True
    # An array of the shape of the grid is a raster, even if it has two columns.
    return isinstance(sources, np.ndarray) and sources.shape == shape
