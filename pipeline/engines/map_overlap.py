"""Engine for problems whose result at a cell depends only on the cells near it.

There is one task for each shard, and none depends on another. A task cuts its shard into parts of
whole tiles, and reads each with a halo. So near borders some work is done by several tasks, but
nothing is communicated. A shard of an earlier run counts as written once all its bytes match their
checksums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

from dask._task_spec import Task

from orograph.engines.sweep_graphs import TASKS_A_GRAPH, separate_graphs
from orograph.kernels.backends import get_backend
from orograph.run.cluster.compute import compute_graphs
from orograph.run.cluster.task_graph import Layers
from orograph.run.context import RunContext, located
from orograph.run.feedback import Progress
from orograph.run.monitor import begin_phase
from orograph.run.problem import ProblemFacts
from orograph.run.run import Engine
from orograph.run.shared_data import Handle, load
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.interface import Raster, read_frame
from orograph.tiles.store.sink import count_written

if TYPE_CHECKING:
    from distributed import Client


PART = 2048
"""Side of a part in cells, unless a tile is larger."""


class LocalProblem(ProblemFacts, ABC):
    """Base class of problems whose result at a cell depends on no cell beyond a halo."""

    formula = "parts"
    backend: Any
    """Backend that computes the parts: ``"numba"`` or ``"cuda"``."""
    outputs: Any
    """Rasters that the run writes: names, dtypes, fill values."""
    counted: ClassVar[tuple[str, ...]] = ()
    """Names of counts of the output; their sums are attributes of the result."""
    halo: Any
    """Cells around a part that its result depends on."""

    @abstractmethod
    def solve(
        self, window: Window, frame: Window, cells: Sequence[Array], check: Callable[[], None]
    ) -> dict[str, Array]:
        """Return the output of ``window``, by name.

        ``frame`` is the window with its halo, as far as the grid goes, and ``cells`` are those of
        each raster in it. Long work calls ``check`` now and then, which raises if the run was
        cancelled.
        """

    def counts(self, blocks: dict[str, Array]) -> dict[str, int]:
        """Return the counts of the output of a part, of which there are those in ``counted``."""
        return {}

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> MapOverlap:
        """Return the engine of the problem."""
        return MapOverlap(self, rasters, context)


@dataclass(frozen=True)
class MapOverlap(Engine):
    """Engine that computes each shard from its cells and a halo around them."""

    problem: LocalProblem
    rasters: tuple[Raster, ...]
    context: RunContext

    def run(self, client: Client | None, handle: Handle, cancelled: Event) -> dict[str, Any]:
        """Compute and write all shards; return the sums of the problem's counts."""
        layers = Layers(self.problem.name, self.context.token)
        nodes = self.context.tree.nodes(self.context.shard_level)
        tasks = (Task(layers.key("write", node), _perform, handle, node) for node in nodes)
        graphs = separate_graphs(tasks, on_threads=client is None)
        begin_phase(self.problem.name)
        compute_graphs(graphs, None, client, cancelled, TASKS_A_GRAPH)
        self._check_complete()
        counts: Counter[str] = Counter()
        if self.problem.counted:
            for node in self.context.tree.nodes(self.context.shard_level):
                counts.update(self.context.checkpoints.load("done", node))
        return dict(counts)

    def task_write(self, node: Node) -> None:
        """Compute the parts of a shard and write it, unless an earlier run has."""
        tree, context, outputs = self.context.tree, self.context, self.problem.outputs
        if self._intact(node):
            return
        window = tree.window(node)
        writers = {v.name: context.sink.writer(v.name, window) for v in outputs}
        tile = context.quadtree.tile
        # Parts are nodes of the tree: ``joined`` tiles a side, a power of two.
        joined = part_side(tile, tile << context.shard_level) // tile
        counts: dict[str, int] = {}
        for part in tree.nodes(joined.bit_length() - 1, node):
            context.stop_if_cancelled()
            place = tree.window(part)
            with located(place):
                blocks = self._solve(place)
                for name, count in self.problem.counts(blocks).items():
                    counts[name] = counts.get(name, 0) + count
                for name, block in blocks.items():
                    writers[name].put(place, block)
        for writer in writers.values():
            writer.close()
        # Saved last: where this entry exists, the shard is written.
        context.checkpoints.save("done", node, counts)

    def _solve(self, window: Window) -> dict[str, Array]:
        frame = self.context.quadtree.frame(window, self.problem.halo)
        cells = [read_frame(raster, frame) for raster in self.rasters]
        return self.problem.solve(window, frame, cells, self.context.stop_if_cancelled)

    def _intact(self, node: Node) -> bool:
        """Return whether an earlier run wrote a shard and its checksums still match."""
        window, context = self.context.tree.window(node), self.context
        return context.checkpoints.load("done", node) is not None and all(
            context.sink.intact(v.name, window) for v in self.problem.outputs
        )

    def _check_complete(self) -> None:
        """Raise RunError if any shard has not been written or was lost."""
        context, level = self.context, self.context.shard_level
        windows = [context.tree.window(node) for node in context.tree.nodes(level)]
        written = min(
            context.checkpoints.count("done", level),
            *(count_written(context.sink, v.name, windows) for v in self.problem.outputs),
        )
        if written != len(windows):
            raise RunError(
                f"{self.problem.name}: {written} of {len(windows)} shards were written, though no "
                "task has failed; resume=True does the others"
            )

    def progress(self) -> Progress:
        """Return the number of finished shards, and of all shards."""
        level = self.context.shard_level
        done = self.context.checkpoints.count("done", level)
        return Progress(done, self.context.tree.count(level))


def part_side(tile: int, shard: int) -> int:
    """Return the side of the parts that are computed one by one: a tile, or several joined."""
    side = tile
    while 2 * side <= min(shard, PART):
        side *= 2
    return side


def with_halo(window: Window, halo: int, shape: tuple[int, int]) -> Window:
    """Return a window and the cells around it, as far as the grid goes."""
    y, x = window.y - halo, window.x - halo
    return Window(y, x, window.height + 2 * halo, window.width + 2 * halo).clip(shape)


def _perform(handle: Handle, node: Node) -> None:
    """Execute one task of a run: the only function that Dask calls."""
    engine: MapOverlap = load(handle)
    with get_backend(engine.problem.backend).array_memory():
        engine.task_write(node)
