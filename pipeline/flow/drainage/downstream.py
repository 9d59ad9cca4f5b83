"""The operation `downstream`: statistics of the cells on the flow path from each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import EXACT, refuse_cell
from orograph.arguments.grids import check_same_grid
from orograph.flow.accumulation import MOST
from orograph.flow.drainage.flow_distance import end_in_streams
from orograph.flow.drainage.lengths import StepLengths
from orograph.flow.flow_problem import (
    FlowProblem,
    check_streams,
    open_directions,
    refuse_circle,
    stream_cells,
)
from orograph.flow.paths import Junction, Paths, join_paths, paths_of_tile
from orograph.flow.upstream import keys_of, values_of
from orograph.kernels.flow.accumulate import BITS, find_circle, from_fixed
from orograph.kernels.flow.codes import MISSING, OUT, SINK, Codes, leave_at_border
from orograph.kernels.flow.downstream import NOTHING, compile_kernels, descend, join_downstream
from orograph.operations.operation import operation
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import check_outputs
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.format.codec import stored
from orograph.tiles.grid.border import border_cells
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.raster.wrap import wraps_of
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job

STATISTICS = ("outlet", "mean", "min", "max")


@stored("flow-downstream")
class Summary:
    """Summary of a node: the paths from its border cells, and their amounts."""

    paths: Paths
    amounts: Integers
    """Amounts of the path from each border cell, to its end or to the border of the node."""


@stored("flow-downstream-state")
class MergeState:
    """Paths between a node's children, and their amounts."""

    junction: Junction
    amounts: Integers


