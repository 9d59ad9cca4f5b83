"""Given streams: cells that are lowered, and steps that water takes along lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np

from orograph.arguments.cells import refuse_inexact
from orograph.arguments.grids import check_same_grid
from orograph.arguments.places import values_at
from orograph.arguments.routing import RoutingSpec
from orograph.arguments.sources import geometries_inside, is_source
from orograph.engines.map_overlap import LocalProblem
from orograph.kernels.flow.codes import LEAVES, STEPS
from orograph.kernels.flow.route import OUTSIDE, carry_least, order_leaving
from orograph.run.problem import Bytes, CellCounts
from orograph.terrain.epsilon_fill import FREE, FixedSteps
from orograph.terrain.outlets import leave_at
from orograph.terrain.water import Marks, Outlets
from orograph.tiles.arguments import check_number, refuse_arguments
from orograph.tiles.arrays import Array, Integers, Reals
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster
from orograph.tiles.store.create import Variable
from orograph.tiles.vector.burn import chains, join_corners, simple_parts
from orograph.tiles.vector.layer import VectorLayer, read_layer
from orograph.tiles.warn import warn_user

STREAMS, BURNED = "streams", "burned"
"""Names of the raster that marks streams, and of the raster in which they are lowered."""
LARGEST = float(np.finfo(np.float64).max)
_NUMBER = np.full((3, 3), FREE)
"""Number of the step by rows and columns from -1."""
for _number, (_dy, _dx) in enumerate(STEPS):
    _NUMBER[_dy + 1, _dx + 1] = _number


@dataclass(frozen=True)
class BurnedStreams(LocalProblem):
    """Heights in which streams are lowered, as a problem of `MapOverlap`."""

    nodata: float | int | None
    burn: float
    """Depth by which the cells of a raster of streams are lowered."""
    marks: Marks | None = None
    """Marks of the cells of streams in a raster."""
    lines: FixedSteps | None = None
    """Cells of lines, with the steps along them."""
    lowered: Reals | None = None
    """Heights of the cells of lines."""

    name = "burn-streams"
    backend = "numba"
    halo = 0
    may_wrap = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run."""
        return Bytes(sum(dtype.itemsize for dtype in cells.dtypes) + 8 + 2, 2 * 8)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of heights."""
        attrs = {"long_name": "elevation with lowered streams"}
        return (Variable(BURNED, np.dtype(np.float64), np.nan, attrs),)

    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> dict[str, Array]:
        """Return the heights of a part, float64."""
        elevation, *marked = cells
        valid = valid_cells(elevation, self.nodata)
        refuse_inexact("elevation", elevation, valid, frame, "with streams heights are float64")
        heights = np.where(valid, elevation, np.nan).astype(np.float64)
        if self.marks is not None:
            heights[is_source(marked[0], *self.marks)] -= self.burn
        if self.lines is not None:
            assert self.lowered is not None
            y, x, which = self.lines.within(window)
            heights[y, x] = self.lowered[which]
        return {BURNED: heights}


class GivenStreams(NamedTuple):
    """Streams as the arguments of an operation give them."""

    burned: BurnedStreams | None = None
    """Problem that lowers their cells; None without streams."""
    rasters: tuple[Raster, ...] = ()
    """The raster that marks them, unless they are lines."""
    notes: Mapping[str, Any] = MappingProxyType({})
    """Attributes of the result."""

    @property
    def fixed(self) -> FixedSteps | None:
        """Steps along lines, if there are any."""
        return None if self.burned is None else self.burned.lines


def parse_streams(
    elevation: Raster,
    given: RoutingSpec,
    method: str,
    wraps: bool,
    outlets: Outlets | None,
    marked: Iterable[Raster],
) -> GivenStreams:
    """Check given streams, and bring lines to the grid.

    ``marked`` are the rasters that mark some of the outlets.

    Raises
    ------
    InputError
        If they are neither a raster nor lines, lines form a loop, or nothing would be lowered.
    """
    depth = 0.0 if given.burn is None else float(check_number("burn", given.burn, 0, LARGEST))
    if given.streams is None:
        refuse_arguments("heights without streams=", burn=given.burn is not None)
        return GivenStreams()
    layer = read_layer(given.streams, STREAMS)
    if layer is None:
        raster = open_raster(cast("RasterLike", given.streams), argument=STREAMS)
        check_same_grid(STREAMS, raster, elevation)
        if not depth:
            raise InputError(
                "burn: a raster of streams only lowers heights, and by how much is not given; pass "
                "burn=, or lines drawn downstream"
            )
        burned = BurnedStreams(elevation.nodata, depth, Marks(raster.nodata, None))
        return GivenStreams(burned, (raster,), {"burn": depth})
    refuse_arguments(
        "lines as streams=",
        method=method != "d8",
        depressions=given.depressions != "fill",
        flats=given.flats == "gradient",
    )
    passed = _chains_of(elevation, layer, given.connectivity, wraps)
    net, heights = _net_of(elevation, passed, wraps)
    least = _least_upstream(net, heights, elevation.shape[1])
    gaps = np.flatnonzero(net.steps == FREE)
    gaps = gaps[~leave_at(net.cells[gaps], elevation, outlets, marked, wraps)]
    notes = _tell(net, gaps, heights - least, depth, elevation.shape[1])
    steps = FixedSteps(net.cells, net.steps, elevation.shape[1])
    burned = BurnedStreams(elevation.nodata, depth, lines=steps, lowered=least - depth)
    return GivenStreams(burned, (), {"burn": depth, **notes})


class _Net(NamedTuple):
    """Cells of lines, and where water goes from each."""

    cells: Integers
    """Row-major indices, ascending."""
    steps: Array
    """Number of the step from each cell, plus `LEAVES` where it leads off the grid or into nodata;
    `FREE` where all lines end."""
    onward: Integers
    """Index of the next cell, `OUTSIDE` where there is none."""
    line: Integers
    """Index of the line by which each goes on, or that ends there."""


class _Chains(NamedTuple):
    """Cells that lines pass, one chain after the other."""

    row: Integers
    column: Integers
    number: Integers
    """Number of the chain to which each cell belongs, ascending."""
    line: Integers
    """Number of the line of each chain."""


def _chains_of(elevation: Raster, layer: VectorLayer, connectivity: int, wraps: bool) -> _Chains:
    """Return the cells that lines pass, consecutive ones a step apart."""
    wrong = [kind for kind in (g.geom_type for g in layer.geometry) if "Line" not in kind]
    if wrong:
        raise InputError(f"streams: a {wrong[0]} among them; give lines drawn downstream alone")
    inside, moved = geometries_inside(layer, elevation, STREAMS, "skip")
    parts, of = simple_parts(moved.geometry[inside])
    column, row, number, of_chain = chains(
        parts, elevation.georeference, elevation.shape, wraps, STREAMS
    )
    if connectivity == 4:
        column, row, number = join_corners(column, row, number)
    return _Chains(row, column, number, np.flatnonzero(inside)[of[of_chain]])


def _net_of(elevation: Raster, given: _Chains, wraps: bool) -> tuple[_Net, Reals]:
    """Return the cells that chains of cells pass, where each goes on, and their heights."""
    (height, width), (row, column, chain, line) = elevation.shape, given
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    at = np.where(inside, row * width + column, -1)
    heights = np.zeros(len(at), elevation.dtype)
    heights[inside] = values_at(elevation, np.stack([row, column], axis=1)[inside])
    valid = inside & valid_cells(heights, elevation.nodata)
    _refuse_loops(at, valid, chain, line, width)
    # what follows each cell of a chain
    follows = np.append(chain[1:] == chain[:-1], False)
    after = np.minimum(np.arange(len(at)) + 1, len(at) - 1)
    dy, dx = row[after] - row, column[after] - column
    if wraps:
        dx = (dx + width // 2) % width - width // 2
    follows &= (abs(dy) <= 1) & (abs(dx) <= 1)
    step = _NUMBER[np.clip(dy, -1, 1) + 1, np.clip(dx, -1, 1) + 1].astype(np.int64)
    step = np.where(follows, np.where(valid[after], step, step + LEAVES), FREE)
    target = np.where(follows & valid[after], at[after], -1)
    # Of the steps from a cell that of the first line counts, and of a line the last one.
    kept = np.flatnonzero(valid)
    keys = np.lexsort((-kept, line[chain[kept]], step[kept] == FREE, at[kept]))
    kept = kept[keys]
    cells, first = np.unique(at[kept], return_index=True)
    kept = kept[first]
    onward = np.where(target[kept] >= 0, np.searchsorted(cells, target[kept]), OUTSIDE)
    if not len(cells):
        raise InputError("streams: all lines lie on nodata; check their CRS")
    net = _Net(cells, step[kept].astype(np.uint8), onward, line[chain[kept]])
    return net, heights[kept].astype(np.float64)


def _least_upstream(net: _Net, heights: Reals, width: int) -> Reals:
    """Return the least height of all cells that lead to each along lines, itself included."""
    order, circle = order_leaving(np.arange(len(net.cells)), net.onward)
    if circle >= 0:
        y, x = divmod(int(net.cells[circle]), width)
        raise InputError(
            f"streams: line {net.line[circle]} leads in a loop through row {y}, column {x}; lines "
            "must be drawn downstream: turn those that are drawn upstream, or leave out a branch"
        )
    least = heights.copy()
    carry_least(order, net.onward, least)
    return least


def _refuse_loops(at: Integers, valid: Array, chain: Integers, line: Integers, width: int) -> None:
    """Raise InputError for a line that comes back to a cell otherwise than the way it went."""
    pairs, count = np.unique(np.stack([chain[valid], at[valid]]), axis=1, return_counts=True)
    for number in np.unique(pairs[0, count > 1]).tolist():
        first, last = np.searchsorted(chain, (number, number + 1)).tolist()
        path: list[int] = []
        place: dict[int, int] = {}
        for cell in at[first:last].tolist():
            if cell < 0:
                path, place = [], {}
            elif len(path) > 1 and path[-2] == cell:
                del place[path.pop()]
            elif cell in place:
                y, x = divmod(cell, width)
                raise InputError(
                    f"streams: line {line[number]} comes back to row {y}, column {x} in a loop of "
                    f"{len(path) - place[cell]} cells; leave the loop out, or use smaller cells"
                )
            else:
                place[cell] = len(path)
                path.append(cell)


def _tell(net: _Net, gaps: Integers, rise: Reals, burn: float, width: int) -> dict[str, int]:
    """Warn of lines that end within the grid and of lines that rise; return how many do."""
    rising = np.unique(net.line[rise > burn])
    if gaps.size:
        y, x = divmod(int(net.cells[gaps[0]]), width)
        warn_user(
            f"streams: ends of lines within the grid and on no other line: {gaps.size}, that of "
            f"line {net.line[gaps[0]]} at row {y}, column {x}; from there water follows the heights"
        )
    if rising.size:
        most = int(rise.argmax())
        warn_user(
            f"streams: lines that rise by more than burn={burn:g}: {rising.size}, line "
            f"{net.line[most]} by {rise[most]:.6g}; are they drawn downstream?"
        )
    return {"stream_gaps": int(gaps.size), "stream_rises": int(rising.size)}
