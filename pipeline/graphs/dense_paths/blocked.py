"""Tasks of all-pairs shortest paths on a tiled matrix in a checkpoint store.

Three methods, on one matrix of ``side`` x ``side`` tiles that lie in a checkpoint store:

- `FloydWarshall`: phase k closes the diagonal tile k; then the tiles in its row and in its column
  are lowered by products with it, and then all others by products of these. A phase's tasks depend
  on one another as just said, and the next phase begins when it is done. Venkataraman, Sahni and
  Mukhopadhyaya, doi:10.1145/996546.996553.
- `Squaring`: D (+) D again and again, until nothing is lowered: at most log2(n) times, more work
  but no order in it.
- `Sources`: SciPy's Dijkstra from the vertices of a row of tiles a task.

Each phase leaves a generation of tiles beside the one that it read, which is dropped when the new
one is whole. So a task may be done twice at any time, and a run that was killed goes on from its
last whole generation with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from dask._task_spec import Task, TaskRef

from orograph.kernels.backends import get_backend
from orograph.kernels.minplus.lanes import BARRIER
from orograph.kernels.minplus.predecessors import mark_cycles, repair_row
from orograph.kernels.minplus.product import NO_VERTEX
from orograph.kernels.stages import kernel
from orograph.run.cluster.compute import compute
from orograph.run.cluster.task_graph import Key, Layers
from orograph.run.context import RunContext
from orograph.run.shared_data import Handle, load
from orograph.tiles.arrays import Array
from orograph.tiles.errors import RunError
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.grid.window import Window

if TYPE_CHECKING:
    from distributed import Client
    from scipy import sparse

    from orograph.graphs.dense_paths.edge_matrix import EdgeMatrix

Tile = tuple[Array, Array | None]
"""Tile of the matrix: lengths, and predecessors if they are requested."""


@dataclass(frozen=True)
class Blocks:
    """A tiled matrix of path lengths, saved tile by tile after each phase (a generation)."""

    n: int
    side: int
    traced: bool
    signed: bool
    tolerance: float
    backend: str
    context: RunContext
    fill: int | None
    """Value that marks pairs without a path in the result; None: infinity."""

    @property
    def count(self) -> int:
        """Number of tiles in a row of tiles."""
        return -(-self.n // self.side)

    def span(self, i: int) -> slice:
        """Return the slice of vertices that a row or column of tiles covers."""
        return slice(i * self.side, min((i + 1) * self.side, self.n))

    def window(self, i: int, j: int) -> Window:
        """Return the window of a tile in the matrix."""
        y, x = self.span(i), self.span(j)
        return Window(y.start, x.start, y.stop - y.start, x.stop - x.start)

    def node(self, i: int, j: int) -> Node:
        """Return the name of a tile in the checkpoint store."""
        return Node(0, i * self.count + j)

    def tile(self, generation: int, i: int, j: int) -> Tile:
        """Load a tile of a generation; the caller may modify it."""
        tile: Tile | None = self.context.checkpoints.load(_kind(generation), self.node(i, j))
        if tile is None:
            raise RunError(
                f"all pairs: tile ({i}, {j}) of generation {generation} is gone or damaged; "
                "resume=True makes it again"
            )
        return tile

    def keep(self, generation: int, i: int, j: int, tile: Tile) -> None:
        """Save a tile of a generation, flushed to disk."""
        self.context.checkpoints.save(_kind(generation), self.node(i, j), tile)
        self.context.checkpoints.sync(_kind(generation), 0, self.node(i, j).z)

    def has(self, generation: int, i: int, j: int) -> bool:
        """Return whether a tile of a generation is saved and intact."""
        return self.context.checkpoints.load(_kind(generation), self.node(i, j)) is not None

    def drop(self, generation: int) -> None:
        """Delete the tiles of a generation, once the next one is complete."""
        # The names of the new tiles are on the device before the old tiles go.
        self.context.checkpoints.sync(_kind(generation + 1), 0)
        for i, j in self.places():
            self.context.checkpoints.drop(_kind(generation), self.node(i, j))

    def places(self) -> Iterator[tuple[int, int]]:
        """Return an iterator over (row, column) of all tiles."""
        return ((i, j) for i in range(self.count) for j in range(self.count))

    def whole_generation(self, most: int) -> int:
        """Return the last generation whose tiles are all intact, or -1."""
        for generation in range(most, -1, -1):
            if self.context.checkpoints.count(_kind(generation), 0) == self.count**2 and all(
                self.has(generation, i, j) for i, j in self.places()
            ):
                return generation
        return -1

    def begin(self, graph: EdgeMatrix, whole: bool) -> None:
        """Save the graph's edges as tiles of generation 0, skipping what is saved already."""
        checkpoints = self.context.checkpoints
        for i, j in self.places():
            self.context.stop_if_cancelled()
            # With predecessors the edges are kept apart: `_mend` needs them when generation 0 is
            # gone.
            kept = whole or self.has(0, i, j)
            if kept and not (self.traced and checkpoints.load("edges", self.node(i, j)) is None):
                continue
            lengths = np.ascontiguousarray(graph.block(self.span(i), self.span(j)))
            before = None
            if self.traced:
                vertex = np.arange(self.n, dtype=np.int32)
                edge = graph.reach(lengths)
                edge &= vertex[self.span(i), None] != vertex[None, self.span(j)]
                before = np.where(edge, vertex[self.span(i), None], np.int32(NO_VERTEX))
                # A copy: checkpoints in memory hold the array itself, which a phase lowers in
                # place.
                checkpoints.save("edges", self.node(i, j), lengths.copy())
            if not kept:
                self.keep(0, i, j, (lengths, before))

    def lower(self, c: Tile, a: Tile, b: Tile) -> None:
        """Lower tile ``c`` to the min-plus product of tiles ``a`` and ``b`` where that is less."""
        minplus = kernel("minplus", self.backend)
        minplus(a[0], b[0], c[0], before_b=b[1], before=c[1], signed=self.signed)

    # -- tasks -------------------------------------------------------------------------------

    def task_diagonal(self, phase: int) -> int | None:
        """Run Floyd-Warshall in a diagonal tile; return a vertex on a negative cycle, if any."""
        self.context.stop_if_cancelled()
        if self.has(phase + 1, phase, phase):
            return None
        tile = self.tile(phase, phase, phase)
        close = kernel("floyd_warshall_block", self.backend)
        bad: int | None = close(tile[0], before=tile[1], tolerance=self.tolerance)
        # A negative cycle ends the run: the vertex is passed on, and no more tiles are made.
        if bad is not None:
            return phase * self.side + bad
        _clear_diagonal(tile)
        self.keep(phase + 1, phase, phase, tile)
        return None

    def task_panel(self, phase: int, i: int, j: int, bad: int | None) -> int | None:
        """Lower a tile in a phase's row or column by the phase's diagonal tile."""
        self.context.stop_if_cancelled()
        if bad is not None or self.has(phase + 1, i, j):
            return bad
        tile = self.tile(phase, i, j)
        # A product must not read the tile that it lowers.
        old = tile[0].copy(), None if tile[1] is None else tile[1].copy()
        closed = self.tile(phase + 1, phase, phase)
        # In the row of the phase paths begin in the diagonal tile, in its column they end there.
        first, second = (closed, old) if i == phase else (old, closed)
        self.lower(tile, first, second)
        self.keep(phase + 1, i, j, tile)
        return None

    def task_rest(self, phase: int, i: int, j: int, *bad: int | None) -> None:
        """Lower a tile outside a phase's row and column by the product of its two panels."""
        self.context.stop_if_cancelled()
        if any(vertex is not None for vertex in bad) or self.has(phase + 1, i, j):
            return
        tile = self.tile(phase, i, j)
        self.lower(tile, self.tile(phase + 1, i, phase), self.tile(phase + 1, phase, j))
        self.keep(phase + 1, i, j, tile)

    def task_square(self, generation: int, i: int, j: int) -> tuple[bool, int | None]:
        """Square a tile; return whether it was lowered, and a vertex on a negative cycle."""
        self.context.stop_if_cancelled()
        old = self.tile(generation, i, j)
        # Other tasks read the tiles of this generation: a square is made of copies.
        new = old[0].copy(), None if old[1] is None else old[1].copy()
        for k in range(self.count):
            self.lower(new, self.tile(generation, i, k), self.tile(generation, k, j))
        bad = None
        if i == j:
            diagonal = new[0].diagonal()
            negative = np.flatnonzero(diagonal < -self.tolerance)
            bad = i * self.side + int(negative[0]) if negative.size else None
            _clear_diagonal(new)
        self.keep(generation + 1, i, j, new)
        return bool((new[0] != old[0]).any()), bad

    def task_sum_up(self, *results: tuple[bool, int | None]) -> tuple[bool, int | None]:
        """Combine the results of all `task_square` calls of one squaring."""
        bad = next((vertex for _, vertex in results if vertex is not None), None)
        return any(lowered for lowered, _ in results), bad

    def task_write(self, generation: int, i: int) -> None:
        """Write a row of tiles of a generation to the result."""
        self.context.stop_if_cancelled()
        tiles = (self.tile(generation, i, j) for j in range(self.count))

        def edges(k: int, j: int) -> Array:
            kept: Array = self.context.checkpoints.load("edges", self.node(k, j))
            return kept

        self.write_row(i, tiles, edges)

    def write_row(self, i: int, row: Iterable[Tile], edges: Callable[[int, int], Array]) -> None:
        """Write a row of tiles to the result, repairing cyclic predecessors first."""
        tiles = []
        for j, (lengths, before) in enumerate(row):
            if i == j:
                _clear_diagonal((lengths, before))
            marked = lengths
            if self.fill is not None:
                marked = np.where(lengths == BARRIER, self.fill, lengths)
            self.context.sink.write("distance", self.window(i, j), marked)
            if self.traced:
                tiles.append((lengths, before))
        if not self.traced:
            return
        before = np.concatenate([tile[1] for tile in tiles if tile[1] is not None], axis=1)
        circles = mark_cycles(before)
        if circles is not None:
            distance = np.concatenate([tile[0] for tile in tiles], axis=1)
            self._mend(distance, before, circles, edges)
        for j in range(self.count):
            part = np.ascontiguousarray(before[:, self.span(j)])
            self.context.sink.write("predecessor", self.window(i, j), part)

    def _mend(
        self,
        distance: Array,
        before: Array,
        circles: npt.NDArray[np.bool_],
        edges: Callable[[int, int], Array],
    ) -> None:
        """Replace predecessors that form cycles by ones that lead to the source."""
        # Edges into the vertices of circles alone are read, one tile after the other.
        columns = np.flatnonzero(circles.any(axis=0))
        lengths = np.empty((self.n, columns.size), distance.dtype)
        for j in range(self.count):
            span = self.span(j)
            here = (columns >= span.start) & (columns < span.stop)
            for k in range(self.count) if here.any() else ():
                lengths[self.span(k), here] = edges(k, j)[:, columns[here] - span.start]
        unreached = BARRIER if distance.dtype.kind == "i" else np.inf
        for row in np.flatnonzero(circles.any(axis=1)):
            lost = np.flatnonzero(circles[row])
            # Of these the edges into the vertices of this row's circles.
            part = np.ascontiguousarray(lengths[:, np.searchsorted(columns, lost)])
            repair_row(distance[row], before[row], lost, part, unreached)


