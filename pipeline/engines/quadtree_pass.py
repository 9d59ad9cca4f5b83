"""Quadtree sweep: the engine for problems whose tiles can be summarised by their border.

A problem consists of five pure functions of arrays (see `Problem`). The upward sweep merges the
summaries of the tiles up to the root of a tree; the downward sweep passes messages from the root to
the tiles. Both are Dask graphs, one or many (`orograph.engines.sweep_graphs`):

- ``tiles``: one task for each shard reads its tiles one after the other, summarises them and merges
  their summaries; a shard is also the unit of checkpoints and of writing;
- ``merge``: one task for each node above the shards, up to the root;
- ``split``: one task for each node above the shards, from its message to those of its children;
- ``write``: one task for each shard finishes its tiles and writes the shard whole.

Only summaries and messages travel through Dask, and those are O(border). What a node needs again in
the downward sweep, its saved state, goes to the checkpoint store of the run. A task that finds its
result in the checkpoint store returns it instead of computing it again: so the loss of a worker
costs a read, and a run that was killed continues from where it was. A shard of an earlier run
counts as written once all its bytes match their checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy.typing as npt
from dask._task_spec import Task

from orograph.engines.sweep_graphs import SHARDS_A_GRAPH, SweepGraphs
from orograph.engines.task_graph import Key, Layers
from orograph.execution.context import RunContext
from orograph.execution.jobs import load
from orograph.execution.run import Progress, compute_graphs
from orograph.kernels.backends import get_backend
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node, Place, Tree
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable
from orograph.tiles.store.sink import ShardWriter, count_written

if TYPE_CHECKING:
    from distributed import Client

Array = npt.NDArray[Any]
Table = dict[str, Array]


class Problem(Protocol):
    """A problem on a grid whose tiles can be summarised by their border.

    Summaries, saved states and messages are of any type, but not None. Summaries, saved states and
    rows of a table are kept in checkpoints: they consist of what `orograph.tiles.format.codec`
    stores. Summaries and messages must be small, O(border). All functions are pure: the same
    arguments give the same result, to the bit.
    """

    @property
    def name(self) -> str:
        """Prefix of the names of tasks: lower-case words with hyphens."""

    @property
    def backend(self) -> str:
        """Backend that computes the tiles: ``"numba"`` or ``"cuda"``."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters that are written."""

    def leaf(self, place: Place, *cells: Array) -> tuple[Any, Any]:
        """Return the summary and the saved state of a tile, given its cells in each raster."""

    def merge(self, place: Place, children: Sequence[tuple[Place, Any]]) -> tuple[Any, Any]:
        """Merge siblings: return the summary and the saved state of their parent at ``place``."""

    def root(self, summary: Any) -> tuple[Any, dict[str, Any]]:
        """Return the message to the root, and the attributes of the result."""

    def down(
        self, place: Place, saved: Any, message: Any, children: Sequence[Place]
    ) -> Sequence[Any]:
        """Return the messages to the ``children`` of a node, given the message to it."""

    def finish(self, place: Place, saved: Any, message: Any) -> dict[str, Array]:
        """Return the output of a tile: an array for each of ``outputs``, by name."""


