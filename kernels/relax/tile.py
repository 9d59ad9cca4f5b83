"""Shortest paths in one tile, to their fixpoint, from whatever its border has learned.

*Method.* The tile is cut into blocks; a heap keeps the least value by which something outside a
block can still lower a cell in it. The block with the least key is brought to its own fixpoint by
sweeps (sweeps.py), and gives the blocks around it new keys (queue.py). Heap empty = fixpoint:
nothing is capped. Blocks with a heap: Chacon and Vladimirsky, doi:10.1137/120866117.

A tile of one row or one column would fill a thirty-second of its blocks. There a path goes one way,
so once along the line and once back is enough.

*Why it is exact and deterministic.* Costs are not negative and rounding is monotone, so the least
left-to-right sum over all paths is a fixpoint that every order of lowering reaches, and each value
ever held is the sum along a real path. Blocks, bounds and tiles only change the order.

*Arrays.* ``dist`` and the rasters are padded by a halo of 1 cell (2 for 16 neighbours) that mirrors
neighbouring tiles: last known distances (or unreached), and costs (barrier outside the grid).
Offsets in the workspace are below 2**17; a tile may have any number of cells that fits memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.relax.models import (
    BY_FRICTION,
    EAST_WEST,
    NORTH_SOUTH,
    CostModel,
    Rules,
    cost_rules,
    edge_lengths,
)
from orograph.kernels.relax.queue import COUNTS, fill, visit_blocks
from orograph.kernels.relax.row_costs import ROW_SCRATCH, add_extra, weigh_edges
from orograph.kernels.relax.sweeps import EAST, NORTH, SOUTH, WEST, make_workspace
from orograph.kernels.threads import threads_of_visit
from orograph.kernels.vectors.lanes import LANES, MOVES, borrowed
from orograph.tiles.arrays import Array

CELLS_A_THREAD = 2**16  # fewer are done before a thread has started
IDLE_SECONDS = 1e-4


@compiled
def _wake(dist, friction, elevation, keys, block, rules, sides, lower):
    """Key the blocks that the halo beyond some sides can lower, or lower the cells themselves."""
    friction, elevation, rules = borrowed((friction, elevation, rules))
    reach = rules.reach
    height = dist.shape[0] - 2 * reach
    width = dist.shape[1] - 2 * reach
    cost = np.empty(2, dist.dtype)
    # Rows of the halo are gone over from end to end, other rows only where they cross the halo's
    # columns: ``i`` counts the cells that are looked at, and x skips the tile itself.
    for y in range(-reach, height + reach):
        row_side = 1 << NORTH if y < 0 else (1 << SOUTH if y >= height else 0)
        for i in range(width + 2 * reach if row_side else 2 * reach):
            x = i - reach if row_side or i < reach else width + i - reach
            side = row_side | (1 << WEST if x < 0 else (1 << EAST if x >= width else 0))
            if side & sides == 0:
                continue
            start = dist[y + reach, x + reach]
            if not start < rules.unreached:
                continue
            for m in range(2 * rules.steps + 2):
                dy = MOVES[m, 0]
                dx = MOVES[m, 1]
                inside = 0 <= y + dy < height and 0 <= x + dx < width
                # Costs are not negative: where the cell holds no more than the halo, the edge need
                # not be computed.
                if inside and start < dist[y + dy + reach, x + dx + reach]:
                    edge(friction, elevation, y + reach, x + reach, dy, dx, rules, cost)
                    cost[1] = start + cost[0]
                    value = cost[1]
                    if value < dist[y + dy + reach, x + dx + reach] and value <= rules.limit:
                        if lower:
                            dist[y + dy + reach, x + dx + reach] = value
                        by = (y + dy) // block
                        bx = (x + dx) // block
                        keys[by, bx] = min(keys[by, bx], value)


@compiled
def _weigh_steps_north(friction, elevation, rules, cost):
    """Write to cost[x] the cost of the step from column x of the second row to the first row."""
    for x in range(cost.size):
        row, column = rules.reach + 1, rules.reach + x
        edge(friction, elevation, row, column, -1, 0, rules, cost[x : x + 1])


@compiled(error_model="numpy")
def _lower_line(dist, friction, elevation, length, scratch, rules, ahead, back):
    """Lower the cells of a line from its first to its last, and back; all with the halo."""
    rules = borrowed(rules)
    reach = rules.reach
    # from the step to cell 1 on
    count = dist.size - 1
    # Place i of ``ahead`` is the step from cell i to cell i + 1, of ``back`` the step from i + 1 to
    # i. The further rasters follow elevation, each as long as the line; friction may have none.
    there, here = (back, ahead) if rules.reverse else (ahead, back)
    further = elevation.size - rules.further * dist.size + 1
    weigh_edges(
        *(there, here, friction, 1, elevation, 1, further, dist.size, dist.size, 0, -1, length),
        *(scratch, rules, rules.by_step, rules.by_row),
    )
    crossed = further + (rules.further - 1) * dist.size
    at = there, here, elevation, 1, crossed, dist.size, 0, -1, length
    add_extra(*at, rules, rules.extra)
    # From the last cell of the halo to the last cell of the tile, and then from the first cell of
    # the halo behind it to the first cell of the tile: the halo gives values and takes none.
    for i in range(reach - 1, count - reach):
        value = dist[i] + ahead[i]
        if value < dist[i + 1] and value <= rules.limit:
            dist[i + 1] = value
    for i in range(count - reach, reach - 1, -1):
        value = dist[i + 1] + back[i]
        if value < dist[i] and value <= rules.limit:
            dist[i] = value


class RelaxStats(NamedTuple):
    """Statistics of a call of `relax`."""

    pending: float
    """Least value by which something can still improve; infinite at the fixpoint."""
    visits: int
    """Blocks visited."""
    sets: int
    """Sets of four sweeps."""
    rows: int
    """Rows (or columns) swept."""
    settled: int
    """Cells lowered, counted once a visit."""
    found: int
    """Cells lowered that held no value before."""
    sides: int
    """Sides whose border cells changed: bit 0 north, 1 south, 2 west, 3 east."""


@dataclass(slots=True)
class TileState:
    """State of a tile of a shortest-path problem, kept between calls.

    Raises
    ------
    ValueError
        From `tile_state`, where shapes, dtypes or coefficients do not fit.
    """

    dist: Array
    """(h + 2 r, w + 2 r) float64, float32 or int64: distances; `unreached` where there is none."""
    keys: Array
    """(blocks down, blocks across), dist's dtype: least value that can lower a cell of a block."""
    fresh: npt.NDArray[np.uint8]
    """The same shape: 1 where cells were lowered by `seed` since the last visit."""
    friction: Array
    elevation: Array
    block: int
    rules: Rules
    further: Sequence[Array] = ()
    """Further rasters of the model."""
    appended: int = 0
    """Number of their values that stand behind the coefficients in the rules, for Numba."""

    @property
    def unreached(self) -> Any:
        """Distance of an unreached cell."""
        return self.rules.unreached

    @property
    def pending(self) -> float:
        """Least pending key; infinite where the tile has converged."""
        least = self.keys.min()
        return float(least) if least < self.rules.unreached else math.inf