@dataclass(frozen=True)
class Downstream(FlowProblem):
    """Statistics of the cells downstream as a problem of the quadtree sweep."""

    statistics: tuple[str, ...]
    steps: StepLengths
    values_nodata: float | int | None
    to_nodata: float | int | None
    digits: int
    """Binary digits of each of the two words after the point of a sum, whose sums fit 64 bits."""
    most: float
    """Greatest size of a value that can be summed."""

    name = "downstream"
    joins_on_cpus = False  # larger tiles take more memory, of which each term takes some

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes; the rasters are read twice."""
        terms = self.least.size
        # amounts, the path, whether a cell is done; values and streams; the sum and its digits
        needs = self.flow_bytes(cells, 8 * terms + 9 + 9 + 40)
        read = cells.grid * sum(dtype.itemsize for dtype in cells.dtypes)
        return replace(needs, border=(160 + 16 * terms, 160 + 8 * terms), read_again=read)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of paths."""
        compile_kernels()

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """A raster of each statistic."""
        words = {"outlet": "value at the outlet"}
        names = {name: words.get(name, f"{name} of the values") for name in self.statistics}
        return tuple(
            Variable(name, np.dtype(np.float64), np.nan, {"long_name": f"{what} downstream"})
            for name, what in names.items()
        )

    @property
    def least(self) -> npt.NDArray[np.bool_]:
        """Whether the least amount is taken of each term; the first tells whether a path ends."""
        terms = [[False] * 4 if name == "mean" else [True] for name in self.statistics]
        return np.array([True, *(term for some in terms for term in some)])

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Return the values of a window as floats, NaN where there are none, and its streams."""
        given, *streams = others
        values = np.where(valid_cells(given, self.values_nodata), given, np.nan).astype(np.float64)
        values[np.isinf(values)] = np.nan
        large = (np.abs(values) > self.most) & (numbers != MISSING)
        if large.any():
            why = f"; a value must be {self.most:.4g} at most in size: divide all"
            refuse_cell("values", given, int(large.argmax()), window, why)
        return [values, *(stream_cells("to", s, self.to_nodata, numbers, window) for s in streams)]

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Codes]:
        """Return the amounts of the paths from the border of a tile; save where paths end."""
        numbers, values, *streams = cells
        if streams:
            numbers = end_in_streams(numbers, streams[0])
        tile = leave_at_border(numbers)
        refuse_circle(find_circle(tile), place.window)
        border = border_cells(*place.window.shape, place.sides)
        paths = paths_of_tile(place, numbers, tile)
        if not border.size:  # a grid of one tile
            return Summary(paths, self._nothing(0)), numbers
        found = self._amounts(place, numbers, values)
        descend(tile, self.least, found)
        return Summary(paths, found[:, border]), numbers

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Return the amounts of the paths from the node's border cells."""
        junction, paths = join_paths(place, children)
        amounts = self._nothing(junction.exits.size)
        for member, (_, summary) in zip(junction.members, children, strict=True):
            amounts[:, member] = summary.amounts
        saved = MergeState(junction, amounts)
        beyond = self._beyond(saved, self._nothing(junction.border.size))
        after = np.where(
            junction.exits < 0, self._nothing(junction.exits.size), beyond[:, junction.exits]
        )
        return Summary(paths, self._joined(amounts, after)[:, junction.border]), saved

    def root(self, summary: Summary) -> tuple[Integers, dict[str, Any]]:
        """Return nothing: no path leaves the grid."""
        return self._nothing(0), {}

    def down(
        self, place: Place, saved: MergeState, message: Integers, children: Sequence[Place]
    ) -> list[Integers]:
        """Return for each child the amounts beyond each of its border cells."""
        beyond = self._beyond(saved, message)
        return [beyond[:, member] for member in saved.junction.members]

    def reread(self, place: Place, saved: Codes, *cells: Array) -> tuple[Codes, Reals]:
        """Return the saved directions of a tile and its values, read again."""
        return saved, cells[1]

    def finish(
        self, place: Place, saved: tuple[Codes, Reals], message: Integers
    ) -> dict[str, Array]:
        """Return the statistics of each cell of a tile."""
        numbers, values = saved
        found, tile = self._amounts(place, numbers, values), leave_at_border(numbers)
        border = border_cells(*place.window.shape, place.sides)
        out = tile.reshape(-1)[border] == OUT
        cells = border[out]
        found[:, cells] = self._joined(found[:, cells], message[:, out])
        descend(tile, self.least, found)
        ends, *terms = found
        blocks = {}
        for name in self.statistics:
            if name == "mean":
                block = self._mean(terms[:4], tile.reshape(-1))
                # no step leads from the last cell of a path
                alone = (tile == SINK).reshape(-1)
                block[alone] = values.reshape(-1)[alone]
                del terms[:4]
            else:
                keys = terms.pop(0)
                block = np.where(
                    keys == NOTHING, np.nan, values_of(~keys if name == "max" else keys)
                )
            block[ends == NOTHING] = np.nan
            blocks[name] = block.reshape(tile.shape)
        return blocks

    def _nothing(self, count: int) -> Integers:
        """Return the amounts of paths without cells."""
        return np.repeat(np.where(self.least, NOTHING, 0)[:, None], count, axis=1)

    def _joined(self, amounts: Integers, after: Integers) -> Integers:
        """Return the amounts of paths that go on along others."""
        least = self.least[:, None]
        joined: Integers = np.where(
            least, np.minimum(amounts, after), amounts + np.where(least, 0, after)
        )
        return joined

    def _beyond(self, saved: MergeState, leaving: Integers) -> Integers:
        """Return the amounts beyond the border of each child, given those beyond the node."""
        junction = saved.junction
        beyond = self._nothing(junction.exits.size)
        beyond[:, junction.border] = leaving
        join_downstream(
            *(junction.order, junction.exits, junction.onward),
            *(self.least, saved.amounts, beyond),
        )
        return beyond

    def _amounts(self, place: Place, numbers: Codes, values: Reals) -> Integers:
        """Return the amounts of each cell of a tile for each term."""
        flat, given = numbers.reshape(-1), values.reshape(-1)
        lacks, end = np.isnan(given), flat == SINK
        keys = keys_of(given + 0.0)  # of the zeros, only the positive one
        terms = [np.where(end, 0, NOTHING)]
        for name in self.statistics:
            if name != "mean":
                counts = ~lacks & end if name == "outlet" else ~lacks
                terms.append(np.where(counts, ~keys if name == "max" else keys, NOTHING))
                continue
            lengths = self.steps.of_rows(place.window)
            rows = np.arange(flat.size) // place.window.width if len(lengths) > 1 else 0
            whole = np.where((flat < SINK) & ~lacks, lengths[rows, np.minimum(flat, SINK - 1)], 0)
            product = np.ldexp(whole.astype(np.float64), -self.steps.bits) * np.where(
                lacks, 0, given
            )
            # whole units, and two words of digits: whole numbers whose sums are exact
            rest, sign = np.abs(product), np.sign(product).astype(np.int64)
            terms.append(whole)
            for _ in range(2):
                part = np.floor(rest)
                terms.append(sign * part.astype(np.int64))
                rest = np.ldexp(rest - part, self.digits)
            terms.append(sign * np.rint(rest).astype(np.int64))
        return np.array(terms)

    def _mean(self, sums: Sequence[Integers], numbers: Codes) -> Reals:
        """Return the quotients of sums: of the lengths, and of the words of the products."""
        lengths, high, middle, low = sums
        mask = 2**self.digits - 1
        middle = middle + (low >> self.digits)
        high = high + (middle >> self.digits)
        fraction = (((middle & mask) << self.digits) | (low & mask)) << (BITS - 2 * self.digits)
        negative = high < 0
        high = np.where(negative, -high - (fraction != 0), high)
        fraction = np.where(negative, -fraction & (2**BITS - 1), fraction)
        found = np.empty(high.size)
        from_fixed(numbers, high, fraction, found)
        with np.errstate(invalid="ignore"):  # where no cell has a value
            mean: Reals = np.where(negative, -found, found) / self.steps.rounded(lengths)
        return mean


