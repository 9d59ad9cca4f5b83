"""Tasks of a frontier run on the workers: visit tiles, and write shards of converged tiles."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from orograph.engines.frontier.field import cells_on_gpu
from orograph.engines.frontier.protocol import (
    FrontierInterface,
    RefusedCell,
    Request,
    Table,
    Tabulated,
    Visit,
)
from orograph.engines.parts import in_threads, to_write
from orograph.engines.tile_states import StateCache, Tile, TileStates
from orograph.kernels.backends import get_backend
from orograph.kernels.threads import use_threads
from orograph.run.context import RunContext, located
from orograph.run.shared_data import Handle, load
from orograph.tiles.errors import RunError
from orograph.tiles.grid.neighbours import NEIGHBOURS, OPPOSITE
from orograph.tiles.grid.quadtree import Node, morton_decode
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.sink import ShardWriter

TILES_A_TASK = 64


@dataclass(frozen=True)
class FrontierTasks:
    """Data that every task of a run needs: the problem, its rasters and the run context."""

    problem: FrontierInterface[Any, Any]
    rasters: tuple[Raster, ...]
    context: RunContext

    @property
    def states(self) -> TileStates:
        """Access to the tile states held in this process."""
        return TileStates(self.problem, self.rasters, self.context)

    def gpu_bytes(self, tile: Tile) -> int:
        """Return the bytes of GPU memory that work on a tile takes; 0 on CPUs."""
        if not self.context.gpus:
            return 0
        return self.problem.gpu_bytes(cells_on_gpu(self.states.place(tile).window))


def visit_tiles(
    handle: Handle, requests: Sequence[Request], bound: float, threads: int = 1
) -> dict[Tile, Visit | None]:
    """Visit tiles of this worker in order of key, repeatedly, up to ``bound``; return the visits.

    So a front crosses a worker's own tiles without asking the driver. At most ``TILES_A_TASK``
    visits: other workers wait for what this one finds. Tiles that were not visited are not
    in the result; their keys are as they were, but for what others' ``outward`` says. None stands
    for tiles of which this process has not the strips that it should have. A visit may use
    ``threads`` threads.
    """
    run: FrontierTasks = load(handle)
    with get_backend(run.problem.backend).array_memory(), use_threads(threads):
        begin = time.perf_counter()
        states = run.states
        ready = [request for request in requests if _find_strips(states.cache, request)]
        found = _visit_tiles(run, ready, bound)
        settled = {tile: visit.settled for tile, visit in found.items()}
        states.save_some(settled, time.perf_counter() - begin)
        missing = {request.tile for request in requests} - {request.tile for request in ready}
        return {**found, **dict.fromkeys(missing)}


def _find_strips(cache: StateCache, request: Request) -> bool:
    """Fill in the strips that this process already has; return whether none is missing."""
    if request.names is None:
        return True
    strips = [*request.halo, *request.sent]
    # A strip that has a name but is None was left out because this process should hold it. If it
    # holds another or none, it is not the process that the driver takes it for, or another task has
    # visited the tile since.
    held = cache.strips.get(request.tile, [(0, None)] * len(strips))
    for n, (name, known) in enumerate(zip(request.names, held, strict=True)):
        if name and strips[n] is None:
            if known[0] != name:
                return False
            strips[n] = known[1]
    request.halo[:], request.sent[:] = strips[: len(request.halo)], strips[len(request.halo) :]
    return True


def _visit_tiles(
    run: FrontierTasks, requests: Sequence[Request], bound: float
) -> dict[Tile, Visit]:
    states = run.states
    # Never 0, the name of a strip that does not exist.
    attempt = secrets.randbits(62) + 1
    area = {request.tile: request for request in requests}
    # Of each tile the eight strips of the halo come first, then the eight of its own border.
    names = {request.tile: list(request.names or [0] * 16) for request in requests}
    open_keys = {request.tile: request.key for request in requests}
    done: dict[Tile, Visit] = {}
    for _ in range(max(TILES_A_TASK, len(area)) if area else 0):
        # Equal keys are visited in the order of tiles, so the order does not depend on that of
        # requests.
        tile = min(open_keys, key=lambda t: (open_keys[t], t))
        # The bound may itself be infinite, and a tile without a key is not visited.
        if open_keys[tile] > bound or open_keys[tile] == math.inf:
            break
        request = area[tile]
        run.context.stop_if_cancelled()
        with located(states.place(tile).window), states.room(tile, run.gpu_bytes(tile)):
            state = states.take(tile)
            visit = run.problem.visit(state, request, bound)
            states.keep(tile, state)
            del state  # its memory is given back where the cache has no room for it
        open_keys[tile] = visit.pending
        # All visits to a tile in this task are one result, judged against what the driver had when
        # it sent the task.
        done[tile] = replace(visit.after(done.get(tile)), attempt=attempt)
        if visit.links is not None and request.links is not None:
            # The next visit to the tile reports what is new against this one.
            request.links.sent[:] = visit.links.values
        for k, step in enumerate(NEIGHBOURS):
            sent = visit.border[k]
            if sent is not None:
                request.sent[k], names[tile][8 + k] = sent, attempt
            # A neighbour that this task may visit gets the strip, and its key, without the driver.
            other = run.context.quadtree.beside(tile, step)
            if other in area:
                if sent is not None:
                    area[other].halo[OPPOSITE[k]], names[other][OPPOSITE[k]] = sent, attempt
                open_keys[other] = min(open_keys[other], visit.outward[k])
                if other == tile:
                    # where the grid wraps: this visit took in what earlier ones had sent
                    done[tile].outward[k] = visit.outward[k]
                elif other in done:
                    # what it sent to this tile was taken in by this visit
                    done[other].outward[OPPOSITE[k]] = math.inf
    for tile, request in area.items():
        # What this process now holds of each tile. The driver records the same when the result is
        # back (`Borders.came_back`).
        if request.names is not None:
            strips = [*request.halo, *request.sent]
            states.cache.strips[tile] = list(zip(names[tile], strips, strict=True))
    return done


def written_counts(handle: Handle, node: Node) -> dict[str, float] | None:
    """Return the counts of a shard that an earlier session wrote; None if it is not intact."""
    return _counts_of(load(handle), node)


def _counts_of(run: FrontierTasks, node: Node) -> dict[str, float] | None:
    context, problem = run.context, run.problem
    counts: dict[str, float] | None = context.checkpoints.load("done", node)
    if counts is None:
        return None
    if isinstance(problem, Tabulated) and context.checkpoints.load("rows", node) is None:
        return None
    shards = context.shards(node)
    intact = all(context.sink.intact(v.name, s) for v in problem.outputs for s in shards)
    return counts if intact else None


class Written(NamedTuple):
    """Result of a task that writes shards: their counts, and the shards it could not write."""

    counts: dict[str, float]
    """Sums of the counts of all tiles."""
    missing: list[Node]
    """Shards that are not written, since this process lacks border strips that it should have."""
    refused: Sequence[tuple[tuple[int, int], str]] = ()
    """Cells without a result, row and column, and the messages of their errors."""


def finish_shards(handle: Handle, nodes: Sequence[Node], requests: Sequence[Request]) -> Written:
    """Write shards whose tiles have all converged; return counts and unwritten shards."""
    run: FrontierTasks = load(handle)
    known = {request.tile: request for request in requests}
    sums: Counter[str] = Counter()
    missing: list[Node] = []
    refused: list[tuple[tuple[int, int], str]] = []
    for node in nodes:
        run.context.stop_if_cancelled()
        tiles = run.context.quadtree.nodes(0, within=node)
        own = [known[morton_decode(tile.z)] for tile in tiles]
        if not all(_find_strips(run.states.cache, request) for request in own):
            missing.append(node)
            continue
        whole = run.context.quadtree.window(node)
        with located(whole), get_backend(run.problem.backend).array_memory():
            sums.update(_finish_shard(run, node, own, refused))
    return Written(dict(sums), missing, refused)


def _finish_shard(
    run: FrontierTasks,
    node: Node,
    requests: Sequence[Request],
    refused: list[tuple[tuple[int, int], str]],
) -> dict[str, float]:
    """Write a shard, or add to ``refused`` the cells of which the problem has no result."""
    problem, context, states = run.problem, run.context, run.states
    # Written already: by an earlier session, or by another copy of this task.
    if (known := _counts_of(run, node)) is not None:
        return known
    shards, outputs = context.shards(node), problem.outputs
    writers = {(v.name, n): context.sink.writer(v.name, n) for v in outputs for n in shards}
    counts: dict[str, float] = {}
    tables: list[Table] = []
    for request in requests:
        try:
            with states.room(request.tile, run.gpu_bytes(request.tile)):
                own, rows = _finish_tile(run, request, writers)
        except RefusedCell as error:  # of another tile there may be one further up
            refused.append((error.place, str(error)))
            continue
        for name, count in own.items():
            counts[name] = counts.get(name, 0) + count
        tables += rows
    if refused:
        return {}  # the run fails
    # Where a tile covers several shards, `_put` has closed them.
    if not context.shard:
        for writer in writers.values():
            writer.close()
    if tables:
        context.checkpoints.save("rows", node, tables)
    # Saved last: where this entry exists, cells and rows are written. Only then are the states
    # dropped, from which a killed task would have begun again.
    context.checkpoints.save("done", node, counts)
    for request in requests:
        states.drop(request.tile)
        states.cache.strips.pop(request.tile, None)
    return counts


def _finish_tile(
    run: FrontierTasks, request: Request, writers: Mapping[tuple[str, Window], ShardWriter]
) -> tuple[dict[str, float], list[Table]]:
    """Write the cells of a tile that has converged; return its counts, and its rows if it has any.

    Its memory is free when this returns.
    """
    problem, states, tile = run.problem, run.states, request.tile
    state = states.take(tile)
    # A last visit without a bound. It takes in what the neighbours sent last, and changes no border
    # if the tile has converged.
    visit = problem.visit(state, request, math.inf)
    if any(found is not None for found in (*visit.border, visit.links)):
        raise RunError(
            f"{problem.name}: tile {tile} had not converged when the queue was "
            "empty; this is a fault of orograph, please report it"
        )
    blocks, counts = problem.finish(state)
    _put(run, states.place(tile).window, blocks, writers)
    if not isinstance(problem, Tabulated):
        return counts, []
    return counts, [problem.rows_of_tile(states.place(tile), state)]


def _put(
    run: FrontierTasks,
    window: Window,
    blocks: Mapping[str, Any],
    writers: Mapping[tuple[str, Window], ShardWriter],
) -> None:
    """Write the output cells of a tile to its shards; close the shards that lie within it."""
    backend, tile_of_shards = get_backend(run.problem.backend), bool(run.context.shard)

    def put(target: tuple[str, Window]) -> None:
        name, shard = target
        part = shard if tile_of_shards else window
        inside = Window(part.y - window.y, part.x - window.x, *part.shape)
        with backend.array_memory():
            writers[target].put(part, to_write(backend, blocks[name], inside))
            if tile_of_shards:
                writers[target].close()

    if backend.devices():
        in_threads(put, writers)
        return
    for target in writers:
        put(target)