def tile_state(
    dist: Array,
    *,
    friction: Array | None = None,
    elevation: Array | None = None,
    lengths: npt.NDArray[Any] | None = None,
    model: CostModel = BY_FRICTION,
    connectivity: int = 8,
    max_cost: float = math.inf,
    block: int = LANES,
    **further: Array,
) -> TileState:
    """Create a tile whose blocks have all converged; `seed` and `wake` give it work.

    Parameters
    ----------
    dist : (h + 2 r, w + 2 r) float64, float32 or int64, C order
        Known distances, changed in place, with a halo of r cells: 1, or 2 for 16 neighbours.
        Unreached cells hold infinity (int64: ``BARRIER``, 2**60).
    friction, elevation : same shape and dtype
        What the model asks for, with the neighbours' values in the halo; ``tobler`` and ``walk``
        go without friction as well. NaN or infinity (int64: ``BARRIER``) is a barrier; friction is
        not negative.
    lengths : (5, h + 2 r), optional
        As `edge_lengths` gives it, whose default (cells of size 1) it takes. int64: whole numbers.
    model : CostModel
    connectivity : {8, 4, 16}
    max_cost : float
        Greatest distance of interest: cells farther away stay unreached.
    block : int
        Side of the blocks, r to 32 cells. Changes no value.
    further : same shape and dtype
        Further rasters of the model, by name, and ``crossed`` for penalties. Barriers are those of
        friction and elevation.

    Raises
    ------
    ValueError
        If shapes, dtypes, memory order or coefficients do not fit.
    """
    given = {"friction": friction, "elevation": elevation, **further}
    rules = cost_rules(
        dist.dtype,
        edge_lengths(dist.shape[0]) if lengths is None else lengths,
        model,
        connectivity,
        max_cost,
        {name for name, raster in given.items() if raster is not None},
    )
    reach = rules.reach
    if dist.ndim != 2 or min(dist.shape) <= 2 * reach:
        raise ValueError(
            f"dist has shape {dist.shape}; needs at least one cell within a halo of {reach}"
        )
    if rules.factors.shape[1] != dist.shape[0]:
        raise ValueError(f"lengths has shape {rules.factors.shape}; must be {(5, dist.shape[0])}")
    if not reach <= block <= LANES:
        raise ValueError(f"block={block}; must be {reach} to {LANES}")
    arrays = {"dist": dist}
    needed = model.further
    if unknown := sorted(further.keys() - set(needed)):
        raise ValueError(f"{', '.join(unknown)}: no raster of the model {model.name}")
    used_by_name = {"friction": rules.has_friction, "elevation": rules.has_elevation}
    for name, used in {**used_by_name, **dict.fromkeys(needed, True)}.items():
        raster = given[name]
        if raster is None or not used:
            arrays[name] = np.empty((0, 0), dist.dtype)
            continue
        if raster.shape != dist.shape or raster.dtype != dist.dtype:
            raise ValueError(
                f"{name} is {raster.dtype} of shape {raster.shape}; "
                f"must be as dist: {dist.dtype} of shape {dist.shape}"
            )
        arrays[name] = raster
    for name, array in arrays.items():
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not in C order; pass numpy.ascontiguousarray of it")
    others, appended = [arrays[name] for name in needed], 0
    # Numba finds the further rasters behind the coefficients, so that rules have one type for all
    # models. On a GPU they lie behind elevation; see `upload_costs`.
    if others and isinstance(dist, np.ndarray):
        cells = [raster.reshape(-1) for raster in others]
        appended = len(cells) * dist.size
        together = np.concatenate([rules.coefficients, *cells], dtype=np.float64)
        rules = rules._replace(coefficients=together)
    inner = (dist.shape[0] - 2 * reach, dist.shape[1] - 2 * reach)
    blocks = (-(-inner[0] // block), -(-inner[1] // block))
    return TileState(
        dist=dist,
        keys=np.full(blocks, rules.unreached, dist.dtype),
        fresh=np.zeros(blocks, np.uint8),
        friction=arrays["friction"],
        elevation=arrays["elevation"],
        block=block,
        rules=rules,
        further=others,
        appended=appended,
    )


def seed(state: TileState, rows: Array, columns: Array, values: Array | float = 0.0) -> int:
    """Lower cells to given values: the sources, with their initial costs.

    Parameters
    ----------
    state : TileState
    rows, columns : (k,) integers
        Cells, counted from the tile's first cell (the halo is not counted).
    values : (k,) or a number
        Not negative. Values above what a cell holds, or above ``max_cost``, change nothing.

    Returns
    -------
    int
        How many cells held no value before.

    Raises
    ------
    ValueError
        If a cell lies outside the tile or a value is negative or NaN.
    """
    rows, columns, values = checked_seeds(state, rows, columns, values)
    at = rows + state.rules.reach, columns + state.rules.reach
    lower = (values < state.dist[at]) & (values <= state.rules.limit)
    new = lower & (state.dist[at] >= state.unreached)
    # Several values may be for one cell, so cells are counted, and the minimum is taken unbuffered.
    found = np.unique(rows[new] * state.dist.shape[1] + columns[new]).size
    np.minimum.at(state.dist, (at[0][lower], at[1][lower]), values[lower])
    blocks = rows[lower] // state.block, columns[lower] // state.block
    state.fresh[blocks] = 1
    np.minimum.at(state.keys, blocks, values[lower])
    return found


def checked_seeds(
    state: TileState, rows: Array, columns: Array, values: Array | float
) -> tuple[Array, Array, Array]:
    """Check the arguments of `seed` and return them as arrays of equal length."""
    rows, columns = np.atleast_1d(rows).astype(np.int64), np.atleast_1d(columns).astype(np.int64)
    values = np.broadcast_to(np.asarray(values, state.dist.dtype), rows.shape) + 0
    height, width = (n - 2 * state.rules.reach for n in state.dist.shape)
    outside = (rows < 0) | (rows >= height) | (columns < 0) | (columns >= width)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(
            f"source {i} at ({rows[i]}, {columns[i]}) lies outside the tile of {height} x {width}"
        )
    if not (values >= 0).all():
        i = int((~(values >= 0)).argmax())
        raise ValueError(f"source {i} starts at {values[i]}; must be 0 or more")
    return rows, columns, values


def wake(state: TileState, sides: int = 15) -> float:
    """Key the blocks that the halo can improve, after the caller has lowered values in it.

    Parameters
    ----------
    state : TileState
    sides : int
        Sides beyond which the halo was lowered: bit 0 north, 1 south, 2 west, 3 east. A corner of
        the halo belongs to both sides.

    Returns
    -------
    float
        Least pending key of the tile; infinite where it has converged.
    """
    _wake(*_surface(state), state.keys, state.block, state.rules, sides, False)
    return state.pending


def costs_north(state: TileState) -> Array:
    """Return the cost of the step from each cell of the second row to the first row of a tile."""
    cost = np.empty(state.dist.shape[1] - 2 * state.rules.reach, state.dist.dtype)
    _weigh_steps_north(state.friction, state.elevation, state.rules, cost)
    return cost


def limit_of(bound: float, state: TileState) -> Any:
    """Return a bound in the state's dtype, not below it: blocks with lesser keys are visited."""
    kind, unreached = state.dist.dtype.type, state.rules.unreached
    if not bound < unreached:
        return unreached
    if state.rules.integer:
        return kind(math.ceil(bound))
    limit = kind(bound)
    # rounded down, maybe to the least key itself
    return limit if float(limit) >= bound else np.nextafter(limit, unreached)


def _surface(state: TileState) -> tuple[Array, Array, Array]:
    """Return the padded rasters of a tile."""
    return state.dist, state.friction, state.elevation


def relax(state: TileState, bound: float = math.inf) -> RelaxStats:
    """Work on the tile until nothing below a bound can improve in it.

    Blocks are visited least key first, and each is brought to its own fixpoint, so some cells hold
    values above the bound already: sums along real paths, not yet the least. Values below
    ``min(bound, pending)`` are final as far as this tile knows. A tile of one row or one column is
    brought to its fixpoint.

    Parameters
    ----------
    state : TileState
        Changed in place.
    bound : float
        Blocks with a key below it are visited; infinity: to the fixpoint. A bound of
        ``pending + delta`` gets nowhere where ``delta`` is lost in rounding: take at least
        ``math.nextafter(pending, math.inf)``.

    Returns
    -------
    RelaxStats
    """
    limit = limit_of(bound, state)
    if state.keys.min() >= limit:
        return RelaxStats(state.pending, 0, 0, 0, 0, 0, 0)
    if 1 in (n - 2 * state.rules.reach for n in state.dist.shape):
        return _relax_line(state)
    queue = (
        np.empty(state.keys.size, np.int64),
        np.empty(state.keys.size, np.int64),
        state.keys.reshape(-1),
        np.zeros(COUNTS, np.int64),
    )
    fill(queue, limit)

    def work() -> Array:
        """Visit blocks until no thread does so any more; return the tally of this one."""
        workspace = make_workspace(state.dist, state.rules)
        tally = np.zeros(6, np.int64)
        task = state.fresh, queue, workspace, state.block, state.rules, limit, tally
        # The remaining blocks are being visited by other threads: sleep instead of taking a core
        # from them.
        while not visit_blocks(_surface(state), *task):
            time.sleep(IDLE_SECONDS)
        return tally

    others = min(threads_of_visit(), state.dist.size // CELLS_A_THREAD) - 1
    if others < 1:
        tallies = [work()]
    else:
        with ThreadPoolExecutor(others, "orograph-relax") as pool:
            helpers = [pool.submit(work) for _ in range(others)]
            tallies = [work(), *(helper.result() for helper in helpers)]
    counts = np.sum([tally[:5] for tally in tallies], axis=0)
    sides = np.bitwise_or.reduce([tally[5] for tally in tallies])
    visits, sets, rows, settled, found = counts.tolist()
    return RelaxStats(state.pending, visits, sets, rows, settled, found, int(sides))


def _relax_line(state: TileState) -> RelaxStats:
    """Bring a tile of one row or one column to its fixpoint, whatever the bound."""
    rules, reach = state.rules, state.rules.reach
    row = state.dist.shape[0] == 2 * reach + 1
    line: Any = np.s_[reach, :] if row else np.s_[:, reach]
    before = state.dist[line].copy()
    seeded = bool(state.fresh.any())
    # Steps from the halo beside the line are taken once. From then on a path can only run along it,
    # for a detour through the halo is the neighbours' work.
    _wake(*_surface(state), state.keys, state.block, rules, 15, True)
    state.keys[...] = state.unreached
    state.fresh[...] = 0
    dist, friction, elevation = (
        np.ascontiguousarray(raster[line] if raster.size else raster[:0].reshape(-1))
        for raster in _surface(state)
    )
    count = dist.size - 1
    # Column i of the table has the lengths of the steps north-south between rows i - 1 and i.
    length = (
        np.full(count, rules.factors[EAST_WEST, reach]) if row else rules.factors[NORTH_SOUTH, 1:]
    )
    if state.further:
        elevation = np.concatenate([elevation, *(raster[line] for raster in state.further)])
    ahead = np.empty(count, dist.dtype)
    back = ahead if rules.symmetric else np.empty_like(ahead)
    scratch = np.empty(ROW_SCRATCH * count)
    _lower_line(dist, friction, elevation, length, scratch, rules, ahead, back)
    state.dist[line] = dist
    lowered = dist < before
    settled = int(np.count_nonzero(lowered))
    found = int(np.count_nonzero(before[lowered] >= state.unreached))
    # On a line every cell is at the border. Seeds were lowered before this call and count as
    # changes.
    sides = 15 if settled or seeded else 0
    return RelaxStats(state.pending, 1, 1, 2 * count, settled, found, sides)
