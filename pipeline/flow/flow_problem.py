"""Read flow directions in a sweep: decode them, and name the first invalid code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.arguments.cells import refuse_cell
from orograph.engines.quadtree_pass import QuadtreePass, SweepProblem
from orograph.engines.tile_states import first_refusal
from orograph.kernels.flow.codes import ENCODINGS, MISSING, UNKNOWN, Codes, decode
from orograph.run.context import RunContext
from orograph.run.options import RunSpec
from orograph.run.problem import Bytes, CellCounts, bytes_written
from orograph.tiles.arguments import check_choice
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.interface import read_frame
from orograph.tiles.raster.marks import holds_mark, marks_all, warn_once_read
from orograph.tiles.raster.mask import replace_sources, sources_of
from orograph.tiles.raster.raster import Raster, RasterLike, open_raster

SAMPLE = 256
"""Side of the window whose values tell heights from directions."""
_CODES = sorted(
    {code for e in ENCODINGS.values() for code in (*e.steps, *e.leaving, e.sink, e.nodata)}
)


DECODED = 3
"""Bytes of the step of a cell of a tile, in three forms."""


@dataclass(frozen=True)
class FlowProblem(SweepProblem):
    """Base class of sweep problems whose first raster holds flow directions."""

    codes: str
    """Name of the direction codes."""
    backend: str = field(default="numba", kw_only=True)
    orientation: Orientation = field(default=NORTH_UP, kw_only=True)
    """Orientation of the grid, in which codes as compass directions are read."""

    joins_on_cpus = True
    may_wrap = True

    def flow_bytes(self, cells: CellCounts, state: int) -> Bytes:
        """Return the memory and disk of a run with ``state`` bytes for each cell of a tile.

        The steps of a shard are saved for the way down.
        """
        written = bytes_written(self)
        return Bytes(
            cells.itemsize + DECODED + state + written,
            1 + 2 * written,
            border=(160, 160),
            checkpoints=cells.grid,
        )

    def prepare(self, numbers: Codes, others: Sequence[Array], window: Window) -> list[Array]:
        """Check the other rasters' cells and convert them for the problem; here there are none."""
        return []

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> FlowSweep:
        """Return the engine of the problem."""
        problem: Any = self
        return FlowSweep(problem, rasters, self.tiled(context))


@dataclass(frozen=True)
class FlowSweep(QuadtreePass):
    """Quadtree sweep over flow directions, which are decoded as they are read."""

    def _cells(self, place: Place) -> Iterator[Array]:
        shape = self.context.quadtree.shape
        try:
            return iter(self.read(place.window))
        except InputError as error:
            # Tiles are read in any order: the error names the first cell of the whole raster.
            raise first_refusal(self.read, shape, place.window) or error from None

    def read(self, window: Window) -> list[Array]:
        """Return the decoded directions of a window and the prepared cells of other rasters."""
        directions, *others = self.rasters
        # A step into nodata becomes a sink, so the codes around the window are needed too.
        frame = self.context.quadtree.frame(window, 1)
        problem: Any = self.problem
        codes = read_frame(directions, frame)
        numbers, known = decode(
            codes, ENCODINGS[problem.codes], directions.nodata, problem.orientation
        )
        inside = window.within(frame)
        numbers = np.ascontiguousarray(numbers[inside])
        if not known and (numbers == UNKNOWN).any():
            why = f" is not a code of {problem.codes!r}; pass codes=, one of {', '.join(ENCODINGS)}"
            at = int((numbers == UNKNOWN).argmax())
            refuse_cell("direction", codes[inside], at, window, why)
        return [numbers, *problem.prepare(numbers, [read_frame(r, window) for r in others], window)]


def open_directions(
    spec: RunSpec | None, direction: RasterLike, codes: str | None
) -> tuple[Raster, str]:
    """Return a raster of directions and the name of their codes, given or in its attributes.

    ``spec`` is that of a run whose first raster they are, else None.
    """
    choice = {} if spec is None else spec.choice
    raster = open_raster(direction, argument="direction", **choice)
    return raster, codes_of(raster, codes)


def codes_of(raster: Raster, codes: str | None) -> str:
    """Return the name of the codes of a raster of directions, given or in its attributes."""
    if codes is not None:
        return str(check_choice("codes", codes, tuple(ENCODINGS)))
    if raster.attrs.get("flow_method") == "dinf":
        raise InputError(
            "direction: its attributes say that it holds angles (D-infinity); pass directions of "
            "D8, or to flow_accumulation the heights with method='dinf'"
        )
    stated = raster.attrs.get("flow_codes")
    if not isinstance(stated, str) or stated not in ENCODINGS:
        _refuse_heights(raster)
        raise InputError(
            "codes: the directions do not say theirs, as those of flow_direction do; pass "
            f"codes=, one of {', '.join(ENCODINGS)}"
        )
    return stated


def _refuse_heights(raster: Raster) -> None:
    """Raise InputError if a raster that names no codes has values that are none, as heights do."""
    # A sample in the middle is enough: heights there are hardly ever all codes.
    height, width = (min(side, SAMPLE) for side in raster.shape)
    y, x = (raster.shape[0] - height) // 2, (raster.shape[1] - width) // 2
    cells = raster.read(Window(y, x, height, width))
    values = cells[valid_cells(cells, raster.nodata)]
    if values.size and not np.isin(values, _CODES).all():
        raise InputError(
            f"direction: its values, {values.min():.6g} to {values.max():.6g}, are not codes of "
            "directions; compute directions with og.flow_direction(elevation), and pass heights "
            "to flow_accumulation with method='d8' alone"
        )


def stream_cells(
    argument: str, given: Array, nodata: float | int | None, numbers: Codes, window: Window
) -> npt.NDArray[np.bool_]:
    """Return the cells of streams in a window; refuse those without a direction."""
    streams: npt.NDArray[np.bool_] = (given != 0) & valid_cells(given, nodata)
    lost = streams & (numbers == MISSING)
    if lost.any():
        y, x = (int(n[0]) for n in np.nonzero(lost))
        raise InputError(
            f"{argument}: the cell at row {window.y + y}, column {window.x + x} is one, and has "
            "no direction, so it does not drain; make it 0"
        )
    return streams


CORNER = Window(0, 0, 512, 512)


def check_streams(argument: str, streams: Raster, direction: Raster) -> None:
    """Warn of a raster in which no cell is a stream, or all are, as in an accumulation."""
    check = partial(_doubt_streams, argument, streams, direction)
    warn_once_read(check, *sources_of(streams), *sources_of(direction))


def _doubt_streams(
    argument: str, streams: Raster, direction: Raster, copies: Mapping[Raster, Raster]
) -> str | None:
    streams, direction = (replace_sources(raster, copies) for raster in (streams, direction))
    if not holds_mark(streams):
        return (
            f"{argument}: no cell is a stream, so that no water reaches one; cells that are not 0 "
            "or nodata are: lower the threshold"
        )
    if marks_all(streams, direction) and (streams.read(CORNER.clip(streams.shape)) != 1).any():
        return (
            f"{argument}: all cells are streams, as those of an accumulation are; pass a mask, "
            "such as accumulation >= 1000"
        )
    return None


def refuse_circle(cell: int, window: Window) -> None:
    """Raise InputError for a cell on a cycle of directions; ``cell`` is row-major, -1 if there is
    none.
    """
    if cell >= 0:
        y, x = divmod(cell, window.width)
        raise InputError(
            f"direction: the water of row {window.y + y}, column {window.x + x} comes back to it, "
            "so it never ends; make the directions anew, as og.flow_direction does, without circles"
        )
