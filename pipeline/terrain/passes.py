"""The operation `pass_elevation`: the lowest passes between pairs of points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from orograph.engines.quadtree_pass import QuadtreePass, TableMaker
from orograph.kernels.forest.order_keys import decode_keys
from orograph.operations.operation import operation
from orograph.run.feedback import Progress
from orograph.run.job import raster_job, units_of
from orograph.run.options import RunSpec, TableOptions
from orograph.run.run import ResultTable
from orograph.terrain.basin_tree import BasinTree, Summary, Terminals, places_of
from orograph.tiles.arguments import check_choice, check_flag
from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.raster.mask import MaskRaster
from orograph.tiles.raster.points import PointsLike, as_points, cells_of
from orograph.tiles.raster.raster import Raster, RasterLike
from orograph.tiles.raster.snapping import (
    SnapLike,
    SnapRadius,
    distances_moved,
    parse_snap,
    snap_to_valid,
)
from orograph.tiles.store.create import Variable

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.reachability.search import SearchResult
    from orograph.run.job import Job


Nothing = tuple[()]


@dataclass(frozen=True)
class Passes(BasinTree):
    """Passes between points as a problem of the quadtree sweep, with empty downward messages."""

    rows: Integers
    columns: Integers
    """Columns of the cells of points and targets; cell ``i`` is the terminal ``~i``."""
    points: int
    """Number of cells that are points; the others are targets."""
    same: bool
    """Whether the targets are the points."""
    paths: bool

    name = "pass-elevation"
    read_twice = saves_trees = False  # all is decided on the way up
    outputs: ClassVar[tuple[Variable, ...]] = ()
    coordinates = ("point_y", "point_x", "target_y", "target_x")

    def table_maker(self, run: QuadtreePass) -> PassTable:
        """Return the builder of the table of passes."""
        return PassTable(run, self)

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return the cells of the points in a tile; each is a terminal."""
        here, cells = self.cells_in(place, self.rows, self.columns)
        return Terminals(cells, ~here)

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Any]:
        """Return the merge tree of a tile's basins; there is no saved state."""
        return super().leaf(place, *cells)[0], ()

    def merge(self, place: Place, children: Sequence[tuple[Place, Summary]]) -> tuple[Summary, Any]:
        """Return the children's merge trees joined into one; there is no saved state."""
        return super().merge(place, children)[0], ()

    def root(self, summary: Summary) -> tuple[Nothing, dict[str, Any]]:
        """Return the tree of passes that joins all points, lowest pass first, as attributes."""
        # Only terminals are left at the root; they are numbered by ``~`` of their points.
        points = ~summary.pits.cell
        saddles = summary.saddles
        return (), {
            "first": points[summary.first],
            "second": points[summary.second],
            "key": saddles.key,
            "cell": saddles.cell,
            "connectivity": self.connectivity,
        }

    def pairs(self) -> tuple[Integers, Integers]:
        """Return the pairs of points between which paths are searched, each pair once."""
        starts, ends = np.indices((self.points, self.rows.size - self.points)).reshape(2, -1)
        if self.same:
            starts, ends = starts[starts <= ends], ends[starts <= ends]
        return starts, ends + self.points

    def down(
        self, place: Place, saved: Nothing, message: Nothing, children: Sequence[Place]
    ) -> list[Nothing]:
        """Return empty messages."""
        return [()] * len(children)

    def finish(self, place: Place, saved: Nothing, message: Nothing) -> dict[str, Array]:
        """Return no rasters."""
        return {}


