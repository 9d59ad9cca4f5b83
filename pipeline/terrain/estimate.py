"""Estimate tasks, memory and disk of the terrain operations; see `Operation.plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orograph.plans.grid import Gpus, Grid
from orograph.plans.plan import Plan
from orograph.tiles.arguments import check_choice, check_flag, check_integer, check_outputs
from orograph.tiles.store.create import TABLE_ROWS

# bytes of a pit while its tile is summarised, in the saved state of its shard, and on disk
PIT_OF_TILE, PIT_OF_SHARD, PIT_STORED = 240, 72, 48
BORDER_BYTES = 200
PEAK_ROW, PEAK_COLUMNS = 6 * 8, 8 * 8  # bytes of a peak while the table is made, and in it
# depressions of a pit; bytes of one: its row, in the table, and while it is made in its tile, and
# while its row of shards is joined
DEPRESSIONS, DEPRESSION_ROW, DEPRESSION_COLUMNS, DEPRESSION_LINKS = 2, 8 * 8, 13 * 8, 2 * 8
DEPRESSION_OF_TILE, DEPRESSION_JOINED = 180, 200
# of a height of cells under water: its row, and while its tile is counted, or added to the table
HEIGHT_ROW, HEIGHT_OF_TILE, HEIGHT_ADDED = 3 * 8, 100, 100
# of floats each cell under water has its own; those of terrain and of noise are four in ten. They
# are rows unless their pits are decided in their tile, which have this many or more of them
WET, HEIGHTS_OF_PIT, CELLS_OF_PIT = 0.4, 8, 3
OUTPUT_BYTES = {"depth": 8, "depression": 8}
LABEL_BYTES = 8


def estimate_fill(
    grid: Grid,
    *,
    workers: int,
    connectivity: int = 8,
    outputs: str | Sequence[str] = ("filled",),
    pits: int | None = None,
    gpus: Gpus | None = None,
) -> Plan:
    """Return the plan of `fill_depressions`."""
    wanted = check_outputs(outputs, ("filled", *OUTPUT_BYTES))
    sweep = _Sweep.of(grid.swept_by(gpus), connectivity, pits)
    written = sum(OUTPUT_BYTES.get(name, sweep.grid.dtype.itemsize) for name in wanted)
    return sweep.plan("fill_depressions", workers, written, reread=True)


def estimate_depressions(
    grid: Grid,
    *,
    workers: int,
    connectivity: int = 8,
    labels: bool = False,
    pits: int | None = None,
    gpus: Gpus | None = None,
) -> Plan:
    """Return the plan of `depressions`, assuming two depressions for each pit."""
    written = LABEL_BYTES if check_flag("labels", labels) else 0
    sweep = _Sweep.of(grid.swept_by(gpus), connectivity, pits)
    plan, grid = sweep.plan("depressions", workers, written, reread=True), sweep.grid
    heights = max(int(WET * grid.cells) - CELLS_OF_PIT * sweep.pits, 0)
    count = DEPRESSIONS * sweep.pits
    if grid.dtype.kind != "f":
        heights = min(heights, HEIGHTS_OF_PIT * sweep.pits)

    def share(number: int, cells: int) -> int:
        return -(-number * cells // grid.cells)

    in_tile, in_shard = share(heights, grid.tile_cells), share(heights, grid.shard_cells)
    in_band = share(count, min(grid.shard, grid.shape[0]) * grid.shape[1])
    rows_read = in_shard * 2 * HEIGHT_ROW
    # of each column less than a chunk waits while the next row of shards is joined
    kept = min(count - in_band, TABLE_ROWS) * DEPRESSION_COLUMNS
    table = in_band * DEPRESSION_JOINED + rows_read + in_tile * HEIGHT_ADDED + kept
    return replace(
        plan,
        memory_per_worker=plan.memory_per_worker
        + plan.threads_per_worker
        * (
            share(count, grid.tile_cells) * DEPRESSION_OF_TILE
            + share(count, grid.shard_cells) * 2 * DEPRESSION_ROW
            + in_tile * HEIGHT_OF_TILE
            + rows_read
        ),
        memory_client=plan.memory_client + table,
        memory_table=table,
        bytes_written=plan.bytes_written + count * DEPRESSION_COLUMNS,
        bytes_checkpoints=plan.bytes_checkpoints
        + count * DEPRESSION_ROW
        + (count - in_band) * DEPRESSION_LINKS
        + heights * HEIGHT_ROW,
    )


@dataclass(frozen=True)
class _Sweep:
    """A raster to plan for, with its number of pits."""

    grid: Grid
    pits: int

    @classmethod
    def of(cls, grid: Grid, connectivity: int, pits: int | None) -> _Sweep:
        """Return the raster with its number of pits, checked; None: as white noise has."""
        connectivity = check_choice("connectivity", connectivity, (4, 8))
        if pits is None:
            # white noise, which has more than terrain: one cell in each neighbourhood is the lowest
            return cls(grid, grid.cells // (connectivity + 1))
        return cls(grid, check_integer("pits", pits, 0, grid.cells))

    def plan(
        self, operation: str, workers: int, written: int = 0, *, reread: bool, kept: bool = True
    ) -> Plan:
        """Return the plan of a sweep with ``written`` bytes of output for each cell.

        ``reread``: cells are read a second time. ``kept``: trees are saved for the way down.
        """
        grid = self.grid
        in_tile, in_shard = (
            -(-self.pits * part // grid.cells) for part in (grid.tile_cells, grid.shard_cells)
        )
        # in 16 bits where they can be counted
        label = 2 if in_tile < 2**16 else 4
        labels = label if reread else 0
        a_cell, of_shard = (
            2 * max(grid.dtype.itemsize, 4) + 4 + label + written,
            labels + 2 * written,
        )
        if grid.gpus:  # where cells are decoded, and levels encoded
            a_cell, of_shard = grid.dtype.itemsize + label, labels + written
        return grid.plan_sweep(
            operation,
            workers=workers,
            memory=grid.tile_cells * a_cell
            + grid.shard_cells * of_shard
            + in_tile * PIT_OF_TILE
            + (in_shard * PIT_OF_SHARD if kept else 0),
            written=written,
            checkpoints=grid.cells * labels + (self.pits * PIT_STORED if kept else 0),
            border=(BORDER_BYTES, 60),
            reads=2 if reread else 1,
        )

    def with_table(
        self,
        operation: str,
        workers: int,
        row: int,
        columns: int,
        written: int = 0,
        *,
        reread: bool = False,
    ) -> Plan:
        """Return the plan of a sweep that also makes a table with a row for each pit."""
        plan = self.plan(operation, workers, written, reread=reread)
        in_shard = -(-self.pits * self.grid.shard_cells // self.grid.cells)
        table = self.pits * (2 * row + columns)
        return replace(
            plan,
            memory_per_worker=plan.memory_per_worker + plan.threads_per_worker * in_shard * 2 * row,
            memory_client=plan.memory_client + table,
            memory_table=table,
            bytes_written=plan.bytes_written + self.pits * columns,
            bytes_checkpoints=plan.bytes_checkpoints + self.pits * row,
        )


def _estimate(plan: Callable[[_Sweep, int], Plan]) -> Callable[..., Plan]:
    """Make an estimating function from one that plans a `_Sweep` for a number of workers."""

    def estimate(
        grid: Grid,
        *,
        workers: int,
        connectivity: int = 8,
        pits: int | None = None,
        gpus: Gpus | None = None,
    ) -> Plan:
        return plan(_Sweep.of(grid.swept_by(gpus), connectivity, pits), workers)

    return estimate


estimate_flood = _estimate(
    lambda sweep, workers: sweep.plan(
        "flood_level", workers, sweep.grid.dtype.itemsize, reread=True
    )
)
# but for the matrix and the paths
estimate_passes = _estimate(
    lambda sweep, workers: sweep.plan("pass_elevation", workers, reread=False, kept=False)
)
# of all prominences, one for each pit
estimate_peaks = _estimate(
    lambda sweep, workers: sweep.with_table("peaks", workers, PEAK_ROW, PEAK_COLUMNS)
)
