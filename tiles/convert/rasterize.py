"""The function `rasterize`, which converts vector layers to rasters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orograph.tiles.arguments import check_flag, shown
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.raster.raster import RasterLike, open_raster
from orograph.tiles.vector.layer import NO_LABEL, VectorLike, read_layer

if TYPE_CHECKING:
    import xarray as xr


@own_errors
def rasterize(
    layer: VectorLike, like: RasterLike, *, label: str | None = None, all_touched: bool = False
) -> xr.DataArray:
    """Rasterize a vector layer: return the label of the geometry that covers each cell.

    Parameters
    ----------
    layer : vector layer
        A GeoDataFrame, a GeoSeries, shapely geometries, any object with ``__geo_interface__``, or
        the path of a vector file; it is transformed to the CRS of the grid.
    like : raster
        A raster with the desired grid; its cells are not read.
    label : str, optional
        Column that holds the labels: integers, or names, which are numbered from 0 as they first
        occur and listed in the attribute ``source_names``. By default geometries are numbered from
        0.
    all_touched : bool
        Include all cells that areas touch, not only those whose centres lie in them.

    Returns
    -------
    xarray.DataArray
        int64, shape (y, x), in memory; -1 (``_FillValue``) where there is no geometry.

    Raises
    ------
    InputError
        If the argument is not a layer or is empty, if the grid has a CRS but the layer does not, if
        a geometry lies outside the grid or does not cover the centre of any cell, or if a label is
        missing, or neither an integer nor text.

    Notes
    -----
    A line includes every cell that it passes, and one of the two cells between cells that meet at a
    corner. So its cells are a barrier for 4, 8 and 16 neighbours, and so are those of an area with
    ``all_touched``. Where geometries share a cell, the smallest label wins. The cells do not depend
    on the part of the grid that is examined.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> from shapely import LineString
    >>> friction = np.ones((3, 4))
    >>> river = og.rasterize(LineString([(1, -0.5), (1, 0.6), (2, 2.5)]), friction)
    >>> river.values
    array([[-1,  0, -1, -1],
           [-1,  0, -1, -1],
           [-1,  0,  0, -1]])
    >>> og.cost_distance(river.where(river < 0, np.nan) * -1, [(0, 0)]).attrs["unreached_cells"]
    5
    """
    import xarray as xr

    all_touched = check_flag("all_touched", all_touched)
    read = read_layer(layer, "layer")
    if read is None:
        raise InputError(
            f"layer: {shown(layer)}; give a GeoDataFrame, geometries or the path of a vector file"
        )
    grid = open_raster(like, argument="like")
    place = grid.georeference
    column, names = label, None
    if label is not None:
        read, column, names = read.numbered(label, "layer")
    raster = LayerRaster.of_layer(read, place, grid.shape, "layer", column, all_touched)
    cells = raster.read(Window(0, 0, *grid.shape))
    attrs = {"long_name": label or "number of the geometry", "_FillValue": NO_LABEL}
    if names is not None:
        attrs["source_names"] = names
    dims = (place.y_name, place.x_name)
    burnt = xr.DataArray(cells, place.coords(), dims, label or "labels", attrs)
    burnt.encoding = place.encoding
    return burnt