def _clear_diagonal(tile: Tile) -> None:
    """Set the diagonal of a tile to 0 without predecessors, undoing rounding."""
    np.fill_diagonal(tile[0], 0)
    if tile[1] is not None:
        np.fill_diagonal(tile[1], NO_VERTEX)


def _kind(generation: int) -> str:
    return f"generation-{generation}"


def _perform(handle: Handle, stage: str, *arguments: object) -> Any:
    """Execute one task of a run: the only function that Dask calls."""
    work = load(handle)
    with get_backend(work.backend).array_memory():
        return getattr(work, f"task_{stage}")(*arguments)


@dataclass
class Steps:
    """Submit the phases of a run to Dask one by one, and count those done."""

    blocks: Any
    handle: Handle
    client: Client | None
    cancelled: Event
    done: int = 0
    total: int = 0

    def graph(self, phase: int) -> _Graph:
        """Return an empty graph for a phase."""
        return _Graph(Layers("all-pairs", self.blocks.context.token), self.handle, phase)

    def compute(self, graph: _Graph, keys: Iterable[Key]) -> Any:
        """Execute the tasks of a phase; return the result of the first key."""
        result = compute(graph.tasks, list(keys), self.client, self.cancelled)
        self.count_one()
        return result

    def count_one(self) -> None:
        """Count a phase as done."""
        self.done += 1


