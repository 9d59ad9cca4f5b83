"""D8 flow directions as a problem of the frontier engine, which resolves flats across tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.problem import FrontierProblem
from orograph.engines.frontier.protocol import Border, Request, Visit
from orograph.kernels.flow.codes import ENCODINGS, LEAVES, MISSING, SINK, STEPS, Codes
from orograph.kernels.flow.directions import (
    comparable,
    compile_kernels,
    enter_hops,
    spread_hops,
    start_away,
    start_hops,
    step_along_flats,
    step_down_gradients,
)
from orograph.kernels.relax.border import facing, inner_of
from orograph.kernels.stages import kernel
from orograph.run.problem import Bytes, CellCounts
from orograph.terrain.epsilon_fill import FixedSteps
from orograph.terrain.water import Outlets
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.errors import InputError
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.store.create import Variable


@dataclass(slots=True)
class State:
    """A tile with a halo of one cell: heights, directions, and distances to a drain on flats."""

    surface: Array
    numbers: Codes
    hops: Array
    undrained: Integers
    """Cells without a lower neighbour, row-major with the halo."""
    pending: Integers
    """Cells whose hops have not been carried on to their neighbours."""
    facing: list[npt.NDArray[np.bool_]]
    """Masks of the border cells that are as high as a cell across, one for each neighbour."""
    away: Array | None
    """Hops from higher ground, if steps over flats go by them."""
    ends: npt.NDArray[np.bool_] | None
    """Mask of the cells that are given as outlets or sinks, if there are any."""


@dataclass(frozen=True)
class Directions(FrontierProblem):
    """D8 flow directions as a problem of the frontier engine."""

    shape: tuple[int, int]
    nodata: float | int | None
    reciprocals: npt.NDArray[np.float64]
    """Reciprocals of the lengths of `STEPS`, for each row or for all; (rows or 1, 8)."""
    codes: str
    backend: str = "numba"
    gradients: bool = False
    """Whether steps over flats lead away from higher ground: a second raster has hops from it."""
    orientation: Orientation = NORTH_UP
    """Orientation of the grid, by which codes are written and ties broken."""
    connectivity: int = 8
    """Number of neighbours to which water may flow: 8, or 4 along rows and columns."""
    outlets: Outlets | None = None
    """Outlets beside the edge of the grid, or in its place; None: water leaves there alone."""
    fixed: FixedSteps | None = None
    """Steps that water takes along given streams, where the surface falls by them."""

    name = "flow-direction"
    may_wrap = True
    stage = "flow_directions"
    # On a GPU steps down are found, but flats are crossed on the host.
    tiled_for_cpus = True
    planned_on_gpus = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory of a run."""
        # Hops, and those from higher ground; what heights have beside; and the list of cells in
        # flats, eight bytes each, where these are a quarter of all.
        read = sum(dtype.itemsize for dtype in cells.dtypes)
        return Bytes(read + 4 + 2 + 2, read)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels of directions on a surface."""
        compile_kernels(dtypes[0])

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of direction codes."""
        code = ENCODINGS[self.codes]
        attrs = {
            "long_name": f"flow direction ({self.codes} codes)",
            "flow_codes": self.codes,
            **code.flags(),
        }
        return (Variable("direction", np.dtype(code.dtype), code.nodata, attrs),)

    def bucket_width(self, tile: int) -> BucketWidth:
        """Return the initial width of buckets, a tile: few hops cross a border in one."""
        return BucketWidth(tile**2, self.cells_a_visit, float(tile))

    def starts(self, tile: int) -> dict[tuple[int, int], float]:
        """Return all tiles, since each may have flats."""
        rows, columns = (-(-n // tile) for n in self.shape)
        return dict.fromkeys(np.ndindex(rows, columns), 0.0)

    def open(self, place: Place, cells: Sequence[Array], frame: Window) -> State:
        """Return a tile with the steepest descent directions, and flats next to drains started."""
        heights = cells[0]
        window = place.window
        height, width = window.shape
        there = valid_cells(heights, self.nodata)
        heights = comparable(heights)
        dtype = heights.dtype
        # Nodata and cells beyond the grid are as high as can be, so that no step leads down to
        # them; ``valid`` tells them from valid cells of that height.
        top = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
        surface = np.full((height + 2, width + 2), top, dtype)
        valid = np.zeros(surface.shape, np.uint8)
        y, x = frame.y - window.y + 1, frame.x - window.x + 1
        inside = slice(y, y + frame.height), slice(x, x + frame.width)
        surface[inside], valid[inside] = heights, there
        surface[valid == 0] = top
        reciprocals = self.reciprocals
        if len(reciprocals) > 1:
            reciprocals = reciprocals[window.y : window.y + height]
        numbers = np.empty((height, width), np.uint8)
        step_down = kernel("flow_directions", self.backend)
        flats = step_down(surface, valid, reciprocals, numbers, self._order)
        if self.fixed is not None:
            self._take_fixed(window, surface, numbers)
        _, *more = cells
        ends = None
        if self.outlets is not None:
            count = len(more) - len(self.outlets.marked)
            ends = self.outlets.within(window, frame, more[count:]) & (numbers != MISSING)
            more = more[:count]
            if self.outlets.closed:
                numbers[numbers >= LEAVES] = SINK
            # until the end as if water left the grid there
            numbers[ends] = LEAVES
        if self.fixed is not None or self.outlets is not None:
            flats = int(np.count_nonzero(numbers == SINK))
        hops = np.full(surface.shape, _far(self.dtype_of_hops))
        undrained = np.empty(flats, np.int64)
        first = self.start(surface, valid, numbers, hops, undrained)
        same = _facing_same_height(surface, valid)
        away = None
        if more:
            # A second raster has the hops from higher ground, beyond the grid none.
            away = np.zeros(surface.shape, more[0].dtype)
            away[inside] = more[0]
        return State(surface, numbers, hops, undrained, undrained[:first].copy(), same, away, ends)

    def _take_fixed(self, window: Window, surface: Array, numbers: Codes) -> None:
        """Write the steps along given streams, but those that do not fall: none is a circle."""
        assert self.fixed is not None
        y, x, which = self.fixed.within(window)
        steps = self.fixed.steps[which]
        dy, dx = np.array([*STEPS, (0, 0)]).T[:, np.minimum(steps, len(STEPS))]
        falls = surface[y + 1 + dy, x + 1 + dx] < surface[y + 1, x + 1]
        leaves = steps >= LEAVES
        if self.outlets is not None and self.outlets.closed:
            leaves[:] = False
        taken = (falls | leaves) & (numbers[y, x] != MISSING)
        numbers[y[taken], x[taken]] = steps[taken]

    @property
    def _stride(self) -> int:
        """Stride in `STEPS` from one step that water may take to the next."""
        return 8 // self.connectivity

    @property
    def _order(self) -> Integers:
        """Numbers of the steps that water may take, by the compass."""
        return self.orientation.order(STEPS)[:: self._stride]

    @property
    def dtype_of_hops(self) -> np.dtype[Any]:
        """Dtype of hops, of which there are fewer than cells."""
        return np.dtype(np.int32 if self.shape[0] * self.shape[1] < 2**31 - 1 else np.int64)

    def start(
        self, surface: Array, valid: Array, numbers: Codes, hops: Array, undrained: Integers
    ) -> int:
        """Write the hops that are known at first; list the other cells, those beside them first."""
        count: int = start_hops(surface, numbers, hops, undrained, self._stride)
        return count

    def outgoing(self, hops: Array) -> Array:
        """Return the message to neighbours about the hops of border cells."""
        return hops

    def visit(self, state: State, request: Request, bound: float) -> Visit:
        """Spread the distances to a drain over flats, up to ``bound``; return what changed."""
        queue = np.empty(state.undrained.size, np.int64)
        if (arrived := _take_in(state.hops, request.halo)).size:
            count = enter_hops(state.surface, state.hops, arrived, queue, self._stride)
            state.pending = np.concatenate([state.pending, queue[:count]])
        hops, settled = state.hops.reshape(-1), 0
        if state.pending.size and bound >= 0:
            # Breadth-first search takes its seeds in the order of their hops.
            state.pending = state.pending[np.argsort(hops[state.pending], kind="stable")]
            values = hops[state.pending].astype(np.int64)
            settled, first, start, end = spread_hops(
                state.surface, state.hops, state.pending, values, queue, bound, self._stride
            )
            state.pending = np.concatenate([state.pending[first:], queue[start:end]])
        far = _far(hops.dtype)
        border: Border = []
        outward = []
        at_border = map(self.outgoing, facing(inner_of(state.hops, 1), 1))
        for own, same, known in zip(at_border, state.facing, request.sent, strict=True):
            before = far if known is None else known
            # Hops pass only to cells of the same flat. The neighbour's cells are one hop further,
            # which is the least key that they can have.
            new = same & (own < before)
            some = bool(new.any())
            outward.append(float(own[new].min()) + 1 if some else math.inf)
            border.append(np.where(new, own, before) if some else None)
        least = float(hops[state.pending].min()) if state.pending.size else math.inf
        # Cells with a step down are done from the start; of the others those with hops are.
        left = int(np.count_nonzero(hops[state.undrained] == far))
        return Visit(least, outward, border, settled, state.numbers.size - left)

    def pack(self, state: State) -> Any:
        """Return the distances to a drain; all else is computed again."""
        return state.hops, state.pending

    def unpack(self, state: State, packed: tuple[Array, Array]) -> None:
        """Restore the distances to a drain."""
        state.hops[:], pending = packed
        # A cell may wait both in the saved state and among the seeds of the tile opened again.
        state.pending = np.union1d(state.pending, pending)

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the direction codes of a converged tile."""
        order = self._order
        if state.away is None:
            step_along_flats(state.surface, state.hops, state.numbers, order)
        else:
            step_down_gradients(state.surface, state.hops, state.away, state.numbers, order)
        if state.ends is not None:
            state.numbers[state.ends] = SINK
        (variable,) = self.outputs
        counts: dict[str, float] = {"sinks": int(np.count_nonzero(state.numbers == SINK))}
        codes = ENCODINGS[self.codes].table(self.orientation)
        return {variable.name: codes[state.numbers]}, counts

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return the number of cells where water ends within the grid."""
        return {"sink_count": int(counts["sinks"])}


@dataclass(frozen=True)
class HopsFromHigher(Directions):
    """Hops over flats from cells below a neighbour, among those that do not drain."""

    name = "flow-gradients"

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The raster of hops, 0 where there are none."""
        return (Variable("away", self.dtype_of_hops, None),)

    def start(
        self, surface: Array, valid: Array, numbers: Codes, hops: Array, undrained: Integers
    ) -> int:
        """Write 1 below a higher neighbour; list these cells first, then the others."""
        count: int = start_away(surface, valid, numbers, hops, undrained, self._stride)
        return count

    def outgoing(self, hops: Array) -> Array:
        """Return the hops of border cells without those that drain, which carry none."""
        return np.where(hops > 0, hops, _far(hops.dtype))

    def finish(self, state: State) -> tuple[dict[str, Array], dict[str, float]]:
        """Return the hops of a converged tile."""
        hops = inner_of(state.hops, 1)
        # 0 for cells that drain, and for flats without higher ground beside them.
        return {"away": np.where((hops > 0) & (hops < _far(hops.dtype)), hops, 0)}, {}

    def attributes(self, counts: dict[str, float]) -> dict[str, Any]:
        """Return no attributes."""
        return {}


def reciprocals_of(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1 / length of each of the eight steps, for each row or one row for all."""
    reciprocals: npt.NDArray[np.float64] = 1 / lengths_of_steps(lengths)
    return reciprocals


def lengths_of_steps(lengths: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the lengths of `STEPS`, shape (rows or 1, 8), of `step_lengths`.

    Those that float64 cannot hold are refused, and those whose reciprocals it cannot.
    """
    # Column i of lengths has the steps from row i - 1 to row i: upward ones of row i, downward ones
    # of row i - 1. The last two columns belong to no row.
    below = np.roll(lengths, -1, axis=1)
    kind = {(0, 1): 0, (1, 0): 1, (1, 1): 2}
    columns = [(below if dy > 0 else lengths)[kind[abs(dy), abs(dx)]] for dy, dx in STEPS]
    steps: npt.NDArray[np.float64] = np.stack(columns, axis=1)
    steps = steps if len(steps) == 1 else steps[:-2]
    longest = float(steps.max())
    if not np.finfo(np.float64).tiny <= longest < math.inf:
        raise InputError(
            f"cell_size: the longest step is {longest:g}; give the sides of cells, or coordinates, "
            "in another unit"
        )
    return steps


def turn_steps(
    of_rows: npt.NDArray[np.float64], orientation: Orientation
) -> npt.NDArray[np.float64]:
    """Return the values of the eight steps in each row, or in all, for turned cells."""
    turned = of_rows[:: orientation.south, orientation.order(STEPS)]
    return np.ascontiguousarray(turned)


def _far(dtype: npt.DTypeLike) -> Any:
    """Return the value that marks cells whose distance to a drain is unknown."""
    return np.dtype(dtype).type(np.iinfo(dtype).max)


def _halo_places(shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Return the slices of a padded tile's halo that face each neighbour."""
    rows = {-1: slice(0, 1), 0: slice(1, shape[0] - 1), 1: slice(shape[0] - 1, None)}
    columns = {-1: slice(0, 1), 0: slice(1, shape[1] - 1), 1: slice(shape[1] - 1, None)}
    return [(rows[dy], columns[dx]) for dy, dx in NEIGHBOURS]


def _take_in(hops: Array, halo: Border) -> Integers:
    """Lower the halo to the neighbours' distances; return the improved cells, least first."""
    improved = np.zeros(hops.shape, np.bool_) if any(p is not None for p in halo) else None
    if improved is None:
        return np.empty(0, np.int64)
    for place, arrived in zip(_halo_places(hops.shape), halo, strict=True):
        if arrived is not None:
            improved[place] = arrived < hops[place]
            np.minimum(hops[place], arrived, out=hops[place])
    # The least first, as in the queue of the search.
    cells = np.flatnonzero(improved)
    return cells[np.argsort(hops.reshape(-1)[cells], kind="stable")]


def _facing_same_height(surface: Array, valid: Array) -> list[npt.NDArray[np.bool_]]:
    """Return for each neighbour a mask of the cells at the border with an equally high one across.

    Nodata counts neither here nor there, as high as it may be.
    """
    found = []
    heights, cells = (facing(inner_of(array, 1), 1) for array in (surface, valid))
    for place, own, cell in zip(_halo_places(surface.shape), heights, cells, strict=True):
        beyond, there = surface[place], valid[place] == 1
        same = (own == beyond) & there
        # A cell of a side faces three cells across: the one beside it, and its two neighbours.
        for a, b in ((slice(1, None), slice(None, -1)), (slice(None, -1), slice(1, None))):
            along = (np.s_[:, a], np.s_[:, b]) if own.shape[0] == 1 else (np.s_[a], np.s_[b])
            same[along[0]] |= (own[along[0]] == beyond[along[1]]) & there[along[1]]
        found.append(same & (cell == 1))
    return found
