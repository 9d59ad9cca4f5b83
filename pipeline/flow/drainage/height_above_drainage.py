"""The operation `height_above_drainage`: heights of cells above the stream they drain into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from orograph.arguments.cells import refuse_cell
from orograph.arguments.grids import check_same_grid
from orograph.flow.drainage.watershed_sweep import LeafState, Message, Watersheds
from orograph.flow.flow_problem import check_streams, open_directions, stream_cells
from orograph.kernels.flow.codes import Codes
from orograph.kernels.flow.directions import comparable
from orograph.kernels.flow.ends import replace_labels
from orograph.operations.operation import operation
from orograph.run.cluster.compute import load
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import as_text, check_choice
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window, corners_and_middle
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import RasterLike, open_raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


KEEP = "keep"
BELOW = (KEEP, "zero", "nodata")
LOOK = 256
"""Side in cells of the five windows of a store that are checked for heights below streams."""
NO_HEIGHT = np.uint64(2**64 - 1)
"""Marker of no height among those of 64-bit integers; its bits are those of the label of none."""
HEIGHT = Variable(
    "height",
    np.dtype(np.float64),
    np.nan,
    {"long_name": "height above drainage"},
)


@dataclass(frozen=True)
class Drainage(Watersheds):
    """Heights above drainage as a problem of the quadtree sweep.

    The label of a stream cell holds the bits of its height: as a float, or as a uint64 in the order
    of 64-bit integers. The label of a cell that does not drain into a stream is NaN, or
    `NO_HEIGHT`.
    """

    elevation_nodata: float | int | None = None
    streams_nodata: float | int | None = None
    below: str = KEEP
    """Treatment of ground below its stream, one of `BELOW`."""

    name = "height-above-drainage"
    outputs: ClassVar[tuple[Variable, ...]] = (HEIGHT,)
    numbered = False

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes, in which all rasters are read twice."""
        needs, read = super().bytes(cells), sum(dtype.itemsize for dtype in cells.dtypes)
        # a height, and a mark of a stream
        others = read - cells.itemsize + 8 + 1
        return replace(needs, cell=needs.cell + others, read_again=cells.grid * read)

    def concern(self, result: xr.Dataset) -> str | None:
        """Return a warning if cells lie below their streams; a store is looked at in places."""
        heights = result[HEIGHT.name]
        if heights.chunks:
            height, width = heights.shape
            windows = corners_and_middle((height, width), LOOK)
            cells = np.concatenate([load(heights[w.slices]).values.ravel() for w in windows])
        else:
            cells = heights.values
        below = int((cells < 0).sum())
        if not below:
            return None
        return (
            f"{below} of {cells.size} cells{' that were looked at' if heights.chunks else ''} lie "
            f"below the stream into which they drain, down to {as_text(float(np.nanmin(cells)))}: "
            "the directions lead through depressions that the elevation still has; pass the ground "
            "that they were computed from, such as og.fill_depressions(elevation)"
        )

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """No columns: the result has no table."""
        return {}

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return a mask of stream cells and the heights; refuse undrained streams."""
        elevation, given = others
        streams = stream_cells("streams", given, self.streams_nodata, numbers, window)
        valid = valid_cells(elevation, self.elevation_nodata)
        if elevation.dtype.kind in "iu" and elevation.itemsize == 8:
            heights = comparable(elevation)
            taken = valid & (heights == NO_HEIGHT)
            if taken.any():
                why = (
                    " is the greatest number of its dtype, which is kept for no height; pass "
                    "nodata= if it stands for that"
                )
                refuse_cell("elevation", elevation, int(taken.argmax()), window, why)
            # Integers of 64 bits do not fit into float64, and stay in an order of their own.
            return [streams, np.where(valid, heights, NO_HEIGHT)]
        return [streams, np.where(valid, elevation, np.nan).astype(np.float64)]

    def stops(self, window: Window, others: Sequence[Array]) -> tuple[Integers, Integers, Integers]:
        """Return the stream cells of a tile, where paths end, labelled by their heights' bits."""
        streams, heights = others
        cells = np.flatnonzero(streams)
        return cells, cells, heights.reshape(-1)[cells].view(np.int64)

    def reread(self, place: Place, saved: LeafState, *cells: Array) -> tuple[LeafState, Array]:
        """Return the saved state of a tile together with its heights, read again."""
        return saved, cells[2]

    def finish(self, place: Place, saved: Any, message: Message) -> dict[str, Array]:
        """Return the height of each cell of a tile above the stream it drains into."""
        blocks = {HEIGHT.name: np.empty(place.window.shape)}
        self.finish_into(place, saved, message, blocks)
        return blocks

    def finish_into(
        self, place: Place, saved: Any, message: Message, blocks: Mapping[str, Array]
    ) -> None:
        """Write the height of each cell of a tile above the stream it drains into."""
        state, heights = saved
        found = blocks[HEIGHT.name]
        table = self._table(place, state, message)
        # The block first holds the heights of streams, as bits in labels, then the differences.
        replace_labels(state.labels, table, found.view(np.int64))
        if heights.dtype == np.uint64:
            found[...] = _subtract(heights, found.view(np.uint64))
        else:
            np.subtract(heights, found, out=found)
        if self.below != KEEP:
            found[found < 0] = 0.0 if self.below == "zero" else np.nan