@operation()
def downstream(
    direction: RasterLike,
    values: RasterLike,
    to: RasterLike | None = None,
    *,
    statistics: str | Sequence[str] = "outlet",
    codes: str | None = None,
    cell_size: float | tuple[float, float] | None = None,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return statistics of the cells on the flow path from each cell, for rasters of any size.

    Parameters
    ----------
    direction
    values : raster
        Values on the same grid, such as heights, slopes or kinds of land. Nodata, NaN and infinite
        cells are left out.
    to : raster, optional
        Raster whose cells are streams where they are not 0 or nodata: paths end at the first. By
        default they end where water leaves the grid, flows into nodata or ends.
    statistics : str or sequence of str
        One or more of ``"outlet"``, the value at the last cell of the path, ``"mean"``, the mean
        weighted by the lengths of steps, ``"min"`` and ``"max"``.
    codes, cell_size
    **options

    Returns
    -------
    xarray.Dataset
        One raster for each statistic, float64, of the cells from each cell down to the last one of
        its path, both included; NaN where they have no value, where water reaches no stream, and on
        nodata of the directions. They have the unit of the values. Coordinates and CRS are those of
        the directions.

    Raises
    ------
    InputError
        If an argument is invalid, the grids differ, the coordinates do not determine the size of
        cells, the raster holds angles (D-infinity), a code is not one of ``codes``, directions form
        a cycle, or a value is too large.
    StoreExistsError, BackendError

    Notes
    -----
    In the mean each cell weighs as much as the step by which its water leaves it is long; the last
    cell, which no step leaves, only counts if the path has no other. Lengths are rounded as in
    `flow_distance`, and the product of a length and a value to a float and to a multiple of 2**-62,
    or of a higher power of two if the grid has 2**31 cells or more. Their sums are exact, and are
    rounded before one is divided by the other, so any tiling gives the same bits. Products must not
    be greater than 2**62 over the number of cells of the grid; whole numbers must be below 2**53.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> valley = np.array([[9, 9, 9, 9], [8, 5, 4, 2], [9, 9, 9, 9]])
    >>> flow = og.flow_direction(valley)
    >>> og.downstream(flow, valley)["outlet"].values
    array([[2., 2., 2., 2.],
           [2., 2., 2., 2.],
           [2., 2., 2., 2.]])
    >>> og.downstream(flow, valley, statistics="mean")["mean"].values.round(2)
    array([[6.36, 6.  , 6.5 , 9.  ],
           [5.67, 4.5 , 4.  , 2.  ],
           [6.36, 6.  , 6.5 , 9.  ]])
    """
    spec = RunSpec(**options)
    raster, code = open_directions(spec, direction, codes)
    other = open_raster(values, argument="values")
    check_same_grid("values", other, raster)
    rasters: list[Raster] = [raster, other]
    if to is not None:
        rasters.append(open_raster(to, argument="to"))
        check_same_grid("to", rasters[-1], raster)
        check_streams("to", rasters[-1], raster)
    wanted = tuple(dict.fromkeys(check_outputs(statistics, STATISTICS, "statistics")))
    steps = StepLengths.of_raster(raster, cell_size, wraps_of(raster, spec.wrap))
    cells = raster.shape[0] * raster.shape[1]
    most = float(EXACT - 1) if other.dtype.kind in "iu" else float(np.finfo(np.float64).max)
    if "mean" in wanted:
        most = min(most, MOST / cells / float(np.ldexp(float(steps.whole.max()), -steps.bits)))
    problem = Downstream(
        *(code, wanted, steps, other.nodata, rasters[-1].nodata),
        *(min(BITS // 2, BITS - cells.bit_length()), most),
        orientation=raster.georeference.orientation,
    )
    return raster_job(problem, tuple(rasters), spec, units=units_of(other, *wanted))