@runtime_checkable
class Tabulated(Protocol):
    """A problem that also produces a table: some rows in each tile, some in each node above.

    One whose columns are none produces no table.

    Each row of the table belongs to a row of the grid, and the table is in the order of these.
    """

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Dimensions of each column by its name, the dimension of the rows first."""

    def rows_of_tile(self, place: Place, saved: Any, message: Any) -> Table:
        """Return the rows of a tile, given the arguments of ``finish``."""

    def rows_of_node(self, place: Place, saved: Any, message: Any) -> Table:
        """Return the rows of a node above the tiles, given the arguments of ``down``."""

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """Return the part of a column that belongs to some rows of the grid, in order.

        ``before`` rows of the table belong to the rows above. ``tables`` is consumed one at a time.
        """


@runtime_checkable
class FinishingInPlace(Protocol):
    """A problem that can write its output where it is wanted, which spares a copy of it."""

    def finish_into(self, place: Place, saved: Any, message: Any, blocks: dict[str, Array]) -> None:
        """Write what ``finish`` returns into windows of arrays, whose rows are contiguous."""


@runtime_checkable
class Rereading(Protocol):
    """A problem that reads its rasters a second time, on the way down."""

    def reread(self, place: Place, saved: Any, *cells: Array) -> Any:
        """Return the saved state of a tile together with its cells.

        ``finish``, and ``rows_of_tile`` where there is one, are given it in place of the saved
        state.
        """


@dataclass(frozen=True)
class QuadtreePass:
    """Run of a problem over rasters: everything that a task needs."""

    problem: Problem
    rasters: tuple[Raster, ...]
    context: RunContext

    @property
    def tree(self) -> Tree:
        """Tree whose leaves are the tiles."""
        return self.context.tree

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Do both sweeps and return the attributes of the result.

        Tasks carry ``handle``, see `orograph.execution.jobs`.
        """
        graphs = self.sweep_graphs(handle)
        how = client, cancelled, SHARDS_A_GRAPH
        for stage in graphs.stages():
            compute_graphs(stage, None, *how)
        attributes: dict[str, Any]
        _, attributes = compute_graphs(graphs.last_stage(), graphs.root, *how)
        self._check_complete()
        return attributes

    def statistics(self) -> dict[str, int]:
        """Return no counts: the work is known before, and the same each time."""
        return {}

    def table(self) -> dict[str, tuple[tuple[str, ...], Iterable[Array]]]:
        """Return the table of a `Tabulated` problem, once all shards are written.

        Columns are iterables of pieces, so that the rows of only one row of shards are in memory.
        """
        columns = {} if self.tabulated is None else self.tabulated.columns
        return {name: (dims, _Column(self, name)) for name, dims in columns.items()}

    @property
    def tabulated(self) -> Tabulated | None:
        """The problem, if it produces a table."""
        tabulated = isinstance(self.problem, Tabulated) and self.problem.columns
        return self.problem if tabulated else None  # type: ignore[return-value]

    def pieces(self, column: str) -> Iterator[Array]:
        """Yield a column of the table, the rows of one row of shards after the other."""
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
        """Return the rows of the grid that each row of shards covers, and its shards."""
        bands: dict[range, list[Node]] = {}
        for node in self.shards:
            window = self.tree.window(node)
            rows = range(window.y, window.y + window.height)
            bands.setdefault(rows, []).append(node)
        return sorted(bands.items(), key=lambda band: band[0].start)

    def rows_of(self, nodes: Iterable[Node]) -> Iterator[Table]:
        """Yield the rows that nodes saved."""
        for node in nodes:
            rows = self.context.checkpoints.load("rows", node)
            if rows is None:
                raise RunError(
                    f"{self.problem.name}: the rows of {node} have been lost since they were "
                    "saved; resume=True makes them again"
                )
            yield from rows

    def task_tiles(self, node: Node) -> Any:
        """Return the summary of a shard."""
        known = self.context.checkpoints.load("summary", node) if self._climbed(node) else None
        if known is not None:
            return known
        summary, saved = self._climb(node)
        self.context.checkpoints.save("downward-state", node, saved)
        self.context.checkpoints.save("summary", node, summary)
        return summary

    def task_merge(self, node: Node, *summaries: Any) -> Any:
        """Return the summary of a node above the shards."""
        self.context.stop_if_cancelled()
        children = [self.tree.place(child) for child in self.tree.children(node)]
        place = self.tree.place(node)
        summary, saved = self.problem.merge(place, list(zip(children, summaries, strict=True)))
        self.context.checkpoints.save("downward-state", node, saved)
        self.context.checkpoints.save("summary", node, summary)
        return summary

    def task_recall(self, node: Node) -> Any:
        """Return the summary of a node that an earlier run saved."""
        summary = self.context.checkpoints.load("summary", node)
        if summary is not None:
            return summary
        # the checkpoint is damaged: compute it again from the summaries below
        if node.level == self.context.shard_level:
            return self.task_tiles(node)
        return self.task_merge(node, *map(self.task_recall, self.tree.children(node)))

    def task_root(self, summary: Any) -> tuple[Any, dict[str, Any]]:
        """Return the message to the root and the attributes of the result."""
        return self.problem.root(summary)

    def task_split(self, node: Node, message: Any) -> Sequence[Any]:
        """Return the messages to the children of a node above the shards."""
        self.context.stop_if_cancelled()
        children = [self.tree.place(child) for child in self.tree.children(node)]
        place, saved = self.tree.place(node), self._saved(node)
        if self.tabulated is not None:
            rows = self.tabulated.rows_of_node(place, saved, message)
            self.context.checkpoints.save("rows", node, [rows])
        return self.problem.down(place, saved, message, children)

    def task_write(self, node: Node, message: Any) -> None:
        """Finish the tiles of a shard and write it."""
        if self._intact(node):
            return
        whole = self.tree.window(node)
        writers = {v.name: self.context.sink.writer(v.name, whole) for v in self.problem.outputs}
        tables: list[Table] = []
        for place, blocks in self._descend(node, self._saved(node), message, tables, writers):
            for name, block in blocks.items():
                writers[name].put(place.window, block)
        for writer in writers.values():
            writer.close()
        if tables:
            self.context.checkpoints.save("rows", node, tables)
        self.context.checkpoints.save("done", node, True)
        self.context.checkpoints.drop("downward-state", node)

    def _written(self, node: Node) -> bool:
        """Return whether a shard has been written, and still exists."""
        window = self.tree.window(node)
        return self.context.checkpoints.has("done", node) and all(
            self.context.sink.written(variable.name, window) for variable in self.problem.outputs
        )

    def _intact(self, node: Node) -> bool:
        """Return whether an earlier run wrote a shard, and all of it can be read back."""
        window, checkpoints = self.tree.window(node), self.context.checkpoints
        return (
            checkpoints.load("done", node) is not None
            and (self.tabulated is None or checkpoints.load("rows", node) is not None)
            and all(self.context.sink.intact(v.name, window) for v in self.problem.outputs)
        )

    def _climbed(self, node: Node) -> bool:
        """Return whether an earlier run saved all of a node that is still needed."""
        kept = self.context.checkpoints.has("downward-state", node) or (
            node.level == self.context.shard_level and self._written(node)
        )
        return kept and self.context.checkpoints.has("summary", node)

    def _saved(self, node: Node) -> Any:
        saved = self.context.checkpoints.load("downward-state", node)
        if saved is not None:
            return saved
        # lost or damaged on disk: compute it again, since everything it depends on still exists
        if node.level == self.context.shard_level:
            return self._climb(node)[1]
        children = [(self.tree.place(c), self.task_recall(c)) for c in self.tree.children(node)]
        return self.problem.merge(self.tree.place(node), children)[1]

    def _climb(self, node: Node) -> tuple[Any, Any]:
        place = self.tree.place(node)
        if node.level == 0:
            self.context.stop_if_cancelled()
            return self.problem.leaf(place, *self._cells(place))
        below = [
            (self.tree.place(child), *self._climb(child)) for child in self.tree.children(node)
        ]
        summary, saved = self.problem.merge(place, [(p, s) for p, s, _ in below])
        return summary, (saved, [r for _, _, r in below])

    def _descend(
        self,
        node: Node,
        saved: Any,
        message: Any,
        tables: list[Table],
        writers: Mapping[str, ShardWriter],
    ) -> Iterator[tuple[Place, dict[str, Array]]]:
        place = self.tree.place(node)
        if node.level == 0:
            self.context.stop_if_cancelled()
            if isinstance(self.problem, Rereading):
                saved = self.problem.reread(place, saved, *self._cells(place))
            if self.tabulated is not None:
                tables.append(self.tabulated.rows_of_tile(place, saved, message))
            if isinstance(self.problem, FinishingInPlace):
                blocks = {name: writer.block(place.window) for name, writer in writers.items()}
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

    def _cells(self, place: Place) -> Iterator[Array]:
        return (raster.read(place.window) for raster in self.rasters)

    def progress(self) -> Progress:
        """Return the number of tasks that have saved their result, and of all tasks."""
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        done = self.context.checkpoints.count("done", self.context.shard_level)
        done += sum(self.context.checkpoints.count("summary", level) for level in levels)
        total = self.tree.count(self.context.shard_level) + sum(map(self.tree.count, levels))
        return Progress(done, total)

    def _check_complete(self) -> None:
        """Raise RunError if a shard has not been written, or is lost."""
        level = self.context.shard_level
        windows = [self.tree.window(node) for node in self.shards]
        sink, outputs = self.context.sink, self.problem.outputs
        written = min(
            self.context.checkpoints.count("done", level),
            *(count_written(sink, variable.name, windows) for variable in outputs),
            len(windows),
        )
        expected = self.tree.count(level)
        if written != expected:
            raise RunError(
                f"{self.problem.name}: {written} of {expected} shards were written, though no "
                "task has failed; resume=True does the others"
            )

    # -- the graph ---------------------------------------------------------------------------

    @cached_property
    def shards(self) -> list[Node]:
        """Nodes that one task reads and one task writes, in the order of the tree."""
        return list(self.tree.nodes(self.context.shard_level))

    def graph(self, handle: Any) -> tuple[dict[Key, Task], Key, list[Key]]:
        """Return the tasks of the run as one graph, the key of the root, and those of the writes.

        What an earlier run saved is not computed again: summaries are recalled, shards verified.

        Tasks are in the order of execution: depth first, so that summaries are merged as soon as
        possible, and messages likewise.
        """
        (graph,) = self.sweep_graphs(handle).downward(
            self.context.shard_level, self.tree.root.level
        )
        return graph.tasks, graph.kept[0], list(graph.ends)

    def sweep_graphs(self, handle: Any) -> SweepGraphs:
        """Return the graphs of the run."""
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        begun = [level for level in levels if self.context.checkpoints.count("summary", level)]
        return SweepGraphs(
            Layers(self.problem.name, self.context.token),
            self.tree,
            self.context.shard_level,
            self.context.threads,
            partial(_task, handle),
            lambda node: node.level in begun and self._climbed(node),
        )


@dataclass(frozen=True)
class _Column:
    """Column of the table of a run, in pieces."""

    run: QuadtreePass
    name: str

    def __iter__(self) -> Iterator[Array]:
        return self.run.pieces(self.name)


def _task(handle: Any, key: Key, *arguments: Any) -> Task:
    return Task(key, _perform, handle, *arguments)


def _perform(handle: Any, stage: str, node: Node | None, *arguments: Any) -> Any:
    """Execute one task of a run: the only function that Dask calls."""
    run: QuadtreePass = load(handle)
    with get_backend(run.problem.backend).array_memory():
        if stage in ("split", "write"):
            assert node is not None
            messages, index, *_ = arguments
            method = run.task_split if stage == "split" else run.task_write
            return method(node, messages[index])
        if stage == "root":
            return run.task_root(*arguments)
        return getattr(run, f"task_{stage}")(node, *arguments)
