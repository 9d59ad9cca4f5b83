"""Lengths of flow paths to their ends or to a stream, for rasters of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.arguments.grids import check_same_grid
from orograph.flow.drainage.lengths import StepLengths
from orograph.flow.flow_problem import (
    FlowProblem,
    check_streams,
    open_directions,
    refuse_circle,
    stream_cells,
)
from orograph.flow.paths import Junction, Paths, join_paths, paths_of_tile
from orograph.kernels.flow.codes import MISSING, OUT, SINK, Codes, leave_at_border
from orograph.kernels.flow.lengths import NONE, compile_kernels, join_lengths, measure_paths
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


@stored("flow-lengths")
class Summary:
    """Summary of a node: the paths from its border cells, and how long they are."""

    paths: Paths
    lengths: Integers
    """Length of the path from each border cell, to its end or to the first cell beyond the node; -1
    if it reaches neither."""


@stored("flow-lengths-state")
class MergeState:
    """Paths between a node's children, and their lengths."""

    junction: Junction
    lengths: Integers

    def beyond(self, leaving: Integers) -> Integers:
        """Return the length beyond the border of each child, given that beyond the border of the
        node.
        """
        junction = self.junction
        beyond = np.full(junction.exits.size, NONE)
        beyond[junction.border] = leaving
        join_lengths(junction.order, junction.exits, junction.onward, self.lengths.copy(), beyond)
        return beyond


@dataclass(frozen=True)
class FlowLengths(FlowProblem):
    """Lengths of flow paths as a problem of the quadtree sweep."""

    steps: StepLengths
    to_nodata: float | int | None = None

    name = "flow-distance"
    stage = "measure_paths"

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes."""
        # a length, and marks of a stream and of what it reaches
        return self.flow_bytes(cells, 8 + 2 + sum(dtype.itemsize for dtype in cells.dtypes[1:]))

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of path lengths."""
        compile_kernels()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Distances along the flow."""
        attrs = self.steps.attributes("distance along the flow")
        return (Variable("distance", np.dtype(np.float64), np.nan, attrs),)

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return the cells of streams, if there is such a raster."""
        return [stream_cells("to", given, self.to_nodata, numbers, window) for given in others]

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Codes]:
        """Return the lengths of the paths from the border of a tile; save where paths end."""
        numbers, *streams = cells
        if streams:
            numbers = end_in_streams(numbers, streams[0])
        tile = leave_at_border(numbers)
        border = border_cells(*place.window.shape, place.sides)
        paths = paths_of_tile(place, numbers, tile)
        if not border.size:  # a grid of one tile
            return Summary(paths, border), numbers
        found = self._measure(place, numbers, tile, np.zeros(border.size, np.int64))
        return Summary(paths, found[border]), numbers

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Return the lengths of the paths from the node's border cells."""
        junction, paths = join_paths(place, children)
        lengths = np.full(junction.exits.size, NONE)
        for member, (_, summary) in zip(junction.members, children, strict=True):
            lengths[member] = summary.lengths
        saved = MergeState(junction, lengths)
        # In the upward sweep paths are measured to the first cell beyond the node.
        beyond = saved.beyond(np.zeros(junction.border.size, np.int64))
        exits = junction.exits
        # A path that ends in its child has its whole length already. One that goes on, but reaches
        # neither an end nor the border, has none.
        after = np.where(exits < 0, 0, beyond[exits])
        lengths = np.where(after == NONE, NONE, lengths + after)[junction.border]
        return Summary(paths, lengths), saved

    def root(self, summary: Summary) -> tuple[Integers, dict[str, Any]]:
        """Return nothing: no path leaves the grid."""
        return np.empty(0, np.int64), {}

    def down(
        self, place: Place, saved: MergeState, message: Integers, children: Sequence[Place]
    ) -> list[Integers]:
        """Return for each child the lengths of the paths beyond each of its border cells."""
        beyond = saved.beyond(message)
        return [beyond[member] for member in saved.junction.members]

    def finish(self, place: Place, saved: Codes, message: Integers) -> dict[str, Array]:
        """Return the distances of a tile."""
        found = self._measure(place, saved, leave_at_border(saved), message)
        return {"distance": self.steps.rounded(found).reshape(place.window.shape)}

    def _measure(self, place: Place, numbers: Codes, tile: Codes, beyond: Integers) -> Integers:
        """Return the lengths of all paths, given those beyond each border cell; refuse cycles."""
        window = place.window
        lengths = self.steps.of_rows(window)
        found = np.empty(tile.size, np.int64)
        border = border_cells(*window.shape, place.sides)
        # The step across the border is added here: the message begins with the cell beyond it.
        leaves = (tile.reshape(-1)[border] == OUT) & (beyond != NONE)
        found[border] = beyond
        out = border[leaves]
        rows = out // window.width if len(lengths) > 1 else 0
        found[out] += lengths[rows, numbers.reshape(-1)[out]]
        refuse_circle(measure_paths(tile, lengths, found), window)
        return found


