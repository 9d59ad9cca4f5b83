"""Quadtree sweep: the engine for problems whose tiles can be summarised by their border.

A problem consists of five pure functions of arrays (see `Problem`). The upward sweep merges the
summaries of the tiles up to the root of a tree; the downward sweep passes messages from the root to
the tiles. Both are Dask graphs, one or many (`orograph.engines.sweep_graphs`):

- ``tiles``: one task for each shard reads its tiles one after the other, summarises them and merges
  their summaries; a shard is also the unit of checkpoints and of writing;
- ``merge``: one task for each node above these, up to the root;
- ``split``: one task for each node above them, from its message to those of its children;
- ``write``: one task for each shard finishes its tiles and writes the shard whole.

On a cluster a ``tiles`` or ``write`` task of a large grid does a node of several shards, one after
the other, with the merges or splits between them. It keeps no more of a shard than its summary, and
saves the same as several tasks would.

Only summaries and messages travel through Dask, and those are O(border). What a node needs again in
the downward sweep, its saved state, goes to the checkpoint store of the run. A task that finds its
result in the checkpoint store returns it instead of computing it again: so the loss of a worker
costs a read, and a run that was killed continues from where it was. A shard of an earlier run
counts as written once all its bytes match their checksums.

One idea, long: the engine, and what its tasks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from dask._task_spec import Task

from orograph.engines.parts import read_cells, to_write
from orograph.engines.sweep_graphs import TASKS_A_GRAPH, SweepGraphs, level_of_tasks
from orograph.engines.sweep_problems import (
    FinishingInPlace,
    OnDevice,
    Problem,
    Rereading,
    Table,
    Tabulated,
)
from orograph.kernels.backends import Backend, get_backend
from orograph.run.cluster.clusters import MOST_GPU_THREADS, memory_of_machine
from orograph.run.cluster.compute import compute_graphs
from orograph.run.cluster.task_graph import Key, Layers
from orograph.run.context import RunContext, located
from orograph.run.feedback import Progress
from orograph.run.monitor import begin_phase
from orograph.run.problem import ProblemFacts
from orograph.run.run import Engine, ResultTable
from orograph.run.shared_data import Handle, load
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node, Place, Tree
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.mask import stores_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Columns
from orograph.tiles.store.shard import AHEAD_BYTES, Fetched, using
from orograph.tiles.store.sink import ArraySink, ShardWriter, count_written

if TYPE_CHECKING:
    from distributed import Client


TILES_A_THREAD = 4
MOST_CELLS = 2**26
"""Greatest number of cells of a tile that is made by joining tiles."""
FEWEST_ON_GPUS = 8  # joined tiles for each; twice as many for one alone, whose threads read them
SMALL_ON_GPUS = 2**24  # cells of a tile that is read in the time that launches and copies take
GPU_BYTES_A_CELL = 18  # of each thread: cells and results of 8 bytes, and its share of three tiles
BYTES_A_CELL = 64  # of each thread, in the memory of the process: fillings of noise take most


@dataclass(frozen=True)
class QuadtreePass(Engine):
    """Engine that runs a problem's upward and downward sweep; all that a task needs."""

    problem: Problem[Any, Any, Any, Any]
    rasters: tuple[Raster, ...]
    context: RunContext
    maker: TableMaker | None = field(init=False, compare=False, repr=False)
    """Maker of the problem's table when the sweep is done; None: the engine makes it."""

    def __post_init__(self) -> None:
        problem = self.problem
        maker = problem.table_maker(self) if isinstance(problem, MakingTable) else None
        object.__setattr__(self, "maker", maker)

    @property
    def tree(self) -> Tree:
        """Tree whose leaves are the tiles."""
        return self.context.tree

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Do both sweeps and return the attributes of the result.

        Tasks carry ``handle``, see `orograph.run.shared_data`.
        """
        graphs = self.sweep_graphs(handle)
        how = client, cancelled, TASKS_A_GRAPH
        begin_phase(self.problem.name)
        for stage in graphs.stages():
            compute_graphs(stage, None, *how)
        attributes: dict[str, Any]
        _, attributes = compute_graphs(graphs.last_stage(), graphs.root, *how)
        self._check_complete()
        if self.maker is not None:
            begin_phase(f"{self.problem.name}: table")
            attributes = self.maker.follow(attributes, client, cancelled)
        return attributes

    def table(self) -> ResultTable:
        """Return the table of a `Tabulated` problem, once all shards are written.

        Columns are iterables of pieces, so that the rows of only one row of shards are in memory.
        """
        return self.columns() if self.maker is None else self.maker.table()

    def columns(self) -> Columns:
        """Return the table columns, each an iterable of arrays, one per row of shards."""
        columns = {} if self.tabulated is None else self.tabulated.columns
        return {name: (dims, _Column(self, name)) for name, dims in columns.items()}

    @cached_property
    def tabulated(self) -> Tabulated[Any, Any, Any] | None:
        """The problem if it produces a table, else None."""
        tabulated = isinstance(self.problem, Tabulated) and (self.problem.columns or self.maker)
        return self.problem if tabulated else None  # type: ignore[return-value]

    def pieces(self, column: str) -> Iterator[Array]:
        """Yield one column of the table in pieces, one for each row of shards."""
        assert self.tabulated is not None
        # these rows belong to what crosses shards: O(border) a node
        levels = range(self.context.shard_level + 1, self.tree.root.level + 1)
        above = list(self.rows_of(node for level in levels for node in self.tree.nodes(level)))
        before = 0
        for rows, nodes in self.bands():
            tables = chain(above, self.rows_of(nodes))
            piece = self.tabulated.join_rows(tables, column, rows, before)
            before += len(piece)
            yield piece
            del piece  # before the next is made

    def bands(self) -> list[tuple[range, list[Node]]]:
        """Return for each row of shards the range of grid rows it covers, and its shards."""
        bands: dict[range, list[Node]] = {}
        for node in self.shards:
            window = self.tree.window(node)
            rows = range(window.y, window.y + window.height)
            bands.setdefault(rows, []).append(node)
        return sorted(bands.items(), key=lambda band: band[0].start)

    def rows_of(self, nodes: Iterable[Node], kind: str = "rows") -> Iterator[Table]:
        """Yield the table rows that nodes saved as checkpoints of a kind."""
        for node in nodes:
            rows = self.context.checkpoints.load(kind, node)
            if rows is None:
                raise RunError(
                    f"{self.problem.name}: the rows of {node} have been lost since they were "
                    "saved; resume=True makes them again"
                )
            yield from rows

    def all_rows(self) -> Iterator[Table]:
        """Yield the saved table rows of every node, one table at a time."""
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        for level in levels:
            yield from self.rows_of(self.tree.nodes(level))

    @property
    def _row_kinds(self) -> tuple[str, ...]:
        """Kinds of checkpoint entries that hold the table rows of a node."""
        return ("rows",) if self.maker is None else self.maker.kinds

    def _save_rows(self, node: Node, tables: list[Table]) -> None:
        entries = {"rows": tables} if self.maker is None else self.maker.entries(tables)
        for kind, entry in entries.items():
            # they are read once or twice, soon: packing them costs more than bytes on disk
            self.context.checkpoints.save(kind, node, entry, compressed=False)

    def task_tiles(self, node: Node) -> Any:
        """Return the summary of a shard, or of a subtree of shards processed one by one."""
        return self._summarise(node, {})

    def task_merge(self, node: Node, level: int, *summaries: object) -> Any:
        """Merge the summaries of a node's descendants at ``level`` into the node's summary."""
        nodes = self.tree.nodes(level, node)
        saves: list[Callable[[], None]] = []
        summary = self._summarise(node, dict(zip(nodes, summaries, strict=True)), saves)
        self.context.checkpoints.together(*saves)
        return summary

    def _summarise(
        self, node: Node, given: Mapping[Node, Any], saves: list[Callable[[], None]] | None = None
    ) -> Any:
        """Compute and save the summary of a node, or return the given or saved one.

        What is to be saved is appended to ``saves``, if that is given.
        """
        if node in given:
            return given[node]
        checkpoints, look = self.context.checkpoints, partial(self._known_summary, node)
        if node.level == self.context.shard_level:
            known, fetched = checkpoints.together(look, partial(self._fetch, node))
            if known is not None:
                return known
            with using(fetched):
                summary, saved = self._climb(node)
        else:
            # merging given summaries costs less than asking, if nothing was saved before
            asks = not (given and checkpoints.began_empty)
            if asks and (known := look()) is not None:
                return known
            children = self.tree.children(node)
            found = [self._summarise(child, given, saves) for child in children]
            self.context.stop_if_cancelled()
            below = list(zip(map(self.tree.place, children), found, strict=True))
            summary, saved = self.problem.merge(self.tree.place(node), below)
        entries = {"downward-state": saved, "summary": summary}
        its_own = [partial(checkpoints.save, kind, node, entries[kind]) for kind in entries]
        if saves is None:
            checkpoints.together(*its_own)
        else:
            saves += its_own
        return summary

    def _known_summary(self, node: Node) -> Any:
        """Return the saved summary of a node, if all is saved that is still needed; else None."""
        summary = self.context.checkpoints.load("summary", node)
        return summary if summary is not None and self._kept(node) else None

    def _fetch(self, node: Node) -> Fetched:
        """Read what the tiles of a shard will read, where requests take long."""
        stores = list(chain.from_iterable(map(stores_of, self.rasters)))
        window, share = self.tree.window(node), AHEAD_BYTES // max(len(stores), 1)
        return dict(chain.from_iterable(store.fetch(window, share).items() for store in stores))

    def task_recall(self, node: Node) -> Any:
        """Load the summary that an earlier run saved for a node."""
        summary = self.context.checkpoints.load("summary", node)
        if summary is not None:
            return summary
        # the checkpoint is damaged: compute it again from the summaries below
        below = [] if node.level == self.context.shard_level else self.tree.children(node)
        return self._summarise(node, {child: self.task_recall(child) for child in below})

    def task_root(self, summary: object) -> tuple[Any, dict[str, Any]]:
        """Turn the root's summary into the root's message and the result attributes."""
        return self.problem.root(summary)

    def task_split(self, node: Node, message: object, level: int) -> Sequence[Any]:
        """Turn the message to a node into messages to its descendants at ``level``."""
        if node.level == level:
            return [message]
        above = [node]
        # Breadth first, in a list that grows meanwhile: all nodes whose messages this task
        # computes.
        for other in above:
            if other.level > level + 1:
                above += self.tree.children(other)
        checkpoints = self.context.checkpoints
        loads = [partial(checkpoints.load, "downward-state", other) for other in above]
        states = dict(zip(above, checkpoints.together(*loads), strict=True))
        return self._split(node, message, level, states)

    def _split(
        self, node: Node, message: Any, level: int, states: Mapping[Node, Any]
    ) -> Sequence[Any]:
        """Return the messages to the descendants of a node at ``level``."""
        if node.level == level:
            return [message]
        self.context.stop_if_cancelled()
        children = self.tree.children(node)
        place, saved = self.tree.place(node), self._saved(node, states[node])
        if self.tabulated is not None:
            rows = self.tabulated.rows_of_node(place, saved, message)
            self._save_rows(node, [rows])
        messages = self.problem.down(place, saved, message, list(map(self.tree.place, children)))
        return [
            its_message
            for child, message in zip(children, messages, strict=True)
            for its_message in self._split(child, message, level, states)
        ]

    def task_write(self, node: Node, message: object) -> None:
        """Finish the tiles of a shard and write it; for a larger node, shard after shard."""
        if node.level > self.context.shard_level:
            messages = self.task_split(node, message, node.level - 1)
            for child, its_message in zip(self.tree.children(node), messages, strict=True):
                self.task_write(child, its_message)
            return
        checkpoints, rereads = self.context.checkpoints, isinstance(self.problem, Rereading)
        intact, loaded, fetched = checkpoints.together(
            partial(self._intact, node),
            partial(checkpoints.load, "downward-state", node),
            partial(self._fetch, node) if rereads else dict,
        )
        if intact:
            return
        saved, sink, outputs = self._saved(node, loaded), self.context.sink, self.problem.outputs
        shards = self.context.shards(node)
        writers = {(v.name, shard): sink.writer(v.name, shard) for v in outputs for shard in shards}
        tables: list[Table] = []
        # of several shards one is written to disk while the next is encoded
        early = bool(self.context.shard) and not checkpoints.waits
        with located(self.tree.window(node)), using(fetched):
            for place, blocks in self._descend(node, saved, message, tables, writers):
                window = place.window
                for (name, shard), writer in writers.items():
                    part = shard if self.context.shard else window
                    inside = Window(part.y - window.y, part.x - window.x, *part.shape)
                    writer.put(part, to_write(self._backend, blocks[name], inside))
                    if early:
                        writer.close()
        checkpoints.together(
            *(writer.close for writer in writers.values() if not early),
            *([partial(self._save_rows, node, tables)] if tables else []),
            # if it is there without the shard, that is noticed
            partial(checkpoints.save, "done", node, True),
        )
        # Dropped after `done` is saved: until then a killed task needs it to do the shard again.
        if not checkpoints.waits:  # else it goes with the others
            checkpoints.drop("downward-state", node)

    def _written(self, node: Node) -> bool:
        """Return whether a shard is recorded as written, and its output still exists."""
        sink, outputs = self.context.sink, self.problem.outputs
        return self.context.checkpoints.has("done", node) and all(
            sink.written(v.name, shard) for v in outputs for shard in self.context.shards(node)
        )

    def _intact(self, node: Node) -> bool:
        """Return whether an earlier run wrote a shard and its checksums still match."""
        checkpoints, sink = self.context.checkpoints, self.context.sink
        shards = self.context.shards(node)
        return (
            # Loaded and not only looked for, because a damaged entry must not count.
            checkpoints.load("done", node) is not None
            and (
                self.tabulated is None
                or all(checkpoints.load(kind, node) is not None for kind in self._row_kinds)
            )
            and all(sink.intact(v.name, shard) for v in self.problem.outputs for shard in shards)
        )

    def _climbed(self, node: Node) -> bool:
        """Return whether an earlier run saved everything of a node that is still needed."""
        return self._kept(node) and self.context.checkpoints.has("summary", node)

    def _kept(self, node: Node) -> bool:
        """Return whether what follows from a node's message is saved, or was written."""
        return self.context.checkpoints.has("downward-state", node) or (
            node.level == self.context.shard_level and self._written(node)
        )

    def _saved(self, node: Node, loaded: Any) -> Any:
        """Return the saved state of a node, given what was loaded of it."""
        if loaded is not None:
            return loaded
        # lost or damaged on disk: compute it again, since everything it depends on still exists
        if node.level == self.context.shard_level:
            return self._climb(node)[1]
        children = [(self.tree.place(c), self.task_recall(c)) for c in self.tree.children(node)]
        return self.problem.merge(self.tree.place(node), children)[1]

    def _climb(self, node: Node) -> tuple[Any, Any]:
        place = self.tree.place(node)
        if node.level == 0:
            self.context.stop_if_cancelled()
            with located(place.window):
                return self.problem.leaf(place, *self._cells(place))
        below = [
            (self.tree.place(child), *self._climb(child)) for child in self.tree.children(node)
        ]
        summary, saved = self.problem.merge(place, [(p, s) for p, s, _ in below])
        # The states of the children go along, so that one entry holds all of a shard.
        return summary, (saved, [r for _, _, r in below])

    def _descend(
        self,
        node: Node,
        saved: Any,
        message: object,
        tables: list[Table],
        writers: Mapping[tuple[str, Window], ShardWriter],
    ) -> Iterator[tuple[Place, dict[str, Array]]]:
        place = self.tree.place(node)
        if node.level == 0:
            self.context.stop_if_cancelled()
            if isinstance(self.problem, Rereading):
                saved = self.problem.reread(place, saved, *self._cells(place))
            if self.tabulated is not None:
                tables.append(self.tabulated.rows_of_tile(place, saved, message))
            # Not where a GPU encodes the cells, nor where a tile covers several shards and so no
            # one of the writers has a block for all of it.
            in_place = not (self._backend.encodes or self.context.shard)
            if isinstance(self.problem, FinishingInPlace) and in_place:
                blocks = {name: w.block(place.window) for (name, _), w in writers.items()}
                self.problem.finish_into(place, saved, message, blocks)
                yield place, blocks
            else:
                yield place, self.problem.finish(place, saved, message)
            return
        own, below = saved
        if self.tabulated is not None:
            tables.append(self.tabulated.rows_of_node(place, own, message))
        children = self.tree.children(node)
        messages = self.problem.down(place, own, message, [self.tree.place(c) for c in children])
        for child, child_saved, child_message in zip(children, below, messages, strict=True):
            yield from self._descend(child, child_saved, child_message, tables, writers)

    def _cells(self, place: Place) -> Iterator[Any]:
        problem, window = self.problem, place.window
        if isinstance(problem, OnDevice) and problem.takes_device_cells:
            return (read_cells(self._backend, raster, window) for raster in self.rasters)
        return (raster.read(window) for raster in self.rasters)

    @property
    def _backend(self) -> Backend:
        return get_backend(self.problem.backend)

    def progress(self) -> Progress:
        """Return how many tasks have saved their result, and how many there are."""
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        done = self.context.checkpoints.count("done", self.context.shard_level)
        done += sum(self.context.checkpoints.count("summary", level) for level in levels)
        total = self.tree.count(self.context.shard_level) + sum(map(self.tree.count, levels))
        tasks = Progress(done, total)
        return tasks if self.maker is None else self.maker.progress(tasks)

    def _check_complete(self) -> None:
        """Raise RunError if any shard has not been written or was lost."""
        level = self.context.shard_level
        windows = [shard for node in self.shards for shard in self.context.shards(node)]
        sink, outputs = self.context.sink, self.problem.outputs
        checkpoints = self.context.checkpoints
        done, *counts = checkpoints.together(
            partial(checkpoints.count, "done", level),
            *(partial(count_written, sink, variable.name, windows) for variable in outputs),
        )
        found = (done, self.tree.count(level)), *((count, len(windows)) for count in counts)
        for written, expected in found:
            if written != expected:
                raise RunError(
                    f"{self.problem.name}: {written} of {expected} shards were written, though no "
                    "task has failed; resume=True does the others"
                )

    # -- the graph ---------------------------------------------------------------------------

    @cached_property
    def shards(self) -> list[Node]:
        """All shards as nodes of the tree, in tree order."""
        return list(self.tree.nodes(self.context.shard_level))

    @cached_property
    def task_level(self) -> int:
        """Tree level of the nodes that one task reads, and one task writes."""
        context = self.context
        if context.threads:
            return context.shard_level
        return level_of_tasks(self.tree, context.shard_level, context.cluster_threads)

    def graph(self, handle: Handle) -> tuple[dict[Key, Task], Key, list[Key]]:
        """Return all tasks of the run as one graph, the root's key, and the keys of the writes.

        What an earlier run saved is not computed again: summaries are recalled, shards verified.

        Tasks are in the order of execution: depth first, so that summaries are merged as soon as
        possible, and messages likewise.
        """
        (graph,) = self.sweep_graphs(handle).downward(self.task_level, self.tree.root.level)
        return graph.tasks, graph.kept[0], list(graph.ends)

    def sweep_graphs(self, handle: Handle) -> SweepGraphs:
        """Return the builder of the run's Dask graphs."""
        levels = range(self.task_level, self.tree.root.level + 1)
        checkpoints, begun = self.context.checkpoints, []
        if not checkpoints.began_empty:
            # Nodes are looked up only on levels of which something was saved.
            begun = [level for level in levels if checkpoints.count("summary", level)]
        return SweepGraphs(
            Layers(self.problem.name, self.context.token),
            self.tree,
            self.task_level,
            self.context.threads,
            partial(_task, handle),
            lambda node: node.level in begun and self._climbed(node),
        )