@dataclass
class _Graph:
    """The Dask tasks of one phase."""

    layers: Layers
    handle: Handle
    phase: int
    tasks: dict[Key, Task] = field(default_factory=dict)

    def add(self, stage: str, number: int, *arguments: object) -> Key:
        key = self.layers.key(stage.replace("_", "-"), Node(self.phase, number))
        self.tasks[key] = Task(key, _perform, self.handle, stage, *arguments)
        return key


def most_phases(blocks: Blocks, method: str) -> int:
    """Return the greatest number of phases that a method takes."""
    return max(1, (blocks.n - 1).bit_length()) if method == "squaring" else blocks.count


def floyd_warshall(steps: Steps) -> tuple[int, int | None]:
    """Run all phases; return the last generation and a vertex on a negative cycle, if any."""
    blocks: Blocks = steps.blocks
    n = blocks.count
    begin = steps.done = max(0, blocks.whole_generation(n))
    for phase in range(begin, n):
        graph = steps.graph(phase)
        others = [i for i in range(n) if i != phase]
        top = graph.add("diagonal", 0, phase)
        # Tiles in the row of the phase, and those in its column.
        panel = {
            (i, j): graph.add("panel", i * n + j, phase, i, j, TaskRef(top))
            for other in others
            for i, j in ((phase, other), (other, phase))
        }
        rest = [
            graph.add(
                "rest", i * n + j, phase, i, j, TaskRef(panel[i, phase]), TaskRef(panel[phase, j])
            )
            for i in others
            for j in others
        ]
        # The result is that of the first key, the diagonal: it alone looks for negative cycles.
        bad = steps.compute(graph, [top, *panel.values(), *rest])
        if bad is not None:
            return phase, bad
        blocks.drop(phase)
    return n, None