def end_in_streams(numbers: Codes, streams: Array) -> Codes:
    """Return the numbers of a tile where paths end in streams; others reach nothing."""
    numbers = np.where(numbers == SINK, np.uint8(MISSING), numbers)
    numbers[streams] = SINK
    return numbers


@operation()
def flow_distance(
    direction: RasterLike,
    to: RasterLike | None = None,
    *,
    codes: str | None = None,
    cell_size: float | tuple[float, float] | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the distance along the flow from each cell to a stream or to where the flow ends.

    Parameters
    ----------
    direction
    to : raster, optional
        Raster whose cells are streams where they are not 0 or nodata, such as cells of large
        `flow_accumulation`. By default water is followed to its last cell, where it leaves the
        grid, flows into nodata or ends.
    codes, cell_size
    **options

    Returns
    -------
    xarray.Dataset
        ``distance``, float64: the length of the flow path from the cell to the last cell, or to the
        first stream cell on it; 0 at these cells, NaN where water reaches no stream, and on nodata.
        The unit, in the attribute ``units``, is the metre if the CRS or the coordinates tell
        theirs (in degrees along geodesics), cells without coordinates, else the unknown one of the
        coordinates. Coordinates and CRS are those of the directions.

    Raises
    ------
    InputError
        If an argument is invalid, the coordinates do not determine the size of cells, a stream cell
        has no direction, a code is not one of ``codes``, or directions form a cycle without a
        stream.
    StoreExistsError, BackendError

    Notes
    -----
    The length of each step is rounded to a multiple of 2**-20; to a multiple of a lower power of
    two if all steps are shorter than 1; and to a multiple of a higher one if the path through all
    cells would otherwise not fit into a 64-bit integer. Their sums are exact, so any tiling gives
    the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> flow = og.flow_direction(valley)
    >>> og.flow_distance(flow)["distance"].values.round(2)
    array([[3.41, 3.  , 2.  , 1.  ],
           [3.  , 2.  , 1.  , 0.  ],
           [3.41, 3.  , 2.  , 1.  ]])
    >>> streams = og.flow_accumulation(flow)["accumulation"] >= 7
    >>> og.flow_distance(flow, streams)["distance"].values.round(2)
    array([[2.41, 2.  , 1.  , 1.  ],
           [2.  , 1.  , 0.  , 0.  ],
           [2.41, 2.  , 1.  , 1.  ]])
    """
    spec = RunSpec(**options)
    raster, code = open_directions(spec, direction, codes)
    rasters: tuple[Raster, ...] = (raster,)
    if to is not None:
        marked = open_raster(to, argument="to")
        check_same_grid("to", marked, raster)
        check_streams("to", marked, raster)
        rasters = (raster, marked)
    steps = StepLengths.of_raster(raster, cell_size, wraps_of(raster, spec.wrap))
    orientation = raster.georeference.orientation
    problem = FlowLengths(code, steps, rasters[-1].nodata, orientation=orientation)
    return raster_job(problem, rasters, spec)
