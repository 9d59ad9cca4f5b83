"""Parse the sources of distances: points, vector layers, or a raster of labels."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.grids import check_same_grid
from orograph.tiles.arguments import as_plain, check_flag, is_number, shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import LONGEST_SIDE, Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.points import as_points, cells_of, snap_to_valid
from orograph.tiles.raster.raster import ArrayRaster, Raster, open_raster
from orograph.tiles.vector.layer import VectorLayer, read_layer

SNAP_CELLS = 10

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sources:
    """Source cells, with an initial cost and a label for each."""

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    costs: Array
    """float64, or int64 where distances are integers."""
    labels: npt.NDArray[np.int64]


def is_source(
    values: Array, nodata: float | int | None, targets: tuple[float, ...] | None
) -> npt.NDArray[np.bool_]:
    """Return a mask of the source cells in a raster of sources."""
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


def snap_cells(snap: bool | int) -> int:
    """Return the snapping distance in cells that the argument ``snap`` stands for."""
    if isinstance(snap, bool | np.bool_):
        return SNAP_CELLS if snap else 0
    if not isinstance(snap, Integral) or not 0 <= snap <= LONGEST_SIDE:
        raise InputError(
            f"snap: {shown(snap)}; it must be True, False or a whole number of cells, 0 to "
            f"{LONGEST_SIDE}"
        )
    return int(snap)


def parse_targets(target_values: Sequence[float] | None) -> tuple[float, ...] | None:
    """Check ``target_values``; whole numbers become integers."""
    if target_values is None:
        return None
    target_values = as_plain(target_values)
    if isinstance(target_values, str | bytes | Mapping) or not isinstance(target_values, Iterable):
        raise InputError(f"target_values: {shown(target_values)}; give a list of numbers")
    values = tuple(as_plain(value) for value in target_values)
    if not values:
        raise InputError("target_values: none; give at least one, or leave it out")
    for value in values:
        # no cell holds what is beyond float64
        if not is_number(value) or not abs(value) <= sys.float_info.max:
            raise InputError(f"target_values: {shown(value)}; they must be finite numbers")
    return tuple(int(v) if isinstance(v, Integral) else float(v) for v in values)


class Origin(NamedTuple):
    """Parsed sources: single cells, or a raster and the values that mark sources in it."""

    cells: Sources | None
    raster: Raster | None
    targets: tuple[float, ...] | None
    """The values of the raster that are sources; None: all but 0."""


def parse_sources(
    sources: Any,
    first: Raster,
    initial_cost: float | Sequence[float],
    snap: bool | int,
    target_values: Sequence[float] | None,
    barriers: str = "nodata",
    label: str | None = None,
    all_touched: bool = False,
    name: str = "sources",
) -> Origin:
    """Parse sources into single cells, or into a raster that is read tile by tile.

    ``barriers`` says what the cells are on which no source may lie, and ``name`` what the argument
    is called, for the message.
    """
    starts = np.asarray(initial_cost)
    starts = starts if starts.dtype.kind == "i" else starts.astype(np.float64)
    if not (np.isfinite(starts).all() and (starts >= 0).all()):
        raise InputError(f"initial_cost: {initial_cost}; it must be finite and 0 or more")
    targets = parse_targets(target_values)
    all_touched = check_flag("all_touched", all_touched)
    layer = read_layer(sources, name)
    if layer is None and label is not None:
        raise InputError(
            f"label: {shown(label)}; it is a column of a vector layer of sources; leave it out"
        )
    if layer is not None and layer.has_extent():
        raster = LayerRaster.of_layer(
            layer, first.georeference, first.shape, name, label, all_touched
        )
        _check_no_starts(starts, "lines and areas")
        return Origin(None, raster, _known_labels(targets, raster))
    if layer is None and _is_raster(sources, first.shape):
        return Origin(None, _source_raster(sources, first, starts, targets, name), targets)
    if isinstance(sources, np.ndarray) and sources.ndim == 2 and sources.shape[1] != 2:
        raise InputError(
            f"{name}: shape {sources.shape} is neither that of the grid, {first.shape}, nor that "
            "of points, (n, 2); bring the raster to the grid first"
        )
    if targets is not None:
        raise InputError("target_values: they are for a raster of sources; leave them out")
    reach = snap_cells(snap)
    points, number, labels = labelled_points(sources, layer, first, label, name)
    count = int(number[-1]) + 1
    if starts.ndim and starts.shape != (count,):
        raise InputError(
            f"initial_cost: shape {starts.shape} for {count} points; give one each, or one"
        )
    rows, columns = cells_of(points, first.georeference, first.shape, name)
    rows, columns = snap_to_valid(rows, columns, first, points, reach, name, barriers)
    costs = np.broadcast_to(starts, count)[number]
    return Origin(Sources(rows, columns, costs, labels), None, None)


def labelled_points(
    given: Any, layer: VectorLayer | None, first: Raster, label: str | None, name: str
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
    sources: Any, first: Raster, starts: Array, targets: tuple[float, ...] | None, name: str
) -> Raster:
    """Open a raster of sources and check it."""
    raster = open_raster(sources, argument=name)
    check_same_grid(name, raster, first)
    _check_no_starts(starts, "a raster of sources")
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


def _check_no_starts(starts: Array, what: str) -> None:
    if starts.ndim or starts:
        raise InputError(f"initial_cost: it is for points; with {what} leave it at 0")


def _known_labels(targets: tuple[float, ...] | None, raster: LayerRaster) -> tuple[float, ...]:
    """Return the labels of those geometries of a layer that are sources."""
    if targets is None:
        return raster.labels
    known = tuple(label for label in raster.labels if label in set(targets))
    if not known:
        raise InputError(
            f"target_values: {list(targets)}; no geometry has one of these labels, which are "
            f"{list(raster.labels[:10])}{' ...' if len(raster.labels) > 10 else ''}"
        )
    return known


def _is_raster(sources: Any, shape: tuple[int, int]) -> bool:
    """Return whether sources are a raster, and not points or a layer."""
    if isinstance(sources, str | Path) or hasattr(sources, "dims") or hasattr(sources, "dask"):
        return True
    return isinstance(sources, np.ndarray) and sources.shape == shape