class PassTable(TableMaker):
    """Builder of the table of passes, and of paths over them.

    Attributes
    ----------
    found
        The tree that joins the points, and for each pair of points the edge that is its pass, or
        -1.
    paths
        The paths found so far, by pair.
    """

    def __init__(self, run: QuadtreePass, problem: Passes) -> None:
        super().__init__(run)
        self.problem = problem
        self.found: dict[str, Array] = {}
        self.paths: dict[int, SearchResult] = {}

    def follow(
        self, attributes: dict[str, Any], client: Client | None, cancelled: Event
    ) -> dict[str, Any]:
        """Look up the pass of each pair of points, and search for paths if requested."""
        tree = ("first", "second", "key", "cell")
        self.found = {name: attributes[name] for name in tree}
        self.found["edge"] = self._edges()
        if self.problem.paths:
            self._search(client, cancelled)
        return {name: value for name, value in attributes.items() if name not in tree}

    def _search(self, client: Client | None, cancelled: Event) -> None:
        """Search for a shortest path over the pass of each pair."""
        # other runs need no search
        from orograph.reachability.pairs import EndSets, search_all
        from orograph.terrain.pass_paths import PassQuery

        tree, problem = self.found, self.problem
        at = self._of_pairs()
        starts, ends = problem.pairs()
        known = np.flatnonzero(at >= 0)
        cells = np.stack([problem.rows, problem.columns], axis=1)
        both = np.concatenate([cells[starts[known]], cells[ends[known]]], axis=1)
        query = PassQuery(
            MaskRaster(self.run.rasters[0]),
            EndSets.single(both),
            problem.connectivity,
            True,
            True,
            self.run.context.part("paths"),
            tree["key"][at[known]],
            tree["cell"][at[known]],
        )
        found: dict[int, SearchResult] = {}
        search_all(query, np.arange(known.size), client, cancelled, found)
        self.paths.update({int(known[pair]): result for pair, result in found.items()})

    def _of_pairs(self) -> Array:
        """Return the tree edge that is the pass of each pair to search, or -1."""
        starts, ends = self.problem.pairs()
        edges: Array = self.found["edge"][starts, ends - self.problem.points]
        return edges

    def _edges(self) -> Integers:
        """Return a matrix of the tree edges that are the passes of points and targets, or -1."""
        problem = self.problem
        count, split = problem.rows.size, problem.points
        ends = zip(self.found["first"].tolist(), self.found["second"].tolist(), strict=True)
        place, joined = _join_groups(count, ends)
        points = np.zeros(count + 1, np.int64)  # that precede each place; the others are targets
        points[place[:split] + 1] = 1
        points = points.cumsum()
        targets = np.arange(count + 1) - points
        by_place = np.full((split, count - split), -1)
        for number, (start, middle, end) in enumerate(joined):
            # what joins two groups is the pass from each point of one to each target of the other
            p, q, r = points[[start, middle, end]]
            s, t, u = targets[[start, middle, end]]
            by_place[p:q, t:u] = by_place[q:r, s:t] = number
        edge: Integers = by_place[np.ix_(points[place[:split]], targets[place[split:]])]
        return edge

    def table(self) -> ResultTable:
        """Return the matrix of passes, the coordinates of points and passes, and the paths."""
        raster, problem, tree = self.run.rasters[0], self.problem, self.found
        edge, split = tree["edge"], problem.points
        heights = decode_keys(tree["key"], raster.dtype).astype(np.float64)
        at = places_of(problem.orientation.turn_cells(tree["cell"], raster.shape), raster)
        ends = places_of(problem.rows * raster.shape[1] + problem.columns, raster)
        of_pairs = {
            # -1, of pairs that nothing joins, picks the value appended at the end.
            "elevation": np.append(heights, np.inf)[edge],
            "pass_y": np.append(at[:, 1], np.nan)[edge],
            "pass_x": np.append(at[:, 0], np.nan)[edge],
        }
        table: dict[str, tuple[tuple[str, ...], Iterable[Array]]] = {}
        if problem.paths:
            counts, vertices = self._vertices(edge.shape)
            of_pairs["path_cells"] = counts
            places = places_of(vertices, raster)
            table |= {
                f"path_{axis}": (("vertex",), [places[:, i]]) for i, axis in ((1, "y"), (0, "x"))
            }
        table |= {name: (("point", "target"), [values]) for name, values in of_pairs.items()}
        for dim, part in (("point", ends[:split]), ("target", ends[split:])):
            table |= {f"{dim}_{axis}": ((dim,), [part[:, i]]) for i, axis in ((1, "y"), (0, "x"))}
        return table

    def _vertices(self, shape: tuple[int, ...]) -> tuple[Integers, Integers]:
        """Return the number of cells of each path, and the cells of all paths concatenated."""
        problem = self.problem
        width = self.run.rasters[0].shape[1]
        way = [[np.empty(0, np.int64)] * shape[1] for _ in range(shape[0])]
        for pair, (start, end) in enumerate(zip(*problem.pairs(), strict=True)):
            result = self.paths.get(pair)
            if result is None or result.cells is None:
                continue
            cells = result.cells[:, 0] * width + result.cells[:, 1]
            # Between two points that are both points and targets one path serves, in both
            # directions.
            way[start][end - problem.points] = cells
            if problem.same:
                way[end - problem.points][start] = cells[::-1]
        flat = [cells for row in way for cells in row]
        counts = np.array([cells.size for cells in flat], np.int64).reshape(shape)
        return counts, np.concatenate(flat)

    def progress(self, tasks: Progress) -> Progress:
        """Return the number of finished tasks, and paths found if requested."""
        problem = self.problem
        if not problem.paths:
            return tasks
        without = int((self._of_pairs() < 0).sum()) if "edge" in self.found else 0
        count = problem.pairs()[0].size
        return Progress(tasks.done + len(self.paths) + without, tasks.total + count)


