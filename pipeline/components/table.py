"""Table of connected components: class, cells, area, centroid and box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.arguments.grids import check_same_grid
from orograph.results.opening import ResultLike, open_result
from orograph.tiles.arguments import as_text
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.grid.crs import parse_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.lengths import warn_of_web_mercator
from orograph.tiles.grid.units import ellipsoid_of, unit_of_crs
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import RasterLike, open_raster
from orograph.tiles.raster.wrap import states_wrap

if TYPE_CHECKING:
    import pandas as pd

READ_SIDE = 1024


@own_errors
def component_table(result: ResultLike, classes: RasterLike | None = None) -> pd.DataFrame:
    """Return a table with the class, cells, area, centroid and box of each component.

    Parameters
    ----------
    result : Dataset or path
        Result of `connected_components`, or the path of its store or file. All its labels are read,
        a part at a time.
    classes : raster, optional
        The raster that was labelled; if given, the table has a column ``class``.

    Returns
    -------
    pandas.DataFrame
        The index is ``label``. Columns are ``class`` (with the dtype of the raster), ``cells``,
        ``area``, ``x`` and ``y`` (the mean of the cell centres), and ``top``, ``left``, ``bottom``,
        ``right`` (rows and columns, the last two exclusive; where a component lies across the seam
        of a raster that wraps, ``right`` is greater than the number of columns). Areas are in
        square metres if the CRS gives the length of a unit or of a degree (on its ellipsoid), else
        in squared units of the coordinates; ``attrs["area_unit"]`` is the unit.
        ``attrs["crs_wkt"]`` is the CRS of the centroids, which `to_geodataframe` converts to
        points. The table takes about 100 bytes for each component.

    Raises
    ------
    InputError
        If the argument is not a result of `connected_components`, or the classes have another grid.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> cover = np.array([[3, 0, 0], [0, 0, 7], [0, 7, 7]])
    >>> og.component_table(og.connected_components(cover), cover)[["class", "cells", "x"]]
           class  cells         x
    label
    1          3      1  0.000000
    2          7      3  1.666667
    """
    import pandas as pd

    dataset: Any = open_result(result, "connected_components")
    if "labels" not in dataset.data_vars or dataset["labels"].dtype.kind not in "if":
        raise InputError(
            "result: it has no labels; give what connected_components has returned with 'labels' "
            "among its outputs"
        )
    numbered, count = dataset["labels"], dataset.attrs.get("component_count")
    if numbered.dtype.kind == "f":  # xarray makes floats of masked integers, NaN where nodata was
        numbered = numbered.fillna(0)
    if count is None:  # of a lazy result, or lost on the way
        numbered = numbered.compute()
        count = max(int(numbered.max()), 0)
    labels = open_raster(numbered)
    place, (height, width) = labels.georeference, labels.shape
    given = None if classes is None else open_raster(classes, argument="classes")
    if given is not None:
        check_same_grid("classes", given, labels)
    count = int(count)
    cells = np.zeros(count + 1, np.int64)
    starts = np.full((2, count + 1), max(height, width))
    stops = np.zeros((2, count + 1), np.int64)
    area_of_row, unit = cell_areas(place, height)
    sums = np.zeros((3, count + 1))
    # Where the raster wraps, columns are counted from the middle too: so those of a component that
    # lies across the seam are one span.
    half = width // 2 if states_wrap(labels) else 0
    across = np.zeros(count + 1), np.full(count + 1, 2 * width), np.zeros(count + 1, np.int64)
    kind = None if given is None else np.zeros(count + 1, given.dtype)
    side = labels.tile or READ_SIDE
    # Tile by tile: each window is reduced to its labels before it is added to the whole table.
    for y in range(0, height, side):
        for x in range(0, width, side):
            window = Window(y, x, side, side).clip(labels.shape)
            numbers, first, where = np.unique(
                _whole(labels.read(window)), return_index=True, return_inverse=True
            )
            if numbers[0] < 0 or numbers[-1] > count:
                raise InputError(
                    f"result: its labels are {numbers[0]} to {numbers[-1]} here, but it has "
                    f"{count} components; give what connected_components has returned"
                )
            where = where.ravel()
            row, column = (np.ravel(i) for i in np.indices(window.shape))
            row, column = row + y, column + x
            cells[numbers] += np.bincount(where)
            for total, values in zip(sums, (row, column, area_of_row[row])):
                total[numbers] += np.bincount(where, values)
            for start, stop, values in zip(starts, stops, (row, column)):
                # Neutral values of minimum and maximum: the last cell has the greatest row and
                # column.
                least, most = np.full(numbers.size, values[-1]), np.zeros(numbers.size, np.int64)
                np.minimum.at(least, where, values)
                np.maximum.at(most, where, values)
                start[numbers] = np.minimum(start[numbers], least)
                stop[numbers] = np.maximum(stop[numbers], most + 1)
            if half:
                beyond = column + width * (column < half)
                across[0][:] += np.bincount(numbers[where], beyond, count + 1)
                np.minimum.at(across[1], numbers[where], beyond)
                np.maximum.at(across[2], numbers[where], beyond + 1)
            if given is not None and kind is not None:
                kind[numbers] = given.read(window).ravel()[first]
    if half:
        lies = (starts[1] == 0) & (stops[1] == width) & (across[2] - across[1] < width)
        sums[1] = np.where(lies, across[0], sums[1])
        starts[1], stops[1] = (
            np.where(lies, own, plain) for own, plain in zip(across[1:], (starts[1], stops[1]))
        )
    mean_row, mean_column = sums[:2, 1:] / cells[1:]
    if half:
        mean_column = (mean_column + 0.5) % width - 0.5
    x_axis = np.arange(width) if place.x is None else place.x
    of_axis = np.arange(width)
    if half:  # a centroid may lie in the outer half of the first or last column
        step = (x_axis[-1] - x_axis[0]) / (width - 1)
        x_axis = np.array([x_axis[0] - step, *x_axis, x_axis[-1] + step])
        of_axis = np.arange(-1, width + 1)
    y_axis = np.arange(height) if place.y is None else place.y
    columns: dict[str, Any] = {} if kind is None else {"class": kind[1:]}
    columns |= {
        "cells": cells[1:],
        "area": sums[2, 1:],
        # A centroid lies between centres of cells, which need not be evenly spaced.
        "x": np.interp(mean_column, of_axis, x_axis),
        "y": np.interp(mean_row, np.arange(height), y_axis),
    }
    box = *starts[:, 1:], *stops[:, 1:]
    columns |= dict(zip(("top", "left", "bottom", "right"), box))
    table = pd.DataFrame(columns, pd.RangeIndex(1, count + 1, name="label"))
    table.attrs["area_unit"] = unit
    if place.map_crs is not None:
        table.attrs["crs_wkt"] = place.map_crs
    return table


def _whole(labels: Array) -> Integers:
    """Return labels as integers; raise InputError if one of them is not a whole number."""
    if labels.dtype.kind == "f" and (labels % 1 != 0).any():
        raise InputError(
            f"result: its labels are {labels.dtype}, and {as_text(labels[labels % 1 != 0][0])} is "
            "not a whole number; give what connected_components has returned"
        )
    whole: Integers = labels.astype(np.int64, copy=False)
    return whole


def cell_areas(place: Georeference, height: int, argument: str = "result") -> tuple[Reals, str]:
    """Return the area of a cell in each row of a grid, and the unit of the areas."""
    size = place.cell_size
    if place.y is None:
        return np.ones(height), "cells"
    if size is None and 1 in (height, place.x.size if place.x is not None else 0):
        raise InputError(
            f"{argument}: a single row or column does not tell the size of its cells; give a "
            "transform, or drop the coordinates (.drop_vars) to count cells"
        )
    if size is None:
        raise InputError(
            f"{argument}: its coordinates are not evenly spaced, so that cells have no one size; "
            "drop them (.drop_vars) to count cells"
        )
    dy, dx = size
    crs = None if place.crs_wkt is None else parse_crs(place.crs_wkt, argument)
    if crs is None and place.length_unit is not None:
        return np.full(height, dy * dx * place.metres**2), "m²"
    if crs is None:
        return np.full(height, dy * dx), "squares of the unit of coordinates"
    if not crs.is_geographic:
        warn_of_web_mercator(place)
        return np.full(height, dy * dx * unit_of_crs(crs).metres ** 2), "m²"
    globe = ellipsoid_of(crs)
    areas = [
        abs(globe.polygon_area_perimeter([0, dx, dx, 0], [y - dy / 2, y - dy / 2, y + dy / 2,
                                                          y + dy / 2])[0])
        # Cells centred on a pole would reach beyond it: they are measured as those that end there.
        for y in place.y.clip(-90 + dy / 2, 90 - dy / 2).tolist()
    ]  # fmt: skip
    return np.array(areas), "m²"
