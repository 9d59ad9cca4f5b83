"""The pass between each two points: the lowest place at which one comes from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np
import numpy.typing as npt
import xarray as xr

from orograph.distance.sources import snap_cells
from orograph.engines.quadtree_pass import QuadtreePass
from orograph.execution.backends import choose_backend
from orograph.execution.job import RasterJob, raster_job
from orograph.execution.launch import launch
from orograph.execution.options import RunOptions
from orograph.kernels.forest.order_keys import decode_keys
from orograph.terrain.basin_tree import BasinTree, Summary, Terminals, cells_in, places_of
from orograph.terrain.water import compile_kernels
from orograph.tiles.arguments import check_choice
from orograph.tiles.grid.points import as_points, cells_of, snap_to_valid
from orograph.tiles.grid.quadtree import Place
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.store.create import Variable
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.execution.run import Run

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

Nothing = tuple[()]


@dataclass(frozen=True)
class Passes(BasinTree):
    """Passes between points as a problem of the quadtree sweep: nothing goes down."""

    rows: Integers
    columns: Integers
    """Cells of the points; point ``i`` is the terminal ``~i``."""

    name = "pass-elevation"
    outputs: ClassVar[tuple[Variable, ...]] = ()

    def terminals(self, place: Place, labels: Array, others: Sequence[Array]) -> Terminals:
        """Return the points in a tile."""
        here, cells = cells_in(place.window, self.rows, self.columns)
        return Terminals(cells, ~here)

    def leaf(self, place: Place, *cells: Array) -> tuple[Summary, Any]:
        """Return the tree of a tile's basins, and keep nothing."""
        return super().leaf(place, *cells)[0], ()

    def merge(self, place: Place, children: Sequence[tuple[Place, Summary]]) -> tuple[Summary, Any]:
        """Return the tree of the children's basins, and keep nothing."""
        return super().merge(place, children)[0], ()

    def root(self, summary: Summary) -> tuple[Nothing, dict[str, Any]]:
        """Return the tree that joins the points, from the lowest pass up."""
        points = ~summary.pits.cell
        saddles = summary.saddles
        return (), {
            "first": points[summary.first],
            "second": points[summary.second],
            "key": saddles.key,
            "cell": saddles.cell,
        }

    def down(
        self, place: Place, saved: Nothing, message: Nothing, children: Sequence[Place]
    ) -> list[Nothing]:
        """Return nothing to tell."""
        return [()] * len(children)

    def finish(self, place: Place, saved: Nothing, message: Nothing) -> dict[str, Array]:
        """Return no raster."""
        return {}