def squaring(steps: Steps) -> tuple[int, int | None]:
    """Square until nothing changes; return the last generation and a vertex as `floyd_warshall`."""
    blocks: Blocks = steps.blocks
    most = most_phases(blocks, "squaring")
    begin = steps.done = max(0, blocks.whole_generation(most))
    for generation in range(begin, most):
        graph = steps.graph(generation)
        squares = [
            graph.add("square", i * blocks.count + j, generation, i, j) for i, j in blocks.places()
        ]
        total = graph.add("sum_up", 0, *map(TaskRef, squares))
        lowered, bad = steps.compute(graph, [total])
        if bad is not None:
            return generation, bad
        blocks.drop(generation)
        if not lowered:
            return generation + 1, None
    return most, None


def write(steps: Steps, generation: int) -> None:
    """Write all rows of tiles of a generation to the result."""
    blocks: Blocks = steps.blocks
    graph = steps.graph(generation)
    keys = [graph.add("write", i, generation, i) for i in range(blocks.count)]
    steps.compute(graph, keys)


METHODS: dict[str, Callable[[Steps], tuple[int, int | None]]] = {
    "floyd-warshall": floyd_warshall,
    "squaring": squaring,
}


@dataclass(frozen=True)
class Sources:
    """Dijkstra's algorithm from the vertices of one row of tiles in each task."""

    backend: ClassVar[str] = "numba"

    n: int
    side: int
    dtype: np.dtype[Any]
    nothing: float
    traced: bool
    context: RunContext

    def begin(self, graph: EdgeMatrix) -> None:
        """Save the graph's edges to the checkpoint store for the tasks to read."""
        edges = graph.as_sparse()
        self.context.checkpoints.save(
            "graph", Node(0, 0), (edges.data, edges.indices, edges.indptr)
        )

    @cached_property
    def graph(self) -> sparse.csr_array:
        """The edges as a CSR array, loaded once in each worker."""
        edges = self.context.checkpoints.load("graph", Node(0, 0))
        if edges is None:
            raise RunError("all pairs: the edges are gone or damaged; resume=True saves them again")
        from scipy import sparse  # slow to import

        return sparse.csr_array(edges, shape=(self.n, self.n))

    def task_sources(self, i: int) -> None:
        """Run Dijkstra from the vertices of a row of tiles and write their distances."""
        from scipy.sparse.csgraph import dijkstra

        self.context.stop_if_cancelled()
        begin, end = i * self.side, min((i + 1) * self.side, self.n)
        windows = [
            Window(begin, x, end - begin, min(self.side, self.n - x))
            for x in range(0, self.n, self.side)
        ]
        names = ("distance", "predecessor") if self.traced else ("distance",)
        if self.context.checkpoints.has("rows", Node(0, i)) and all(
            self.context.sink.intact(name, window) for name in names for window in windows
        ):
            return
        found = dijkstra(self.graph, indices=np.arange(begin, end), return_predecessors=self.traced)
        distance, before = found if self.traced else (found, None)
        unreached = np.isinf(distance)
        # Infinity has no integer: it is 0 in the conversion, and marked afterwards.
        distance[unreached] = 0 if self.dtype.kind == "i" else np.inf
        lengths = distance.astype(self.dtype)
        lengths[unreached] = self.nothing
        for window in windows:
            part = slice(window.x, window.x + window.width)
            self.context.sink.write("distance", window, np.ascontiguousarray(lengths[:, part]))
            if before is not None:
                last = np.ascontiguousarray(before[:, part], np.int32)
                self.context.sink.write("predecessor", window, last)
        # Saved last: where this entry exists, all rasters of the row were written.
        self.context.checkpoints.save("rows", Node(0, i), True)


def from_sources(steps: Steps) -> None:
    """Run Dijkstra's algorithm from every vertex, one task for each row of tiles."""
    work: Sources = steps.blocks
    graph = steps.graph(0)
    keys = [graph.add("sources", i, i) for i in range(-(-work.n // work.side))]
    steps.compute(graph, keys)
