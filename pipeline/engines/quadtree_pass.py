"""The up-and-down pass: the engine for problems whose tiles can be summarised by their border.

A problem hands in five pure functions of arrays (see `Problem`). The engine takes every tile's
summary up the quadtree to the root, and answers down again to the tiles, as one static Dask
graph:

- ``tiles``: one task reads the tiles of a whole shard one after the other, summarises them and
  merges their summaries; it is also the unit of checkpoints and of writing;
- ``merge``: one task a node above the shards, up to the root;
- ``split``: one task a node on the way down, from the root's answer to those of the shards;
- ``write``: one task a shard finishes its tiles and writes the shard whole.

Only summaries and answers travel through Dask, and those are O(border). What a node keeps for
the way down, its residue, goes to the run's checkpoint store. A task that finds its result in the
checkpoint store returns it instead of doing the work again: so the loss of a worker costs a read,
and a run that was killed goes on from where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy.typing as npt
from dask._task_spec import Task, TaskRef

from orograph.engines.task_graph import Key, Layers
from orograph.execution.context import RunContext
from orograph.execution.jobs import load
from orograph.execution.run import Progress, compute
from orograph.kernels.backends import get_backend
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node, Place, Quadtree
from orograph.tiles.raster.raster import Raster
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    from distributed import Client

# shards whose answers may lie ready beyond the last one written
AHEAD = 64

Array = npt.NDArray[Any]
Table = dict[str, Array]


class Problem(Protocol):
    """A problem on a grid whose tiles can be summarised by their border.

    Summaries, residues and answers are whatever the problem likes, but not None. Summaries and
    residues, and rows of a table, are kept in checkpoints: they are made of what
    `orograph.tiles.store.codec` stores. Summaries and answers must be small, O(border). All
    functions are pure: the same arguments give the same result, to the bit.
    """

    @property
    def name(self) -> str:
        """Lower-case words with hyphens; tasks are called by it."""

    @property
    def backend(self) -> str:
        """What computes the tiles: ``"numba"`` or ``"cuda"``."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters that are written."""

    def leaf(self, place: Place, *cells: Array) -> tuple[Any, Any]:
        """Summarise a tile: ``(summary, residue)`` of its cells in each of the rasters."""

    def merge(self, place: Place, children: Sequence[tuple[Place, Any]]) -> tuple[Any, Any]:
        """Join siblings into their parent at ``place``: ``(summary, residue)``."""

    def root(self, summary: Any) -> tuple[Any, dict[str, Any]]:
        """The answer to the root's summary, and the attributes of the whole result."""

    def down(
        self, place: Place, saved: Any, message: Any, children: Sequence[Place]
    ) -> Sequence[Any]:
        """From a node's answer, those of its ``children``."""

    def finish(self, place: Place, saved: Any, message: Any) -> dict[str, Array]:
        """The output of a tile, one array for each of ``outputs``."""