def _join_groups(
    count: int, edges: Iterable[tuple[int, int]]
) -> tuple[Integers, list[tuple[int, int, int]]]:
    """Order the points so that each tree edge joins two adjacent groups of them.

    Also return, for each tree edge in joining order: where the first group starts, where it ends
    and the second starts, and where the second ends.
    """
    head, after, last, size = list(range(count)), [-1] * count, list(range(count)), [1] * count

    def find(vertex: int) -> int:
        # Union-find with path halving.
        while head[vertex] != vertex:
            head[vertex] = vertex = head[head[vertex]]
        return vertex

    joined = []
    for first, second in edges:
        a, b = find(first), find(second)
        joined.append((a, size[a], size[b]))
        # Groups are linked lists: appending the second to the first keeps each group contiguous.
        after[last[a]], last[a] = b, last[b]
        # The group of the first end absorbs the other: ``a`` stays its head, where ``joined`` finds
        # it.
        head[b], size[a] = a, size[a] + size[b]
    place, number = np.empty(count, np.int64), 0
    for vertex in (root for root in range(count) if head[root] == root):
        while vertex >= 0:
            place[vertex], number, vertex = number, number + 1, after[vertex]
    return place, [(start := int(place[a]), start + n, start + n + m) for a, n, m in joined]


@operation(counts=("pits",))
def pass_elevation(
    elevation: RasterLike,
    points: PointsLike,
    targets: PointsLike | None = None,
    *,
    connectivity: int = 8,
    paths: bool = False,
    snap: SnapLike = False,
    **options: Unpack[TableOptions],
) -> Job[xr.Dataset]:
    """Return the lowest pass between each point and each target.

    The pass is the highest cell of the path whose highest cell is as low as possible.

    Parameters
    ----------
    elevation
    points : points
        A point (x, y) in map coordinates, or points, shape (n, 2), or any object with a
        ``geometry`` of points, which is transformed to the CRS of the elevation.
    targets : points, optional
        Targets, given like the points; by default the points themselves.
    connectivity
    paths : bool
        Also find a path over each pass.
    snap
    **options

    Returns
    -------
    xarray.Dataset
        Matrices over (point, target): ``elevation``, float64, infinite if no path connects the two;
        ``pass_y`` and ``pass_x``, the position of the pass, then NaN. The coordinates ``point_y``,
        ``point_x``, ``target_y`` and ``target_x`` are those of the cells of the points. With
        ``paths``, also ``path_cells``, the number of cells of each path (0 if there is none), and
        along ``vertex``, ``path_y`` and ``path_x``: the cells of all paths from point to target,
        one path after the other in the order of the matrix. Attribute ``crs_wkt`` if the input has
        a CRS.

    Raises
    ------
    InputError
        If an argument is invalid, or points lie outside the grid or on nodata; the first of them
        are listed.
    StoreExistsError, BackendError

    Notes
    -----
    Cells are ordered by height, equal ones row by row from the north-west, so the pass is a single
    cell, whatever the tiling. The cells of the points themselves count. Each cell is read once, and
    no raster is written; the matrix is computed from the tree that joins the points. A path only
    uses cells that come before the pass in this order, and the pass itself. So it crosses the pass,
    and it is the path of fewest steps that `is_connected` finds on these cells; from a target that
    is also a point, it is the reversed path from that point. Each pair needs a search for its path,
    and the cells of all paths are held in memory.

    References
    ----------
    L. Najman, J. Cousty, B. Perret, "Playing with Kruskal: algorithms for morphological trees in
    edge-weighted graphs", doi:10.1007/978-3-642-38294-9_12.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> ridge = np.array([[1, 8, 2], [1, 9, 2], [1, 6, 2]])
    >>> passes = og.pass_elevation(ridge, [(0, 0), (2, 0)])
    >>> passes["elevation"].values
    array([[1., 6.],
           [6., 2.]])
    >>> passes["pass_y"].values[0, 1], passes["pass_x"].values[0, 1]
    (np.float64(2.0), np.float64(1.0))
    >>> found = og.pass_elevation(ridge, (0, 0), (2, 0), paths=True)
    >>> found["path_y"].values, found["path_x"].values
    (array([0., 1., 2., 1., 0.]), array([0., 0., 1., 2., 2.]))
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    paths = check_flag("paths", paths)
    spec = RunSpec(**options)
    raster = spec.open(elevation, "elevation")
    radius = parse_snap(snap, raster.georeference)
    starts, moved = _cells("points", points, raster, radius)
    ends, notes = starts, {"snap_distances": moved} if radius else {}
    if targets is not None:
        ends, moved = _cells("targets", targets, raster, radius)
        notes |= {"target_snap_distances": moved} if radius else {}
    rows, columns = (np.concatenate(axis) for axis in zip(starts, ends, strict=True))
    problem = Passes(
        raster.nodata,
        connectivity,
        rows,
        columns,
        starts[0].size,
        targets is None,
        paths,
        orientation=raster.georeference.orientation,
    )
    units = units_of(raster, "elevation")
    return raster_job(problem, (raster,), spec, notes=notes, units=units)


def _cells(
    name: str, given: PointsLike, raster: Raster, radius: SnapRadius
) -> tuple[tuple[Integers, Integers], list[float]]:
    """Return rows and columns of points, snapped to valid cells, and how far they were moved."""
    place = raster.georeference
    points = as_points(given, name, place)
    before = cells_of(points, place, raster.shape, name)
    rows, columns = snap_to_valid(*before, raster, points, radius, name)
    moved = distances_moved(points, rows, columns, np.stack(before), place)
    return (rows, columns), moved.tolist()
