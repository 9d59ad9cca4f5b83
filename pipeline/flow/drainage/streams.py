"""The operation `streams`, and the lines of the streams that it finds."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Unpack

import numpy as np

from orograph.arguments.grids import check_same_grid
from orograph.flow.drainage.lengths import StepLengths
from orograph.flow.drainage.stream_network import StreamNetwork
from orograph.flow.flow_problem import open_directions
from orograph.operations.operation import operation
from orograph.results.opening import ResultLike, open_result
from orograph.results.tables import is_network, network_lines
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.tiles.arguments import check_number
from orograph.tiles.errors import InputError, own_errors
from orograph.tiles.grid.crs import CRSLike
from orograph.tiles.local_storage import local_path
from orograph.tiles.raster.raster import RasterLike, open_raster
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.vector.layer import VectorLayer
from orograph.tiles.vector.write import check_vector_target, import_shapely, write_layer

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@operation()
def streams(
    direction: RasterLike,
    accumulation: RasterLike,
    threshold: float,
    *,
    elevation: RasterLike | None = None,
    codes: str | None = None,
    cell_size: float | tuple[float, float] | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the stream network of a raster of any size: its links with their orders and lengths.

    Streams are the cells with enough accumulation. They are cut into links at confluences.

    Parameters
    ----------
    direction
    accumulation : raster
        Amount that flows through each cell, on the same grid, as returned by `flow_accumulation`.
    threshold : float
        Least accumulation of a stream cell, more than 0, in the unit of the accumulation.
    elevation : raster, optional
        Heights on the same grid, for the drop of each link.
    codes, cell_size
    **options

    Returns
    -------
    xarray.Dataset
        Rasters, 0 away from streams: ``link``, int64, the number of the link; links are numbered
        from 1 as a scan meets their first cells. ``order``, uint8, its Strahler order.

        A table along the dimension ``links``:

        - ``strahler``, ``shreve``: the orders of the link;
        - ``length``, float64: to the first cell of the next link or to the last cell, in the unit
          that `flow_distance` has;
        - ``downstream``: the next link, 0 if there is none;
        - ``upstream``: the inflowing link with the greatest accumulation, 0 at a head;
        - ``drop``, float64, if an elevation is given: the height of the first cell minus the height
          where the length ends.

        The cells of the links along the dimension ``vertices``, from the first cell of each link
        downstream: ``vertex_link``, ``vertex_y``, ``vertex_x``. `stream_lines` converts them to
        lines.

        The attribute ``link_count`` is the number of links. Coordinates and CRS are those of the
        directions.

    Raises
    ------
    InputError
        If an argument is invalid, the coordinates do not determine the size of cells, a stream cell
        has no direction, a code is not one of ``codes``, or streams form a cycle.
    StoreExistsError, BackendError

    Notes
    -----
    A stream that reaches a cell without enough accumulation ends there. Where two or more links of
    the highest order meet, the order rises by one. Any tiling gives the same result. The memory of
    the client grows with the number of stream cells.

    References
    ----------
    A. N. Strahler, "Quantitative analysis of watershed geomorphology",
    doi:10.1029/TR038i006p00913. R. L. Shreve, "Statistical law of stream numbers",
    doi:10.1086/627137.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[4, 9, 4, 9], [9, 3, 9, 9], [9, 2, 1, 0], [9, 9, 9, 9]])
    >>> flow = og.flow_direction(valley)
    >>> count = og.flow_accumulation(flow)["accumulation"]
    >>> found = og.streams(flow, count, 4)
    >>> found["link"].values
    array([[0, 0, 0, 0],
           [0, 1, 0, 0],
           [0, 2, 3, 3],
           [0, 0, 0, 0]])
    >>> found["strahler"].values
    array([1, 1, 2], dtype=uint8)
    >>> [line.wkt for line in og.stream_lines(found).geometry]
    ['LINESTRING (1 1, 2 2)', 'LINESTRING (1 2, 2 2)', 'LINESTRING (2 2, 3 2)']
    """
    spec = RunSpec(**options)
    raster, code = open_directions(spec, direction, codes)
    least = check_number("threshold", threshold, math.ulp(0.0), np.finfo(np.float64).max)
    rasters = [raster, open_raster(accumulation, argument="accumulation")]
    if elevation is not None:
        rasters.append(open_raster(elevation, argument="elevation"))
    for name, other in zip(("accumulation", "elevation"), rasters[1:], strict=False):
        check_same_grid(name, other, raster)
    steps = StepLengths.of_raster(raster, cell_size, wraps_of(raster, spec.wrap))
    nodata_of_others = tuple(r.nodata for r in rasters[1:])
    orientation = raster.georeference.orientation
    problem = StreamNetwork(
        *(code, raster.shape, steps, least, nodata_of_others), orientation=orientation
    )
    units = {} if elevation is None else units_of(rasters[2], "drop")
    return raster_job(problem, tuple(rasters), spec, units=units)


@own_errors
def stream_lines(
    streams: ResultLike,
    *,
    out: str | os.PathLike[str] | None = None,
    crs: CRSLike | None = None,
    overwrite: bool = False,
) -> VectorLayer:
    """Return the links of a stream network as lines, with their columns.

    Parameters
    ----------
    streams : Dataset or path
        Result of `streams`, or the path of its store or NetCDF file.
    out : path, optional
        Vector file to write in addition, in the format of its extension: ``.gpkg``, ``.geojson``,
        ``.fgb``, ``.parquet``, ``.shp`` or ``.csv``.
    crs : CRS, optional
        CRS in which to write ``out``, such as ``"EPSG:4326"``; by default that of the network.
        GeoJSON is always in longitude and latitude.
    overwrite : bool
        Replace ``out`` if it exists.

    Returns
    -------
    VectorLayer
        One line for each link, through the centres of its cells, downstream, to the first cell of
        the next link. Columns are ``link``, ``strahler``, ``shreve``, ``length``, ``downstream``,
        ``upstream`` and, if the network has it, ``drop``. The CRS is that of the network. A link of
        a single cell that does not flow into another link has no line.

    Raises
    ------
    InputError
        If the argument is not a stream network, or the file cannot be written.
    StoreExistsError
        If ``out`` exists and ``overwrite`` is False.
    OrographError
        If Shapely is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> flow = og.flow_direction(np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]]))
    >>> found = og.streams(flow, og.flow_accumulation(flow)["accumulation"], 6)
    >>> og.stream_lines(found).to_geodataframe()[["link", "strahler", "geometry"]]
       link  strahler                    geometry
    0     1         1  LINESTRING (1 1, 2 1, 3 1)
    """
    import_shapely("stream_lines")
    found = open_result(streams, "streams", "streams")
    if not is_network(found):
        raise InputError(
            "streams: it has no table of links; give all that streams has returned, or the path "
            "of its .zarr or .nc, as a GeoTIFF holds no table"
        )
    spec = RunSpec(out=out, crs=crs, overwrite=overwrite)
    if spec.storage is None:
        return network_lines(found)
    path = local_path(spec.storage, "out")
    own = open_raster(found["link"], argument="streams").georeference.map_crs
    check_vector_target(path, spec.overwrite, "out", crs, own)
    lines = network_lines(found)
    write_layer(lines, path, crs=crs)
    return lines
