"""Build the Dask graphs of a quadtree sweep, each of bounded size.

For each task of a graph Dask looks at all tasks that lead to it, to put them in order: in one
graph of both sweeps every task on the way down hangs on every tile, so time and memory would grow
with the square of the shards. And a scheduler knows a task as long as it knows one that depends on
it. So no graph has many tasks. What a graph of the upward sweep needs of those before is recalled
from the checkpoints. Messages are not saved: those to the nodes above a graph are kept while it is
under way, and few tasks lead to them.

A task costs a scheduler about the same however much it does. So on a cluster a task of a large grid
does a subtree of several shards, one after the other, as long as all workers have enough tasks. And
the lowest merges, and the splits beside them, are done two levels in one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice, pairwise

from dask._task_spec import Task, TaskRef

from orograph.run.cluster.compute import Graph
from orograph.run.cluster.task_graph import Key, Layers
from orograph.tiles.grid.quadtree import Node, Tree

# write tasks whose messages may be ready beyond the last one that is done
AHEAD = 64
# tasks at the lowest level of a graph, on average at the least; threads do one graph after the
# other, and wait for the last task of each
TASKS_A_GRAPH = 256
LEAST_TASKS_A_THREAD = 16
# at the lowest level, so few that one task does all merges, if their borders have few cells
FEW_TASKS = 16
SHORT_BORDER = 2**13
# of a task on average at the most: it does them one after the other
SHARDS_A_TASK = 16
# with which a cluster that has no worker yet is expected to work
THREADS_TO_COME = 64


def level_of_tasks(tree: Tree, shard_level: int, threads: int) -> int:
    """Return the tree level whose nodes become the lowest tasks of a sweep on a cluster.

    Parameters
    ----------
    tree, shard_level
        Nodes of that level are shards.
    threads
        Those of all workers; 0: none has come yet.
    """
    least = LEAST_TASKS_A_THREAD * (threads or THREADS_TO_COME)
    shards, level = tree.count(shard_level), shard_level
    while level < tree.root.level:
        count = tree.count(level + 1)
        if count < least or count * SHARDS_A_TASK < shards:
            break
        level += 1
    return level


def levels_above(tree: Tree, task_level: int, threads: int) -> range:
    """Return the tree levels, above the lowest tasks, that have merge and split tasks.

    Of a large grid on a cluster the first level has none: those of the second do its work too. Of a
    small one the root does all, if borders are short: the few merges take less time than to hand
    them out. In other runs merges of siblings are done at the same time.

    Parameters
    ----------
    tree, task_level
        Nodes of that level are the lowest tasks.
    threads
        Those of this process that do the work; 0: a cluster does.
    """
    count, top = tree.count(task_level), tree.root.level
    border = 2 * sum(tree.window(Node(task_level, 0)).shape)
    if not threads and count <= FEW_TASKS and border <= SHORT_BORDER:
        return range(max(task_level + 1, top), top + 1)
    joined = count >= TASKS_A_GRAPH and top > task_level + 1 and not threads
    return range(task_level + 1 + joined, top + 1)


class SweepGraphs:
    """Builder of a sweep's graphs, one at a time, with tasks in the order of execution.

    Parameters
    ----------
    layers
        Gives their names.
    tree, task_level
        Nodes of that level are shards, or subtrees of some, that one task reads and one writes.
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
        task_level: int,
        threads: int,
        make_task: Callable[..., Task],
        climbed: Callable[[Node], bool],
    ) -> None:
        self._layers, self._tree, self._task_level = layers, tree, task_level
        self._threads, self._make_task, self._climbed = threads, make_task, climbed
        self._above = levels_above(tree, task_level, threads)
        self._tasks: dict[Key, Task] = {}
        self._writes: list[Key] = []

    @property
    def root(self) -> Key:
        """Key of the task that turns the root's summary into the root's message."""
        return self._layers.key("root", self._tree.root)

    @cached_property
    def levels(self) -> list[int]:
        """Tree levels at which graphs begin and end, from the lowest tasks to the root."""
        # A level is added where its subtrees have at least ``least`` tasks each, on average, at the
        # level before.
        count, levels = self._tree.count, [self._task_level]
        least = max(TASKS_A_GRAPH, LEAST_TASKS_A_THREAD * self._threads)
        for level in self._above[:-1]:
            if count(levels[-1]) >= least * count(level):
                levels.append(level)
        return [*levels, self._tree.root.level]

    def stages(self) -> Iterator[Iterator[Graph]]:
        """Yield the upward sweep's graphs in stages; a stage must end before the next begins."""
        for lowest, level in pairwise(self.levels[:-1]):
            yield self._upward(lowest, level)

    def last_stage(self) -> Iterator[Graph]:
        """Yield the downward sweep's graphs; the first also completes the upward sweep."""
        return self.downward(self.levels[-2], self.levels[1])

    def _upward(self, lowest: int, level: int) -> Iterator[Graph]:
        """Yield one graph for each unsaved node of ``level``, starting at ``lowest``."""
        for node in self._unclimbed(self._tree.root, level):
            yield self._cut([self._up(node, lowest)])

    def downward(self, lowest: int, level: int) -> Iterator[Graph]:
        """Yield one graph for each node of ``level``, from its message to the writing tasks.

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
            # A node above the graphs: its split becomes part of the first graph below it, and all
            # graphs below keep its result.
            split = self._add("split", node, TaskRef(path[-1]), index, node.level - 1)
            for i, child in enumerate(self._tree.children(node)):
                yield from down(child, [*path, split], i)

        yield from down(top, [root], 0)

    def _cut(self, ends: list[Key], kept: Sequence[Key] = ()) -> Graph:
        graph = Graph(self._tasks, ends, kept)
        self._tasks, self._writes = {}, []
        return graph

    def _add(self, stage: str, node: Node, *arguments: object, recall: bool = False) -> Key:
        key = self._layers.key(stage, node)
        method = "recall" if recall else stage
        self._tasks[key] = self._make_task(key, method, node, *arguments)
        return key

    def _up(self, node: Node, lowest: int) -> Key:
        at_task = node.level == self._task_level
        if node.level == lowest and not at_task:
            # Another graph has computed this summary.
            return self._add("recall", node)
        stage = "tiles" if at_task else "merge"
        if self._climbed(node):
            return self._add(stage, node, recall=True)
        if at_task:
            return self._add(stage, node)
        level = self._below(node)
        summaries = [TaskRef(self._up(child, lowest)) for child in self._tree.nodes(level, node)]
        return self._add(stage, node, level, *summaries)

    def _down(self, node: Node, message: Key, index: int) -> None:
        if node.level == self._task_level:
            # a shard that is there is verified by this task
            self._writes.append(self._add("write", node, TaskRef(message), index))
            return
        # messages are not computed far ahead of the shards that need them
        gate = [TaskRef(self._writes[-AHEAD])] if len(self._writes) >= AHEAD else []
        level = self._below(node)
        split = self._add("split", node, TaskRef(message), index, level, *gate)
        for i, child in enumerate(self._tree.nodes(level, node)):
            self._down(child, split, i)

    def _below(self, node: Node) -> int:
        """Return the level of the tasks that a node's merge reads and its split feeds."""
        return self._task_level if node.level == self._above[0] else node.level - 1

    def _unclimbed(self, node: Node, level: int) -> Iterator[Node]:
        """Yield the nodes of a level that no earlier run has saved, by themselves or above."""
        if self._climbed(node):
            return
        if node.level == level:
            yield node
            return
        for child in self._tree.children(node):
            yield from self._unclimbed(child, level)


def separate_graphs(tasks: Iterator[Task], *, on_threads: bool) -> Iterator[Graph]:
    """Group independent tasks into graphs: one for threads, several for a cluster."""
    while some := {task.key: task for task in islice(tasks, None if on_threads else TASKS_A_GRAPH)}:
        yield Graph(some, list(some))
