"""The operation `upstream_length`: the longest flow path to each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from orograph.flow.drainage.flow_distance import FlowLengths, MergeState, Summary
from orograph.flow.drainage.lengths import StepLengths
from orograph.flow.flow_problem import FlowProblem, open_directions, refuse_circle
from orograph.kernels.flow.codes import MISSING, OUT, SINK, Codes, leave_at_border
from orograph.kernels.flow.lengths import NONE
from orograph.kernels.flow.longest import compile_kernels, join_longest, longest_paths
from orograph.operations.operation import operation
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job
    from orograph.tiles.raster.raster import RasterLike


@stored("flow-longest")
class LongestSummary:
    """Summary of a node: its paths, their lengths, and the longest of its paths that leave it."""

    through: Summary
    leaving: Integers
    """Length of the longest path that leaves at each border cell, to the cell beyond; 0 if none
    does."""


@stored("flow-longest-state")
class LongestState:
    """Paths between a node's children, and the longest paths that leave each child."""

    through: MergeState
    leaving: Integers

    def join(self, entering: Integers) -> tuple[Integers, Integers]:
        """Return the longest paths that leave and enter the children, given those that enter the
        node.
        """
        junction, leaving = self.through.junction, self.leaving.copy()
        inside = np.zeros(junction.exits.size, np.int64)
        inside[junction.border] = entering
        paths = junction.order, junction.exits, junction.onward
        join_longest(*paths, self.through.lengths, leaving, inside, 0)
        return leaving, inside


@dataclass(frozen=True)
class UpstreamLengths(FlowProblem):
    """Lengths of the longest paths to each cell as a problem of the quadtree sweep."""

    steps: StepLengths

    name = "upstream-length"
    stage = "longest_paths"

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes."""
        return self.flow_bytes(cells, 8 + 2)  # a length, and marks

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of longest paths."""
        compile_kernels()

    @property
    def _through(self) -> FlowLengths:
        """The problem of path lengths through tiles and nodes."""
        return FlowLengths(self.codes, self.steps)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Lengths of the longest paths."""
        attrs = self.steps.attributes("longest upstream flow path")
        return (Variable("length", np.dtype(np.float64), np.nan, attrs),)

    def leaf(self, place: Place, *cells: Array) -> tuple[LongestSummary, Codes]:
        """Return the longest paths that leave a tile; save its directions."""
        through, numbers = self._through.leaf(place, *cells)
        border = border_cells(*place.window.shape, place.sides)
        if not border.size:
            return LongestSummary(through, border), numbers
        tile = leave_at_border(numbers)
        longest = self._longest(place, tile, np.zeros(border.size, np.int64))[border]
        # Lengths are counted to the first cell beyond the tile; what does not leave brings nothing
        # there.
        out = tile.reshape(-1)[border] == OUT
        steps = self._steps_of(place, numbers, border[out])
        longest[out] += steps
        longest[~out] = 0
        return LongestSummary(through, longest), numbers

    def merge(
        self, place: Place, children: Sequence[tuple[Place, LongestSummary]]
    ) -> tuple[LongestSummary, LongestState]:
        """Return the longest of the node's own paths that leave it."""
        below = [(child, summary.through) for child, summary in children]
        through, saved = self._through.merge(place, below)
        junction = saved.junction
        leaving = np.zeros(junction.exits.size, np.int64)
        for member, (_, summary) in zip(junction.members, children, strict=True):
            leaving[member] = summary.leaving
        state = LongestState(saved, leaving)
        # In the upward sweep no path enters the node.
        all_leaving, _ = state.join(np.zeros(junction.border.size, np.int64))
        return LongestSummary(through, all_leaving[junction.border]), state

    def root(self, summary: LongestSummary) -> tuple[Integers, dict[str, Any]]:
        """Return nothing: no path enters the grid."""
        return np.empty(0, np.int64), {}

    def down(
        self, place: Place, saved: LongestState, message: Integers, children: Sequence[Place]
    ) -> list[Integers]:
        """Return for each child the longest path that enters it at each border cell."""
        _, entering = saved.join(message)
        return [entering[member] for member in saved.through.junction.members]

    def finish(self, place: Place, saved: Codes, message: Integers) -> dict[str, Array]:
        """Return the lengths of the longest paths to the cells of a tile."""
        found = self._longest(place, leave_at_border(saved), message)
        found[saved.reshape(-1) == MISSING] = NONE
        return {"length": self.steps.rounded(found).reshape(place.window.shape)}

    def _longest(self, place: Place, tile: Codes, entering: Integers) -> Integers:
        """Return the longest path to each cell of a tile, given those that enter it."""
        found = np.zeros(tile.size, np.int64)
        # The kernel takes the maximum, so what enters is a lower bound of the length at its cell.
        found[border_cells(*place.window.shape, place.sides)] = entering
        refuse_circle(longest_paths(tile, self.steps.of_rows(place.window), found), place.window)
        return found

    def _steps_of(self, place: Place, numbers: Codes, cells: Integers) -> Integers:
        """Return the lengths of the steps that lead out of a tile from cells at its border."""
        lengths, codes = self.steps.of_rows(place.window), numbers.reshape(-1)[cells]
        rows = cells // place.window.width if len(lengths) > 1 else 0
        found: Integers = lengths[rows, np.minimum(codes, SINK - 1)]
        return found


@operation()
def upstream_length(
    direction: RasterLike,
    *,
    codes: str | None = None,
    cell_size: float | tuple[float, float] | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the length of the longest flow path to each cell of a raster of any size.

    Parameters
    ----------
    direction, codes, cell_size
    **options

    Returns
    -------
    xarray.Dataset
        ``length``, float64: the length of the longest flow path that ends in the cell; 0 where no
        water comes from elsewhere, NaN on nodata. The unit is as for `flow_distance`. Coordinates
        and CRS are those of the directions.

    Raises
    ------
    InputError
        If an argument is invalid, the coordinates do not determine the size of cells, a code is not
        one of ``codes``, or directions form a cycle.
    StoreExistsError, BackendError

    Notes
    -----
    Lengths of steps are rounded as in `flow_distance`, and their sums are exact, so any tiling
    gives the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> og.upstream_length(og.flow_direction(valley))["length"].values.round(2)
    array([[0.  , 0.  , 0.  , 0.  ],
           [0.  , 1.41, 2.41, 3.41],
           [0.  , 0.  , 0.  , 0.  ]])
    """
    spec = RunSpec(**options)
    raster, code = open_directions(spec, direction, codes)
    steps = StepLengths.of_raster(raster, cell_size, wraps_of(raster, spec.wrap))
    problem = UpstreamLengths(code, steps, orientation=raster.georeference.orientation)
    return raster_job(problem, (raster,), spec)