@runtime_checkable
class Tabulated(Protocol):
    """A problem that also makes a table: some rows in each tile, some in each node above.

    Each row of the table belongs to a row of the grid, and the table is in the order of these.
    """

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the columns and their dimensions, that of the rows first."""

    def rows_of_tile(self, place: Place, saved: Any, message: Any) -> Table:
        """The rows that a tile knows, with what ``finish`` is given."""

    def rows_of_node(self, place: Place, saved: Any, message: Any) -> Table:
        """The rows that a node above the tiles knows, with what ``down`` is given."""

    def join_rows(
        self, tables: Iterable[Table], column: str, rows: range | None = None, before: int = 0
    ) -> Array:
        """The part of a column that belongs to some rows of the grid, in order.

        ``before`` rows of the table belong to the rows above. Tables are taken one at a time.
        """


@dataclass(frozen=True)
class QuadtreePass:
    """One run of a problem over a raster: everything a task must know."""

    problem: Problem
    rasters: tuple[Raster, ...]
    context: RunContext

    @property
    def tree(self) -> Quadtree:
        """Return how the work is divided."""
        return self.context.tree

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Go up and down; the attributes of the result.

        ``handle`` is what tasks carry, see `orograph.execution.jobs`.
        """
        tasks, root, writes = self.graph(handle)
        attributes: dict[str, Any]
        _, attributes = compute(tasks, [root, *writes], client, cancelled)
        self._check_complete()
        return attributes

    def statistics(self) -> dict[str, int]:
        """How much work it was: known before, and the same each time."""
        return {}

    def table(self) -> dict[str, tuple[tuple[str, ...], Iterable[Array]]]:
        """The table of a problem that makes one, once all shards are written.

        Columns come in pieces, so that no more than a row of shards' is in memory.
        """
        if not isinstance(self.problem, Tabulated):
            return {}
        columns = self.problem.columns
        return {name: (dims, _Column(self, name)) for name, dims in columns.items()}

    def pieces(self, column: str) -> Iterator[Array]:
        """A column of the table, the rows of one row of shards after the other."""
        assert isinstance(self.problem, Tabulated)
        # these rows are of what crosses shards: O(border) a node
        levels = range(self.context.shard_level + 1, self.tree.root.level + 1)
        above = list(self.rows_of(node for level in levels for node in self.tree.nodes(level)))
        side = self.tree.tile << self.context.shard_level
        before = 0
        for y in range(0, self.tree.shape[0], side):
            band = (node for node in self.shards if self.tree.window(node).y == y)
            tables = chain(above, self.rows_of(band))
            piece = self.problem.join_rows(tables, column, range(y, y + side), before)
            before += len(piece)
            yield piece
            del piece  # before the next is made

    def rows_of(self, nodes: Iterable[Node]) -> Iterator[Table]:
        """The rows that nodes have left."""
        for node in nodes:
            yield from self.context.checkpoints.load("rows", node)

    def task_tiles(self, node: Node) -> Any:
        """The summary of a shard."""
        known = self.context.checkpoints.load("summary", node) if self._climbed(node) else None
        if known is not None:
            return known
        summary, saved = self._climb(node)
        self.context.checkpoints.save("residue", node, saved)
        self.context.checkpoints.save("summary", node, summary)
        return summary

    def task_merge(self, node: Node, *summaries: Any) -> Any:
        """The summary of a node above the shards."""
        self.context.stop_if_cancelled()
        children = [self.tree.place(child) for child in self.tree.children(node)]
        place = self.tree.place(node)
        summary, saved = self.problem.merge(place, list(zip(children, summaries, strict=True)))
        self.context.checkpoints.save("residue", node, saved)
        self.context.checkpoints.save("summary", node, summary)
        return summary

    def task_recall(self, node: Node) -> Any:
        """The summary of a node that an earlier run has left."""
        summary = self.context.checkpoints.load("summary", node)
        if summary is not None:
            return summary
        # the checkpoint is damaged: do the node's part again, from below
        if node.level == self.context.shard_level:
            return self.task_tiles(node)
        return self.task_merge(node, *map(self.task_recall, self.tree.children(node)))

    def task_root(self, summary: Any) -> tuple[Any, dict[str, Any]]:
        """The answer to the root and the attributes of the result."""
        return self.problem.root(summary)

    def task_split(self, node: Node, message: Any) -> Sequence[Any]:
        """The answers of the children of a node above the shards."""
        self.context.stop_if_cancelled()
        children = [self.tree.place(child) for child in self.tree.children(node)]
        place, saved = self.tree.place(node), self._saved(node)
        if isinstance(self.problem, Tabulated):
            rows = self.problem.rows_of_node(place, saved, message)
            self.context.checkpoints.save("rows", node, [rows])
        return self.problem.down(place, saved, message, children)

    def task_write(self, node: Node, message: Any) -> None:
        """Finish the tiles of a shard and write it."""
        if self._written(node):
            return
        whole = self.tree.window(node)
        writers = {v.name: self.context.sink.writer(v.name, whole) for v in self.problem.outputs}
        tables: list[Table] = []
        for place, blocks in self._descend(node, self._saved(node), message, tables):
            for name, block in blocks.items():
                writers[name].put(place.window, block)
        for writer in writers.values():
            writer.close()
        if tables:
            self.context.checkpoints.save("rows", node, tables)
        self.context.checkpoints.save("done", node, True)
        self.context.checkpoints.drop("residue", node)

    def _written(self, node: Node) -> bool:
        """Has a shard been written, and is it still there?"""
        window = self.tree.window(node)
        return self.context.checkpoints.has("done", node) and all(
            self.context.sink.written(variable.name, window) for variable in self.problem.outputs
        )

    def _climbed(self, node: Node) -> bool:
        """Has an earlier run left all of a node that is still needed?"""
        kept = self.context.checkpoints.has("residue", node) or (
            node.level == self.context.shard_level and self._written(node)
        )
        return kept and self.context.checkpoints.has("summary", node)

    def _saved(self, node: Node) -> Any:
        saved = self.context.checkpoints.load("residue", node)
        if saved is not None:
            return saved
        # lost or damaged on disk: everything that made it is still there
        if node.level == self.context.shard_level:
            return self._climb(node)[1]
        children = [(self.tree.place(c), self.task_recall(c)) for c in self.tree.children(node)]
        return self.problem.merge(self.tree.place(node), children)[1]

    def _climb(self, node: Node) -> tuple[Any, Any]:
        place = self.tree.place(node)
        if node.level == 0:
            self.context.stop_if_cancelled()
            return self.problem.leaf(place, *(r.read(place.window) for r in self.rasters))
        below = [
            (self.tree.place(child), *self._climb(child)) for child in self.tree.children(node)
        ]
        summary, saved = self.problem.merge(place, [(p, s) for p, s, _ in below])
        return summary, (saved, [r for _, _, r in below])

    def _descend(
        self, node: Node, saved: Any, message: Any, tables: list[Table]
    ) -> Iterator[tuple[Place, dict[str, Array]]]:
        place = self.tree.place(node)
        if node.level == 0:
            self.context.stop_if_cancelled()
            if isinstance(self.problem, Tabulated):
                tables.append(self.problem.rows_of_tile(place, saved, message))
            yield place, self.problem.finish(place, saved, message)
            return
        own, below = saved
        if isinstance(self.problem, Tabulated):
            tables.append(self.problem.rows_of_node(place, own, message))
        children = self.tree.children(node)
        messages = self.problem.down(place, own, message, [self.tree.place(c) for c in children])
        for child, child_saved, child_message in zip(children, below, messages, strict=True):
            yield from self._descend(child, child_saved, child_message, tables)

    def progress(self) -> Progress:
        """Tasks that have left their result, and all that will."""
        levels = range(self.context.shard_level, self.tree.root.level + 1)
        done = self.context.checkpoints.count("done", self.context.shard_level)
        done += sum(self.context.checkpoints.count("summary", level) for level in levels)
        total = self.tree.count(self.context.shard_level) + sum(map(self.tree.count, levels))
        return Progress(done, total)

    def _check_complete(self) -> None:
        """Refuse a result of which a shard has not been written."""
        written = sum(map(self._written, self.shards))
        expected = self.tree.count(self.context.shard_level)
        if written != expected:
            raise RunError(
                f"{self.problem.name}: {written} of {expected} shards were written, though no task "
                "has failed; resume=True does the others"
            )

    # -- the graph ---------------------------------------------------------------------------

    @cached_property
    def shards(self) -> list[Node]:
        """The nodes that one task reads and one task writes, in z-order."""
        return list(self.tree.nodes(self.context.shard_level))

    def graph(self, handle: Any) -> tuple[dict[Key, Task], Key, list[Key]]:
        """The tasks that are still to do, the key of the root, and the keys of the writes.

        Tasks stand in the order in which they had best be done: up depth first in z-order, so
        that summaries are merged as soon as they can be, and down likewise.
        """
        layers = Layers(self.problem.name, self.context.token)
        tasks: dict[Key, Task] = {}

        def add(stage: str, node: Node, *arguments: Any, recall: bool = False) -> Key:
            key = layers.key(stage, node)
            method = "recall" if recall else stage
            tasks[key] = Task(key, _perform, handle, method, node, *arguments)
            return key

        def up(node: Node) -> Key:
            at_shard = node.level == self.context.shard_level
            stage = "tiles" if at_shard else "merge"
            if self._climbed(node):
                return add(stage, node, recall=True)
            below = [] if at_shard else [TaskRef(up(c)) for c in self.tree.children(node)]
            return add(stage, node, *below)

        def down(node: Node, message: Key, index: int) -> None:
            if node.level == self.context.shard_level:
                if not self._written(node):
                    writes.append(add("write", node, TaskRef(message), index))
                return
            # answers are not made far ahead of the shards that wait for them
            gate = [TaskRef(writes[-AHEAD])] if len(writes) >= AHEAD else []
            split = add("split", node, TaskRef(message), index, *gate)
            for i, child in enumerate(self.tree.children(node)):
                down(child, split, i)

        writes: list[Key] = []
        top = self.tree.root
        root = layers.key("root", top)
        tasks[root] = Task(root, _perform, handle, "root", None, TaskRef(up(top)))
        down(top, root, 0)
        return tasks, root, writes


@dataclass(frozen=True)
class _Column:
    """A column of a run's table, in pieces."""

    run: QuadtreePass
    name: str

    def __iter__(self) -> Iterator[Array]:
        return self.run.pieces(self.name)


def _perform(handle: Any, stage: str, node: Node | None, *arguments: Any) -> Any:
    """Do one task of a run: the only function that Dask sees."""
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
