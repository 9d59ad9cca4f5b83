"""The operation `minimum_spanning_forest`, as a problem of the quadtree sweep.

Every tile decides the edges that it can decide alone and sends the others to its parent, contracted
to its border cells (`orograph.kernels.forest.tile`). Every node above does the same with the edges
of its children and the seams between them (`orograph.kernels.forest.contract`). The root does not
have a border and decides all remaining edges. Messages of the downward sweep are booleans: which
edges of a node are in the forest, and which seam edges start at its border cells.

Source: N. L. A. M. Gerritsen, "Accelerating I/O efficient graph algorithms on grid graphs using the
GPU", MSc thesis, TU Eindhoven, 2012, chapters 2 and 3, but with another contraction; see
``docs/decisions/002-contraction.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from orograph.engines.quadtree_pass import QuadtreePass, SweepProblem
from orograph.forest.orientation import Turned
from orograph.kernels.backends import get_backend, may_use_numba
from orograph.kernels.forest import tile as forest
from orograph.kernels.forest.contract import IN, UP, contract
from orograph.kernels.forest.exact_sum import exact_float, exact_sum
from orograph.kernels.forest.order import edge_keys, key_weights
from orograph.kernels.forest.weights import WEIGHTS, lacking_on_gpu
from orograph.kernels.stages import kernel
from orograph.operations.operation import operation
from orograph.run.context import RunContext
from orograph.run.job import raster_job
from orograph.run.options import RunOptions, RunSpec
from orograph.run.problem import Bytes, CellCounts
from orograph.tiles.arguments import check_choice
from orograph.tiles.arrays import Array, Columns
from orograph.tiles.format.codec import stored
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.border import border_cells, join, join_borders
from orograph.tiles.grid.orientation import NORTH_UP, Orientation
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.grid.window import Window
from orograph.tiles.nodata import valid_cells
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr

    from orograph.run.job import Job


EDGES = Variable(
    "edges",
    np.dtype(np.uint8),
    None,
    {
        "long_name": "edges of the spanning forest",
        "flag_masks": [1, 2, 4, 8],
        "flag_meanings": "east south_west south south_east",
        "nodata": 255,  # of no cell, as `UNUSED_LABEL`
    },
)


@stored("forest-edges")
class Edges(Columns):
    """Edges between border cells, each standing for one edge of the grid.

    ``a`` and ``b`` are positions among the node's border cells; ``major``, ``minor`` and
    ``identity`` place the edge in the total order of all edges of the grid.
    """

    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    major: npt.NDArray[np.uint64]
    minor: npt.NDArray[np.uint64]
    identity: npt.NDArray[np.int64]


@stored("forest-summary")
class Summary:
    """Border values of a node, its undecided edges, and its totals, for its parent."""

    border_values: Array
    edges: Edges
    vertex_count: int
    edge_count: int
    total: int


@stored("forest-leaf-state")
class LeafState:
    """Saved state of a tile: its forest edges so far, and its undecided edges."""

    mask: npt.NDArray[np.uint8]
    """Decided edges, two cells a byte, see `orograph.kernels.forest.nibbles`."""
    first: npt.NDArray[np.int32]
    direction: npt.NDArray[np.uint8]


@stored("forest-merge-state")
class MergeState:
    """Saved state of a node: which edges of its children and between them are in the forest."""

    decided_in: npt.NDArray[np.bool_]
    passed_up: npt.NDArray[np.int64]
    edges_per_child: tuple[int, ...]
    seam_first: npt.NDArray[np.int64]
    seam_direction: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Message:
    """Masks of a node's undecided edges, and of its border-crossing edges, in the forest."""

    kept: npt.NDArray[np.bool_]
    seams: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Forest(SweepProblem):
    """Minimum spanning forest as a problem of the quadtree sweep."""

    dtype: np.dtype[Any]
    nodata: float | int | None
    weight: str
    connectivity: int
    backend: str = "numba"
    orientation: Orientation = field(default=NORTH_UP, kw_only=True)
    """Orientation of the grid, by which ties are broken."""

    name = "forest"
    stage = "tile_forest"
    may_wrap = True
    outputs = (EDGES,)
    takes_device_cells: ClassVar[bool] = True

    @property
    def lacking(self) -> str:
        """The weight, if it has no CUDA kernel."""
        return lacking_on_gpu(self.weight)

    planned_on_gpus = True

    def bytes(self, cells: CellCounts) -> Bytes:
        """Return the memory and disk that a run takes."""
        edges = cells.grid // 2
        if cells.on_gpu:  # which decodes the cells, and encodes the edges
            return Bytes(cell=cells.itemsize + 2, border=(160, 60), checkpoints=edges)
        return Bytes(2 * cells.itemsize + 24, 3, border=(160, 60), checkpoints=edges)

    def compile_kernels(self, dtypes: Sequence[np.dtype[Any]], several: bool) -> None:
        """Compile the kernels for tiles of a dtype, if CPUs may compute them."""
        if may_use_numba(self.backend):
            forest.compile_kernels(dtypes[0], self.weight, self.connectivity)

    def engine(self, rasters: tuple[Raster, ...], context: RunContext) -> QuadtreePass:
        """Return the engine of the problem, on the turned grid unless north is up."""
        turned: Any = self if self.orientation == NORTH_UP else Turned(self, self.orientation)
        return QuadtreePass(turned, rasters, self.tiled(context))

    def leaf(self, place: Place, cells: Array) -> tuple[Summary, LeafState]:
        """Decide the edges within a tile; pass up undecided ones, contracted to its border."""
        sides = place.sides
        tile = kernel("tile_forest", self.backend)(
            cells,
            self.nodata,
            (sides.north, sides.south, sides.west, sides.east),
            self.weight,
            self.connectivity,
        )
        border = border_cells(*place.window.shape, sides)
        width = place.window.width
        # In the order of `DIRECTION_STEPS`: east, south-west, south, south-east.
        steps = np.array([1, width - 1, width, width + 1])
        first = tile.first.astype(np.int64)
        # Both ends of the edges and the border in one request, which is one transfer from a GPU.
        wanted = np.concatenate([first, first + steps[tile.direction], border])
        values = get_backend(self.backend).values_at(cells, wanted)
        one, other, border_values = np.split(values, [first.size, 2 * first.size])
        major, minor = edge_keys(self.weight, one, other)
        edges = Edges(
            np.searchsorted(border, tile.a),
            np.searchsorted(border, tile.b),
            major,
            minor,
            _identities(first, tile.direction, place.window, place.grid),
        )
        summary = Summary(border_values, edges, tile.vertex_count, tile.edge_count, tile.total)
        return summary, LeafState(tile.packed, tile.first, tile.direction)

    def merge(
        self, place: Place, children: Sequence[tuple[Place, Summary]]
    ) -> tuple[Summary, MergeState]:
        """Decide the children's edges and those between them; pass up undecided ones."""
        borders = join(
            place,
            [child for child, _ in children],
            [summary.border_values for _, summary in children],
            self.connectivity,
        )
        cells, values = borders.cells, borders.values
        valid = valid_cells(values, self.nodata)
        # Cells of nodata have no edges.
        real = valid[borders.a] & valid[borders.b]
        a, b, seam_direction = borders.a[real], borders.b[real], borders.direction[real]
        major, minor = edge_keys(self.weight, values[a], values[b])
        identity = _identities(cells[a], seam_direction, place.window, place.grid)
        seam = Edges(a, b, major, minor, identity)

        brought = [s.edges for _, s in children]
        parts = [
            Edges(p[e.a], p[e.b], e.major, e.minor, e.identity)
            for e, p in zip(brought, borders.positions, strict=True)
        ]
        edges = Edges.concatenate([*parts, seam])
        # The total order of all edges of the grid: the last key counts most, identities break ties.
        # So the forest does not depend on the tiling.
        order = np.lexsort((edges.identity, edges.minor, edges.major))

        border_number = np.full(cells.size, -1, np.int64)
        border_number[borders.border] = np.arange(borders.border.size)
        fate, ends = contract(edges.a, edges.b, order, border_number)
        # Undecided edges are passed up between border cells of this node, with their own places in
        # the order.
        up = np.flatnonzero(fate == UP)
        decided = fate == IN

        weights = key_weights(self.weight, edges.major[decided], self.dtype)
        summary = Summary(
            values[borders.border],
            Edges(ends[up, 0], ends[up, 1], edges.major[up], edges.minor[up], edges.identity[up]),
            sum(s.vertex_count for _, s in children),
            sum(s.edge_count for _, s in children) + int(decided.sum()),
            # Whole numbers in units of 2**-1074, rounded by the root alone.
            sum(s.total for _, s in children) + exact_sum(weights),
        )
        saved = MergeState(decided, up, tuple(e.a.size for e in brought), a, seam_direction)
        return summary, saved

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the arguments determine, before the run."""
        return {"weight": self.weight, "connectivity": self.connectivity}

    def root(self, summary: Summary) -> tuple[Message, dict[str, Any]]:
        """Return an empty message, as all edges are decided, and the result attributes."""
        attributes = {
            **self.known_attributes,
            "total_weight": exact_float(summary.total),
            "vertex_count": summary.vertex_count,
            "edge_count": summary.edge_count,
            "tree_count": summary.vertex_count - summary.edge_count,
        }
        return Message(np.empty(0, np.bool_), np.empty(0, np.uint8)), attributes

    def down(
        self, place: Place, saved: MergeState, message: Message, children: Sequence[Place]
    ) -> list[Message]:
        """Return for each child which of its edges are in the forest."""
        # The edges of a node are those of its children, child by child, and then its seams, as
        # `merge` has concatenated them.
        kept = saved.decided_in.copy()
        kept[saved.passed_up] = message.kept
        cells, positions = join_borders(place.window, children)
        border = border_cells(*place.window.shape, place.sides)
        # A seam edge is a bit at the first of its two cells, and goes to the child that has this
        # cell. Bits from further up are at the node's own border.
        seams = np.zeros(cells.size, np.uint8)
        seams[np.searchsorted(cells, border)] = message.seams

        *of_children, of_seams = np.split(kept, np.cumsum(saved.edges_per_child))
        bits = (1 << saved.seam_direction).astype(np.uint8)
        np.bitwise_or.at(seams, saved.seam_first[of_seams], bits[of_seams])
        return [
            Message(kept_of_child, seams[position])
            for kept_of_child, position in zip(of_children, positions, strict=True)
        ]

    def finish(self, place: Place, saved: LeafState, message: Message) -> dict[str, Array]:
        """Return the forest edges of a tile as bits of each cell."""
        first, direction = saved.first[message.kept], saved.direction[message.kept]
        border = border_cells(*place.window.shape, place.sides)
        # Edges of this tile that were decided further up, and seam edges that begin at its border.
        bits = np.concatenate([(1 << direction).astype(np.uint8), message.seams])
        draw = kernel("draw_edges", self.backend)
        cells = np.concatenate([first, border])
        return {EDGES.name: draw(saved.mask, place.window.shape, cells, bits)}


def _identities(
    first: npt.NDArray[np.int64],
    direction: npt.NDArray[np.uint8],
    window: Window,
    grid: tuple[int, int],
) -> npt.NDArray[np.int64]:
    """Return the number of each edge in the grid: 4 * first cell + direction."""
    y, x = np.divmod(first, window.width)
    identities: npt.NDArray[np.int64] = ((y + window.y) * grid[1] + (x + window.x)) * 4 + direction
    return identities


@operation(estimate_graph="orograph.graphs.estimate:estimate_forest")
def minimum_spanning_forest(
    elevation: RasterLike | Graph,
    *,
    weight: str = "max",
    connectivity: int = 8,
    **options: Unpack[RunOptions],
) -> Job[xr.Dataset]:
    """Return the exact minimum spanning forest of an elevation grid of any size.

    The grid is a graph: its valid cells are the vertices, and edges join neighbouring cells. The
    forest connects everything that the grid connects, with edges of the least total weight. With
    ``weight="max"``, the path in the forest between two connected cells has the lowest possible
    highest cell.

    Parameters
    ----------
    elevation : raster or Graph
        Heights, shape (y, x), of any real dtype: a DataArray backed by NumPy, Dask or CuPy; an
        array of NumPy, of CuPy (a result in memory is then CuPy's), or of any library that supports
        DLPack; the path of a store written by `ingest`; or the path of any raster file.
    weight : {"max", "absolute_difference", "mean"}
        Weight of an edge: the higher of its two cells (``"max"``), the height difference between
        them (``"absolute_difference"``), or their mean height (``"mean"``).
    connectivity
    **options

    Returns
    -------
    xarray.Dataset
        ``edges``, uint8, shape (y, x): bit 0 is the edge to the east neighbour, bit 1 south-west,
        bit 2 south, bit 3 south-east, on the compass; each edge is stored once, at its end that
        comes first, row by row from the north-west. Coordinates and CRS are those of the input.
        Attributes: ``total_weight`` (float64, the exact sum rounded once; infinite beyond float64),
        ``vertex_count``, ``edge_count``, ``tree_count``. For a `Graph`: ``in_forest`` (edge), bool,
        in the order of its source; its edges are ordered by weight, then by their number.

    Raises
    ------
    InputError
        If an argument is invalid; nothing has been started in that case.
    StoreExistsError
    RunError
        If the run could not finish: the cluster failed, an input was replaced in the meantime, or
        another writer took over.
    BackendError

    Notes
    -----
    The forest is *the* minimum spanning forest under a total order of the edges: by weight, for
    ``"max"`` then by the lower cell, and last by the first end, row by row from the north-west, and
    the direction. So it is the same, bit for bit, for every tile size, number of workers and
    backend. Each cell is read once and each output cell is written once; tasks hold a few tiles and
    border data.

    References
    ----------
    N. L. A. M. Gerritsen, "Accelerating I/O efficient graph algorithms on grid graphs using the
    GPU", MSc thesis, TU Eindhoven, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> forest = og.minimum_spanning_forest(np.array([[1, 9, 2], [1, 9, 2], [3, 3, 3]]))
    >>> forest.attrs["total_weight"], forest.attrs["tree_count"]
    (33.0, 1)
    >>> forest["edges"].values
    array([[13,  0,  4],
           [12,  0,  6],
           [ 0,  0,  0]], dtype=uint8)
    """
    weight = check_choice("weight", weight, tuple(WEIGHTS))
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    spec = RunSpec(**options)
    if isinstance(elevation, Graph):
        from orograph.graphs.forest import forest_job

        spec.refuse_of_rasters(weight=weight != "max", connectivity=connectivity != 8)
        return forest_job(elevation, spec)
    raster = spec.open(elevation, "elevation")
    orientation = raster.georeference.orientation
    problem = Forest(raster.dtype, raster.nodata, weight, connectivity, orientation=orientation)
    return raster_job(problem, (raster,), spec)
