"""The tasks of a quadtree sweep, as graphs of bounded size.

For each task of a graph Dask looks at all tasks that lead to it, to put them in order: in one
graph of both sweeps every task on the way down hangs on every tile, so time and memory would grow
with the square of the shards. And a scheduler knows a task as long as it knows one that depends on
it. So no graph has many tasks. What a graph of the upward sweep needs of those before is recalled
from the checkpoints. Messages are not saved: those to the nodes above a graph are kept while it is
under way, and few tasks lead to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

from dask._task_spec import Task, TaskRef

from orograph.engines.task_graph import Key, Layers
from orograph.execution.run import Graph
from orograph.tiles.grid.quadtree import Node, Tree

# shards whose messages may be ready beyond the last one written
AHEAD = 64
# shards below a node that has a graph of its own, on average at the least; threads do one graph
# after the other, and wait for the last task of each
SHARDS_A_GRAPH = 256
SHARDS_A_THREAD = 16


class SweepGraphs:
    """Makes the graphs of a run, one at a time, with tasks in the order of execution.

    Parameters
    ----------
    layers
        Gives their names.
    tree, shard_level
        Nodes of that level are shards.
    threads
        Those of this process that do the work; 0: a cluster does.
    make_task
        Returns the task of a key, given the name of its method, the node and more arguments.
    climbed
        Tells whether an earlier run saved all of a node that is still needed.
    """

    def __init__(
        self,
        layers: Layers,
        tree: Tree,
        shard_level: int,
        threads: int,
        make_task: Callable[..., Task],
        climbed: Callable[[Node], bool],
    ) -> None:
        self._layers, self._tree, self._shard_level = layers, tree, shard_level
        self._threads, self._make_task, self._climbed = threads, make_task, climbed
        self._tasks: dict[Key, Task] = {}
        self._writes: list[Key] = []

    @property
    def root(self) -> Key:
        """Key of the task that turns the summary of all into a message."""
        return self._layers.key("root", self._tree.root)

    @cached_property
    def levels(self) -> list[int]:
        """Levels of the tree, from the shards to the root: a graph goes from one to the next."""
        count, levels = self._tree.count, [self._shard_level]
        least = max(SHARDS_A_GRAPH, SHARDS_A_THREAD * self._threads)
        for level in range(self._shard_level + 1, self._tree.root.level):
            if count(levels[-1]) >= least * count(level):
                levels.append(level)
        return [*levels, self._tree.root.level]

    def stages(self) -> Iterator[Iterator[Graph]]:
        """Yield the graphs of the upward sweep, each stage to be done before the next begins."""
        for lowest, level in pairwise(self.levels[:-1]):
            yield self._upward(lowest, level)

    def last_stage(self) -> Iterator[Graph]:
        """Yield the graphs of the downward sweep, the first with what remains of the upward one."""
        return self.downward(self.levels[-2], self.levels[1])

    def _upward(self, lowest: int, level: int) -> Iterator[Graph]:
        """Yield a graph for each node of a level, up from the nodes of the ``lowest`` level."""
        for node in self._unclimbed(self._tree.root, level):
            yield self._cut([self._up(node, lowest)])

    def downward(self, lowest: int, level: int) -> Iterator[Graph]:
        """Yield a graph for each node of a level, down to the shards.

        The first begins with the way up from the ``lowest`` level to the root. Each keeps the root
        and the messages to the nodes above it.
        """
        top, root = self._tree.root, self.root
        summary = TaskRef(self._up(top, lowest))
        self._tasks[root] = self._make_task(root, "root", None, summary)

        def down(node: Node, path: list[Key], index: int) -> Iterator[Graph]:
            if node.level <= level:
                self._down(node, path[-1], index)
                yield self._cut(self._writes, path)
                return
            split = self._add("split", node, TaskRef(path[-1]), index)
            for i, child in enumerate(self._tree.children(node)):
                yield from down(child, [*path, split], i)

        yield from down(top, [root], 0)

    def _cut(self, ends: list[Key], kept: Sequence[Key] = ()) -> Graph:
        graph = Graph(self._tasks, ends, kept)
        self._tasks, self._writes = {}, []
        return graph

    def _add(self, stage: str, node: Node, *arguments: Any, recall: bool = False) -> Key:
        key = self._layers.key(stage, node)
        method = "recall" if recall else stage
        self._tasks[key] = self._make_task(key, method, node, *arguments)
        return key

    def _up(self, node: Node, lowest: int) -> Key:
        at_shard = node.level == self._shard_level
        if node.level == lowest and not at_shard:
            return self._add("recall", node)
        stage = "tiles" if at_shard else "merge"
        if self._climbed(node):
            return self._add(stage, node, recall=True)
        children = [] if at_shard else self._tree.children(node)
        below = [TaskRef(self._up(child, lowest)) for child in children]
        return self._add(stage, node, *below)

    def _down(self, node: Node, message: Key, index: int) -> None:
        if node.level == self._shard_level:
            # a shard that is there is verified by this task
            self._writes.append(self._add("write", node, TaskRef(message), index))
            return
        # messages are not computed far ahead of the shards that need them
        gate = [TaskRef(self._writes[-AHEAD])] if len(self._writes) >= AHEAD else []
        split = self._add("split", node, TaskRef(message), index, *gate)
        for i, child in enumerate(self._tree.children(node)):
            self._down(child, split, i)

    def _unclimbed(self, node: Node, level: int) -> Iterator[Node]:
        """Yield the nodes of a level that an earlier run has not saved, nor a node above them."""
        if self._climbed(node):
            return
        if node.level == level:
            yield node
            return
        for child in self._tree.children(node):
            yield from self._unclimbed(child, level)


def separate_graphs(tasks: Iterator[Task], *, on_threads: bool) -> Iterator[Graph]:
    """Yield tasks that need nothing of one another: those of a cluster some at a time."""
    while some := {
        task.key: task for task in islice(tasks, None if on_threads else SHARDS_A_GRAPH)
    }:
        yield Graph(some, list(some))