def _subtract(heights: Array, others: Array) -> Array:
    """Return the difference of 64-bit integer heights, rounded once; NaN where one is missing."""
    # Differences of uint64 are taken from the greater number, since they cannot be negative.
    below = heights < others
    found = np.where(below, others - heights, heights - others).astype(np.float64)
    found[below] *= -1
    found[(heights == NO_HEIGHT) | (others == NO_HEIGHT)] = np.nan
    return found


@operation()
def height_above_drainage(
    elevation: RasterLike,
    direction: RasterLike,
    streams: RasterLike,
    *,
    codes: str | None = None,
    below: str = KEEP,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the height of each cell above the stream it drains into, for rasters of any size.

    Parameters
    ----------
    elevation
    direction : raster
        Flow directions on the same grid, as for `flow_accumulation`.
    streams : raster
        Raster whose cells are streams where they are not 0 or nodata, such as cells of large
        `flow_accumulation`.
    codes
    below : {"keep", "zero", "nodata"}
        What becomes of ground that lies below the stream into which it drains: negative heights
        are kept, become 0, or nodata.
    **options

    Returns
    -------
    xarray.Dataset
        ``height``, float64: the height of the cell minus that of the first stream cell that its
        water reaches; 0 on streams, NaN where water reaches no stream, and where there is no
        height. It is negative in depressions that were filled to compute the directions and are
        left in ``elevation``, of which a warning tells: pass the filled ground, or choose what
        becomes of them by ``below``.
        Coordinates and CRS are those of the directions.

    Raises
    ------
    InputError
        If an argument is invalid, a stream cell has no direction, a code is not one of
        ``codes``, directions form a cycle without a stream, or a height is the greatest 64-bit
        integer.
    StoreExistsError, BackendError

    Notes
    -----
    Any tiling gives the same result.

    References
    ----------
    A. D. Nobre et al., "Height Above the Nearest Drainage, a hydrologically relevant new terrain
    model", doi:10.1016/j.jhydrol.2011.03.051.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> flow = og.flow_direction(valley)
    >>> streams = og.flow_accumulation(flow)["accumulation"] >= 5
    >>> og.height_above_drainage(valley, flow, streams)["height"].values
    array([[4., 4., 5., 7.],
           [3., 0., 0., 0.],
           [4., 4., 5., 7.]])
    """
    check_choice("below", below, BELOW)
    spec = RunSpec(**options)
    heights = spec.open(elevation, "elevation")
    raster, code = open_directions(None, direction, codes)
    marked = open_raster(streams, argument="streams")
    for name, other in (("elevation", heights), ("streams", marked)):
        check_same_grid(name, other, raster)
    check_streams("streams", marked, raster)
    rasters = (raster, heights, marked)
    problem = Drainage(
        *(code, None, None, None, None, heights.nodata, marked.nodata),
        below=below,
        orientation=raster.georeference.orientation,
    )
    return raster_job(problem, rasters, spec, units=units_of(heights, "height"))