class TableMaker:
    """Builds the table of a problem after the sweep; subclasses override its steps.

    By default rows are saved as they are, and the columns are those of the problem.

    Parameters
    ----------
    run
        The sweep.
    """

    kinds: ClassVar[tuple[str, ...]] = ("rows",)
    """Kinds of the entries in which the rows of a node are saved."""

    def __init__(self, run: QuadtreePass) -> None:
        self.run = run

    def entries(self, tables: list[Table]) -> dict[str, list[Table]]:
        """Return the checkpoint entries, by kind, in which a node's table rows are saved."""
        return {"rows": tables}

    def follow(
        self, attributes: dict[str, Any], client: Client | None, cancelled: Event
    ) -> dict[str, Any]:
        """Do the work that remains after the sweep, and return the result attributes."""
        return attributes

    def table(self) -> ResultTable:
        """Return the columns of the table."""
        return self.run.columns()

    def progress(self, tasks: Progress) -> Progress:
        """Return the progress of the whole run, given that of the sweep."""
        return tasks


@runtime_checkable
class MakingTable(Protocol):
    """A problem whose table is built by a `TableMaker` after the sweep."""

    def table_maker(self, run: QuadtreePass) -> TableMaker | None:
        """Return the `TableMaker` for a run."""


def join_tiles(context: RunContext) -> RunContext:
    """Return a run context with larger tiles where that is quicker, else the same context.

    That is in memory, where each tile costs some tasks and each seam a merge, and on GPUs, which
    have little to do in a small tile. The result does not depend on the tiles.
    """
    if context.tile_given:
        return context
    # a run that is resumed looks up the tiles that it had; others on CPUs are spared the request
    if context.gpus or isinstance(context.sink, ArraySink) or not context.checkpoints.began_empty:
        return context.join_tiles(_joined_level)
    return context