@dataclass(frozen=True)
class PassJob(RasterJob):
    """The passes from some points to others; the result is no store."""

    points: int = 0
    """How many of the problem's cells are points; the others are targets."""

    stored = False

    def collect(self, engine: Any, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Return the matrix of the passes, with the places of points, targets and passes."""
        raster, problem, split = self.rasters[0], self.problem, self.points
        count = problem.rows.size
        edge = np.full((split, count - split), -1)
        group = [np.array([end]) for end in range(count)]
        for number, (a, b) in enumerate(zip(attributes["first"], attributes["second"])):
            # what joins two groups is the pass from each point of one to each target of the other
            for here, there in ((group[a], group[b]), (group[b], group[a])):
                edge[np.ix_(here[here < split], there[there >= split] - split)] = number
            both = np.concatenate([group[a], group[b]])
            for end in both.tolist():
                group[end] = both
        heights = decode_keys(attributes["key"], raster.dtype).astype(np.float64)
        at = places_of(attributes["cell"], raster)
        ends = places_of(problem.rows * raster.shape[1] + problem.columns, raster)
        dims = ("point", "target")
        return xr.Dataset(
            {
                "elevation": (dims, np.append(heights, np.inf)[edge]),
                "pass_y": (dims, np.append(at[:, 1], np.nan)[edge]),
                "pass_x": (dims, np.append(at[:, 0], np.nan)[edge]),
            },
            {
                "point_y": ("point", ends[:split, 1]),
                "point_x": ("point", ends[:split, 0]),
                "target_y": ("target", ends[split:, 1]),
                "target_x": ("target", ends[split:, 0]),
            },
            {"connectivity": problem.connectivity},
        )


@overload
def pass_elevation(
    elevation: Any,
    points: Any,
    targets: Any = ...,
    *,
    connectivity: int = ...,
    snap: bool | int = ...,
    nodata: float | int | None = ...,
    tile: int | None = ...,
    shard: int | None = ...,
    wait: Literal[True] = ...,
    backend: str | None = ...,
    client: Client | None = ...,
) -> xr.Dataset: ...


@overload
def pass_elevation(
    elevation: Any,
    points: Any,
    targets: Any = ...,
    *,
    connectivity: int = ...,
    snap: bool | int = ...,
    nodata: float | int | None = ...,
    tile: int | None = ...,
    shard: int | None = ...,
    wait: Literal[False],
    backend: str | None = ...,
    client: Client | None = ...,
) -> Run[xr.Dataset]: ...


def pass_elevation(
    elevation: Any,
    points: Any,
    targets: Any = None,
    *,
    connectivity: int = 8,
    snap: bool | int = False,
    nodata: float | int | None = None,
    tile: int | None = None,
    shard: int | None = None,
    wait: bool = True,
    backend: str | None = None,
    client: Client | None = None,
) -> xr.Dataset | Run[xr.Dataset]:
    """Return the pass from each point to each target: where a way between them is highest.

    Of all paths between the two the one is meant whose highest cell is lowest.

    Parameters
    ----------
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`.
    points : points
        A point (x, y) in map coordinates, or points, shape (n, 2), or anything with a ``geometry``
        of points, brought to the CRS of the elevation.
    targets : points, optional
        Likewise; by default the points themselves.
    connectivity : {8, 4}
        8 or 4 neighbours.
    snap : bool or int
        Move points on nodata to the nearest cell with a height: True within 10 cells, or a number
        of cells.
    nodata : float or int, optional
        The value of cells without a height, in place of what the raster itself says. NaN and
        infinite cells have none either.
    tile, shard, wait, backend, client
        As for `minimum_spanning_forest`; there is no CUDA kernel yet.

    Returns
    -------
    xarray.Dataset
        Over (point, target): ``elevation``, float64, infinite where no path leads from one to the
        other; ``pass_y`` and ``pass_x``, where it is, NaN there. The coordinates ``point_y``,
        ``point_x``, ``target_y`` and ``target_x`` are those of the points' cells.

    Raises
    ------
    InputError
        If an argument or the raster is not what is asked for, or points lie outside the grid or on
        nodata; the first of them are listed.
    BackendError
        As for `minimum_spanning_forest`.

    Notes
    -----
    Cells are ordered by (height, row-major index), so the pass is one cell, whatever the tiling.
    The points' own cells count. Each cell is read once, and nothing is written; the matrix comes
    from the tree that joins the points.

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
    """
    connectivity = check_choice("connectivity", connectivity, (4, 8))
    raster = open_raster(elevation, nodata=nodata, argument="elevation")
    radius = snap_cells(snap)
    starts = _cells("points", points, raster, radius)
    ends = starts if targets is None else _cells("targets", targets, raster, radius)
    rows, columns = (np.concatenate(axis) for axis in zip(starts, ends, strict=True))
    options = RunOptions(tile, client=client, backend=backend, shard=shard, wait=wait)
    problem = Passes(
        raster.nodata,
        connectivity,
        choose_backend("tile_basins", (raster,), options),
        rows,
        columns,
    )
    warm_up = partial(compile_kernels, raster.dtype)
    job = raster_job(QuadtreePass, problem, (raster,), {}, warm_up, options)
    own = {f.name: getattr(job, f.name) for f in fields(job)}
    run = launch(PassJob(**own, points=starts[0].size), options)
    return run.result() if options.wait else run


def _cells(name: str, given: Any, raster: Raster, radius: int) -> tuple[Integers, Integers]:
    """Return the rows and columns of points, moved to valid cells."""
    points = as_points(given, name, raster.georeference)
    rows, columns = cells_of(points, raster.georeference, raster.shape, name)
    return snap_to_valid(rows, columns, raster, points, radius, name)