def join_on_gpus(context: RunContext) -> RunContext:
    """Return a run context with larger tiles if GPUs compute them, else the same context.

    For kernels that are quickest on CPUs where a tile fits the cache.
    """
    if isinstance(context.sink, ArraySink) and not context.gpus:
        return context
    return join_tiles(context)


class SweepProblem(ProblemFacts):
    """Base class of problems that the quadtree sweep solves; see `Problem`."""

    formula = "sweep"
    joins_on_cpus: ClassVar[bool] = False
    """Whether larger tiles are quicker on CPUs too, in memory."""

    @property
    def gpu_bytes(self) -> int:
        """Bytes of GPU memory for each cell of a tile at work, beside `GPU_BYTES_A_CELL`."""
        return 0

    def tiled(self, context: RunContext) -> RunContext:
        """Return a run context with the tiles that are quickest for the problem."""
        return (join_tiles if self.joins_on_cpus else join_on_gpus)(context)

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> QuadtreePass:
        """Return the engine of the problem."""
        problem: Any = self
        return QuadtreePass(problem, rasters, self.tiled(context))


def _joined_level(context: RunContext) -> int:
    """Return the quadtree level whose nodes become the tiles of a run."""
    if context.checkpoints.lasting and not context.checkpoints.began_empty:
        return 0  # it has begun with the tiles as they are
    tree, level, small, most = context.quadtree, 0, 0, MOST_CELLS
    if context.gpus:
        fewest, small = FEWEST_ON_GPUS * max(context.gpus, 2), SMALL_ON_GPUS
        # Threads of a GPU share its memory, and that of the worker.
        threads = context.threads or -(-context.cluster_threads // context.gpus) or MOST_GPU_THREADS
        memory = context.worker_memory or memory_of_machine()
        # few threads leave less for the three tiles that are computed
        there, here = context.gpu_memory * 3 // 5 // GPU_BYTES_A_CELL, memory // BYTES_A_CELL
        most = min(most, there // threads, here // threads)
    elif isinstance(context.sink, ArraySink):
        fewest = 1 if context.threads == 1 else TILES_A_THREAD * context.threads
    else:
        return 0
    while level < tree.root.level:
        # Larger tiles as long as they fit. Beyond ``small`` enough of them must be left for all
        # threads.
        cells = tree.window(Node(level + 1, 0)).size
        if cells > most or (cells > small and tree.count(level + 1) < fewest):
            break
        level += 1
    return level


@dataclass(frozen=True)
class _Column:
    """One column of a run's table, iterated in pieces."""

    run: QuadtreePass
    name: str

    def __iter__(self) -> Iterator[Array]:
        return self.run.pieces(self.name)


def _task(handle: Handle, key: Key, stage: str, *arguments: object) -> Task:
    # Dask gives a task to a worker that holds what it needs, and all messages come from one worker.
    # Tasks that are marked wait at the scheduler, by priority, for whichever worker is free.
    anywhere = stage in ("split", "write")
    return Task(key, _perform, handle, stage, *arguments, _data_producer=anywhere)


def _perform(handle: Handle, stage: str, node: Node | None, *arguments: Any) -> Any:
    """Execute one task of a run: the only function that Dask calls."""
    run: QuadtreePass = load(handle)
    with get_backend(run.problem.backend).array_memory():
        if stage in ("split", "write"):
            assert node is not None
            # A `split` task returns the messages to all children, of which this task takes its own.
            messages, index, *more = arguments
            if stage == "write":
                return run.task_write(node, messages[index])
            return run.task_split(node, messages[index], more[0])
        if stage == "root":
            return run.task_root(*arguments)
        return getattr(run, f"task_{stage}")(node, *arguments)
