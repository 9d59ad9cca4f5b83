"""A distance index over a raster: built once, queried many times.

One idea, long: one public class, each of whose methods says what it takes, returns and raises.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

import numpy as np
import numpy.typing as npt

from orograph.arguments.places import Places, parse_places
from orograph.arguments.sources import OUTSIDE, SourcesLike
from orograph.arguments.steps import SlopeSpec, StepSpec
from orograph.index.arguments import BLOCK, LEVELS, IndexOptions, wanted_index
from orograph.index.build import index_job
from orograph.index.device import BlocksOnDevice
from orograph.index.path import corridor_of, trace_in
from orograph.index.points import (
    QueryContext,
    cells_of_points,
    cells_of_sources,
    field_of,
    table_of,
)
from orograph.index.query import Blocks
from orograph.index.store import IndexStore
from orograph.index.table import (
    TableJob,
    costs_of_places,
    mark_unreached,
    table_layout,
    version_of_index,
)
from orograph.index.update import cells_under, update_links, update_values
from orograph.kernels.backends import BACKENDS, may_use_numba, resolve_backend
from orograph.kernels.relax.models import BARRIER, lacking_on_gpu
from orograph.operations.operation import operation
from orograph.results.paths import LeastCostPath
from orograph.run.backends import choose_backend
from orograph.run.cluster.clusters import LateClient, check_client, current_client
from orograph.run.feedback import compilations
from orograph.run.launch import launch
from orograph.run.options import RunSpec, where_to_work
from orograph.tiles import html
from orograph.tiles.arguments import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    refuse_arguments,
    shown,
)
from orograph.tiles.convert.overlap import refuse_overlap
from orograph.tiles.errors import InputError, RunError, own_errors
from orograph.tiles.extensions import check_extension
from orograph.tiles.graph.graph import Graph
from orograph.tiles.grid.window import Window, parse_window
from orograph.tiles.object_options import takes_storage_options
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.snapping import SnapLike, parse_snap
from orograph.tiles.raster.wrap import turn_of
from orograph.tiles.storage import Location
from orograph.tiles.vector.layer import VectorLike, read_layer

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from orograph.run.job import Job
    from orograph.tiles.raster.points import PointsLike
    from orograph.tiles.raster.raster import RasterLike

T = TypeVar("T")
MEMORY = 2**32
ATTEMPTS = 9
MOST_MEMORY = 2**63 - 1


@dataclass(frozen=True)
class QueryStats:
    """Statistics of the last query of an index: blocks and bytes read.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> index = og.DistanceIndex.build(np.ones((9, 9)), "touched.zarr", block=3, levels=0)
    >>> table = index.distance_matrix([(0, 0), (1, 2)])
    >>> index.touched.blocks, index.touched.all_blocks
    (3, 9)
    """

    blocks: int
    """Number of blocks whose matrices were used."""
    bytes: int
    """Size on disk of the blocks that were used, in bytes."""
    all_blocks: int
    all_bytes: int
    visits: int
    """Number of visits to blocks: several to a block where a better path arrived later."""


class DistanceIndex:
    """Precomputed least-cost distances over a raster, for fast tables between many points.

    Made by `build`, opened by `open`. The raster is cut into blocks; of each the index holds the
    distances between all its border cells. See docs/design.md.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> friction = np.array([[1.0, 9.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, 1.0]])
    >>> index = og.DistanceIndex.build(friction, "index.zarr", connectivity=4)
    >>> index.distance_matrix([(0, 0), (2, 0), (1, 2)]).values
    array([[0., 6., 3.],
           [6., 0., 3.],
           [3., 3., 0.]])
    """

    def __init__(
        self,
        store: IndexStore,
        memory: int = MEMORY,
        client: Client | None = None,
        backend: str = "numba",
    ) -> None:
        if not isinstance(store, IndexStore):
            raise InputError(
                f"store: {shown(store)}; an index is made by DistanceIndex.build, or opened by "
                "DistanceIndex.open"
            )
        memory = _check_memory(memory)
        check_client(client)
        backend = check_choice("backend", backend, BACKENDS)
        backend = resolve_backend("minplus", backend)  # of which a table is made
        if client is not None and not may_use_numba(backend):
            raise InputError(
                "client: tables are computed on the GPU of this process with backend='cuda'; give "
                "one of the two"
            )
        self._store = store
        self._blocks = Blocks(store, memory)
        self._client = client
        self._backend = backend
        self._on_device: BlocksOnDevice | None = None
        self._touched: QueryStats | None = None
        self._all_bytes: int | None = None
        compilations()  # says so, if a question needs kernels

    # -- making and opening ------------------------------------------------------------------

    @operation("orograph.index.estimate:estimate_index")
    def build(
        raster: RasterLike,
        store: str | os.PathLike[str],
        *,
        cost: str = "friction",
        block: int = BLOCK,
        levels: int = LEVELS,
        sparsify: bool = False,
        snap: SnapLike = False,
        memory: int = MEMORY,
        **options: Unpack[IndexOptions],
    ) -> Job[DistanceIndex]:
        """Build an index of a raster and write it to a store.

        Parameters
        ----------
        raster : raster
            What the cost model takes first: friction, as of `cost_distance`, or elevation, as of
            `walking_time`.
        store : path
            Zarr store to write.
        cost : str
            A model of `cost_distance` or `walking_time`.
        barriers : raster, vector layer or list, optional
            As of `cost_distance`, but without penalties. The index holds their cells as nodata, so
            that `update` with new values takes barriers away.
        connectivity : {8, 4}
            4 or 8.
        block : int
            Cells a side of the blocks whose boundary distances are found by elimination.
        levels : int
            How often four blocks are merged before they are stored: blocks of ``block * 2**levels``
            cells a side, 1024 at most.
        sparsify : bool
            Leave out entries of matrices that are sums of two others, to the bit. Answers are the
            same; see the notes for what it saves and costs.
        snap : bool, int or str
            Move ends of links that lie on nodata to the nearest valid cell: True within 10 cells,
            or a number of cells, or a length such as ``"300 m"``.
        memory : int
            Bytes of matrices that questions may keep in memory.
        **options

        Returns
        -------
        DistanceIndex

        Raises
        ------
        InputError
            If an argument is invalid.
        StoreExistsError
            If ``store`` exists, or an unfinished build of it.

        Notes
        -----
        Some 64 bytes a cell in float64 where costs are the same both ways (half of each matrix is
        kept), 128 where they are not, whatever the size of blocks, and half of that in float32.
        Blosc leaves four fifths of float sums, three fifths where friction is whole, and a sixth of
        integers; `plan` tells beforehand. The raster of costs is kept too, so that an index needs
        nothing else.

        ``sparsify`` leaves out a third of float64 entries (sums must be the same to the bit, and
        few are, after rounding) and three quarters of integers: on 1024 x 1024 cells of slopes 45
        bytes a cell in place of 58, or 4.5 in place of 12; independent friction 44 for 58, 4.6 for
        9.6. What is left out is found again by a min-plus product a block: builds take 1.5 to 2.0
        times as long and the first question to a block twice; later ones as long as ever. So
        it is for indices that are to be kept or sent, not for those asked once
        (``benchmarks/index.py --sparsify``).
        """
        memory = _check_memory(memory)
        target = open_storage(store, "store")
        check_extension("store", target)
        spec = RunSpec.of({**options, "out": target})
        parse_snap(snap, None)  # refuses None, with which links would not be looked at
        wanted = wanted_index(
            raster,
            cost=cost,
            block=block,
            levels=levels,
            sparsify=sparsify,
            snap=snap,
            steps=StepSpec.of(options),
            slopes=SlopeSpec.of(options),
            choice=spec,
        )
        for raster in wanted.rasters:
            refuse_overlap(raster, store)  # before all its cells are read for its fingerprint
        lacking = "links=" if wanted.form.links else lacking_on_gpu(wanted.problem.model.name)
        chosen = choose_backend("solve_blocks", wanted.rasters, spec, lacking)
        found = where_to_work(wanted.rasters, spec)
        # The index keeps the client for its questions only if that goes on after the build.
        client = None if spec.detach or isinstance(found, LateClient) else found
        open_index = partial(DistanceIndex.open, memory=memory, client=client)
        return index_job(wanted, chosen, open_index, spec)

    @classmethod
    @own_errors
    @takes_storage_options
    def open(
        cls,
        store: Location,
        *,
        memory: int = MEMORY,
        client: Client | None = None,
        backend: str = "numba",
        storage_options: Mapping[str, str | bool] | None = None,
    ) -> DistanceIndex:
        """Open an index from its store; blocks are read only by queries.

        Parameters
        ----------
        store : path
            The store.
        memory : int
            Bytes of matrices that questions may keep in memory.
        client : distributed.Client, optional
            The Dask client whose cluster answers.
        backend : {"numba", "cuda", "auto"}
            ``"cuda"``: `distance_matrix` lets costs spread between blocks on this process's GPU, in
            whose memory matrices stay, 128 bytes a cell in float64. The bits are the same.
            ``"auto"``: there, if there is one.
        storage_options : dict, optional
            Of an address in an object store, as of a run.

        Raises
        ------
        InputError
            If there is none.
        BackendError
            If there is no GPU.
        """
        memory = _check_memory(memory)
        return cls(IndexStore.open(open_storage(store, "store")), memory, client, backend)

    # -- what it is --------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the raster."""
        return self._store.form.shape

    @property
    def blocks(self) -> int:
        """Number of stored blocks."""
        return self._store.form.count

    @property
    def nbytes(self) -> int:
        """Size of the index on disk in bytes."""
        return self._store.bytes()

    @property
    def bytes_uncompressed(self) -> int:
        """Size of the index before compression in bytes, as `plan` predicts it exactly."""
        return self._store.form.bytes_uncompressed

    @property
    def bytes_per_cell(self) -> float:
        """Bytes on disk for each cell of the raster."""
        return self.nbytes / (self.shape[0] * self.shape[1])

    @property
    def fingerprint(self) -> str:
        """Hash of the raster cells that the index was built from."""
        return self._store.form.fingerprint

    @property
    def touched(self) -> QueryStats | None:
        """Statistics of the last query; None before the first."""
        return self._touched

    @property
    def sparsified(self) -> bool:
        """Whether matrix entries that are sums of two others are not stored."""
        return self._store.form.sparsify

    def left_out(self) -> float:
        """Return the share of matrix entries that are not stored; reads all blocks."""
        return self._store.left_out()

    def __repr__(self) -> str:
        form = self._store.form
        sparsified = ", sparsified" if form.sparsify else ""
        return (
            f"<orograph.DistanceIndex: {form.shape[0]} x {form.shape[1]} cells, cost={form.cost}, "
            f"connectivity={form.connectivity}, {form.dtype}, {form.count} blocks of {form.side}"
            f"{sparsified}>"
        )

    def _repr_html_(self) -> str:
        form, touched = self._store.form, self._touched
        rows: dict[str, Any] = {
            "cells": f"{form.shape[0]} x {form.shape[1]}",
            "cost": form.cost,
            "connectivity": form.connectivity,
            "dtype": form.dtype,
            "blocks": f"{form.count} of {form.side} x {form.side} cells",
            "on disk": f"{self.nbytes:,} bytes, {self.bytes_per_cell:.1f} a cell",
            "sparsified": "yes" if form.sparsify else "no",
        }
        if touched is not None:
            rows["last question"] = f"read {touched.bytes:,} bytes of {touched.blocks} blocks"
        return html.table("Distance index", rows)

    # -- questions ---------------------------------------------------------------------------

    @own_errors
    def distance_matrix(
        self,
        points: PointsLike,
        targets: PointsLike | None = None,
        *,
        label: str | None = None,
        snap: SnapLike = False,
        outside: str = "error",
        all_touched: bool = False,
        unreachable: float | None = None,
        out: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> xr.DataArray:
        """Return the least costs between all pairs of points, or from points to targets.

        Parameters
        ----------
        points : points
            In map coordinates, shape (n, 2), x and y, or a vector layer of points, brought to the
            CRS of the raster.
        targets : points or vector layer, optional
            Where to, in the same way; by default the points themselves. To a line or an area the
            cost is that to the nearest cell that it covers.
        label : str, optional
            Column of the vector layers that holds the names of their geometries: they take the
            place of the numbers.
        snap : bool, int or str
            Move points that lie on nodata to the nearest valid cell: True within 10 cells, or a
            number of cells, or a length such as ``"300 m"``.
        outside : {"error", "skip"}
            Refuse points and targets outside the raster, or leave them out: then the attributes
            ``points_outside`` and ``targets_outside`` count them, and others keep their numbers.
        all_touched : bool
            Take all cells that targets which are areas touch, not those alone whose centres lie
            within.
        unreachable : float, optional
            Value for pairs without a path; by default infinity, or -1 where costs are integers. If
            it is finite, it is the ``_FillValue`` of the result.
        out : path, optional
            Zarr store to write, for tables larger than memory: rows are computed and written 512 at
            a time.
        overwrite, resume : bool
            Replace ``out`` if it exists; continue an interrupted call, whose finished rows are in
            ``out.partial``.

        Returns
        -------
        xarray.DataArray
            (from, to), with the points' numbers, from 0, or names, and their coordinates. With
            ``out`` it is opened lazily from the store. `to_geodataframe` and `to_file` make a row
            of each pair.

        Raises
        ------
        InputError
            If points lie outside the raster or on nodata.
        StoreExistsError
            If ``out`` exists, or an unfinished run of it, and no option says what to do.
        RunError
            If the index is updated while ``out`` is written.

        Notes
        -----
        Exact. Sums are taken in another order than by `cost_distance`: floats agree with its
        within rounding, integers are the same. The same bits for any number of workers, on CPUs
        with and without AVX-512. Without ``targets``, and if costs are the same both ways, each
        pair is computed once for both; with ``out`` each way by itself, so that the last bits may
        differ.
        """
        value = self._check_unreachable(unreachable)
        given: dict[str, Any] = {"label": label, "snap": snap, "outside": outside}

        def ask() -> tuple[Places, Places, npt.NDArray[Any]]:
            start, end = self._ends(points, targets, given, all_touched)
            return start, end, self._table(start, end, None)

        if out is not None:
            return self._write_table(
                lambda: self._ends(points, targets, given, all_touched),
                value,
                RunSpec(out=out, overwrite=overwrite, resume=resume, client=self._client),
            )
        refuse_arguments(
            "a table in memory",
            overwrite=check_flag("overwrite", overwrite),
            resume=check_flag("resume", resume),
        )
        start, end, costs = self._answer(ask)
        attributes = {**self._cost_attributes(value), **self._notes(start, end)}
        return _labelled(mark_unreached(costs, value), start, end, attributes)

    @own_errors
    def nearest(
        self,
        points: PointsLike,
        k: int = 1,
        targets: PointsLike | None = None,
        *,
        label: str | None = None,
        snap: SnapLike = False,
        outside: str = "error",
        all_touched: bool = False,
    ) -> xr.Dataset:
        """Return the ``k`` targets with the least cost from each point.

        Parameters
        ----------
        points, targets, label, snap, outside, all_touched
            As of `distance_matrix`. Without targets, the nearest others of the points.
        k : int
            How many.

        Returns
        -------
        xarray.Dataset
            ``target`` (from, rank): numbers of targets, from 0, the smaller of those equally near
            first; -1 where fewer can be reached. ``cost``: infinity (integers: -1) there, and
            ``target_x`` and ``target_y``: NaN. With ``label`` also ``target_name``, empty where
            there is none.
        """
        import xarray as xr

        given: dict[str, Any] = {"label": label, "snap": snap, "outside": outside}

        def ask() -> tuple[Places, Places, npt.NDArray[Any], int]:
            start, end = self._ends(points, targets, given, all_touched)
            most = len(end) - (targets is None)
            if not most:
                raise InputError(
                    "points: one, and no targets; give two points at least, or targets"
                )
            wanted = check_integer("k", k, 1, most, "targets")
            # Among the points themselves each finds itself first, at no cost.
            costs = self._table(start, end, wanted + (targets is None))
            return start, end, costs, wanted

        start, end, costs, k = self._answer(ask)
        nothing = costs.dtype.type(BARRIER if costs.dtype.kind == "i" else np.inf)
        if targets is None:
            np.fill_diagonal(costs, nothing)
        order = np.argsort(costs, axis=1, kind="stable")[:, :k]
        found = np.take_along_axis(costs, order, axis=1)
        lost = found >= nothing
        blank = costs.dtype.type(-1 if costs.dtype.kind == "i" else np.inf)
        dims = ("from", "rank")
        named = {}
        if end.names is not None:
            named["target_name"] = (dims, np.where(lost, "", end.names.astype(object)[order]))
        return xr.Dataset(
            {
                "target": (dims, np.where(lost, -1, end.numbers[order]), {"_FillValue": -1}),
                "cost": (dims, np.where(lost, blank, found), self._cost_attributes(blank)),
                "target_x": (dims, np.where(lost, np.nan, end.points[order, 0])),
                "target_y": (dims, np.where(lost, np.nan, end.points[order, 1])),
                **named,
            },
            coords={
                "from": start.labels,
                "from_x": ("from", start.points[:, 0]),
                "from_y": ("from", start.points[:, 1]),
            },
            attrs=self._notes(start, end),
        )

    @own_errors
    def query(
        self,
        sources: SourcesLike,
        window: Window | tuple[int, int, int, int] | None = None,
        *,
        snap: SnapLike = False,
        outside: str = "error",
        all_touched: bool = False,
    ) -> xr.Dataset:
        """Return the least cost of each cell in a window from the nearest source.

        Parameters
        ----------
        sources : raster, points or vector layer
            As of `cost_distance`.
        window : (int, int, int, int), optional
            The cells that are wanted: first row, first column, rows and columns. By default all.
        snap : bool, int or str
            As of `distance_matrix`.
        outside : {"error", "skip"}
            Refuse sources outside the raster, or leave them out: then the attribute
            ``sources_outside`` counts them.
        all_touched : bool
            Take all cells that areas touch.

        Returns
        -------
        xarray.Dataset
            ``cost`` (y, x), with coordinates: NaN (integers: -1) where unreached. Attributes: what
            the costs are of, and ``snap_distances``, as of `cost_distance`.

        Notes
        -----
        Blocks are read as far as the sources' costs spread below the greatest one in the window.
        For a whole raster `cost_distance` is quicker.
        """
        part = parse_window(window, self.shape)
        outside = check_choice("outside", outside, OUTSIDE)

        def ask() -> xr.Dataset:
            cells, notes = cells_of_sources(self._store, sources, snap, all_touched, outside)
            context = QueryContext()
            found = field_of(self._blocks, cells, part, context)
            self._tell(context)
            return found.assign_attrs(notes)

        return self._answer(ask)

    @own_errors
    def path(self, start: PointsLike, end: PointsLike, *, snap: SnapLike = False) -> LeastCostPath:
        """Return a least-cost path from one point to another.

        Parameters
        ----------
        start, end : points
            Points (x, y) in map coordinates.
        snap : bool, int or str
            As of `distance_matrix`.

        Returns
        -------
        LeastCostPath
            Its cells from the start to the end.

        Raises
        ------
        InputError
            If there is no way.

        Notes
        -----
        The index tells which blocks the path can pass; inside them it is found by `cost_distance`.
        """
        return self._answer(lambda: self._path(start, end, snap))

    def _path(self, start: PointsLike, end: PointsLike, snap: SnapLike) -> LeastCostPath:
        ends = [cells_of_points(self._store, point, snap, name)[0]
                for name, point in (("start", start), ("end", end))]  # fmt: skip
        for name, cells in zip(("start", "end"), ends, strict=True):
            if len(cells) != 1:
                raise InputError(f"{name}: {len(cells)} points; give one")
        context = QueryContext()
        blocks = corridor_of(self._blocks, ends[0][0], ends[1][0], context)
        self._tell(context)
        if not blocks:
            raise InputError(
                f"end: there is no way from {start!s} to {end!s}; are barriers between?"
            )
        return trace_in(self._store, blocks, ends[0][0], ends[1][0])

    @own_errors
    def update(
        self,
        window: tuple[int, int, int, int] | VectorLike,
        friction: RasterLike | float | None = None,
        *,
        elevation: RasterLike | float | None = None,
        all_touched: bool = False,
        takeover: bool = False,
    ) -> int:
        """Replace the values in a window of the raster, and rebuild the blocks it affects.

        Parameters
        ----------
        window : (int, int, int, int), or vector layer
            First row, first column, rows and columns. Or geometries, such as the line of a bridge
            or the area of a closure: the cells that they cover, as of sources of `cost_distance`.
        friction, elevation : raster or float
            New values there: those of them that costs come from. A number is for all of the cells;
            a raster has the shape of the window, or is one of the whole grid, of which the cells
            are taken. NaN marks barriers.
        all_touched : bool
            Take all cells that areas touch.
        takeover : bool
            Take the place of another writer that is at work on the index; that one ends with an
            error.

        Returns
        -------
        int
            How many blocks were made anew: those that the window meets, and those beside it, for
            steps into it cost something else now.

        Raises
        ------
        InputError
            If the window or the values do not fit, a link would end on nodata, or another index has
            been built in its place.
        StoreExistsError
            If another writer is at work on the index.
        RunError
            If another writer has taken the place of this one.

        Notes
        -----
        The index is then the same to the bit as one built of the changed raster. A process that is
        killed meanwhile leaves the old index, or the new one. Updates by others since the index was
        opened stay; questions under way in other processes are asked again.
        """
        if window is None:
            raise InputError("window: None; give its first row, first column, rows and columns")
        given = {"friction": friction, "elevation": elevation}
        all_touched, mask = check_flag("all_touched", all_touched), None
        layer = read_layer(window, "window")
        if layer is None:
            part = parse_window(cast("tuple[int, int, int, int]", window), self.shape)
        else:
            part, mask = cells_under(self._store, layer, all_touched)
        made = update_values(self._store, part, given, takeover, mask)
        self._forget()
        return made

    @own_errors
    def update_links(self, links: Graph, *, snap: SnapLike = False, takeover: bool = False) -> int:
        """Replace the links of an index that was built with links, and rebuild the blocks affected.

        Parameters
        ----------
        links : Graph
            All links as they shall be: with other costs, without a bridge that is closed, or with a
            new one.
        snap : bool, int or str
            As of `build`.
        takeover : bool
            As of `update`.

        Returns
        -------
        int
            How many blocks were made anew: those in which a link begins or ends that has changed.

        Raises
        ------
        InputError
            If the index was built without links, or a link cannot be used. Of those that are new
            there may be 64, or an eighth of those that the index was built with, and 16 more ends
            in a block.
        StoreExistsError, RunError
            As of `update`.

        Notes
        -----
        The index then answers as one built with these links, and is kept as whole as by `update`.
        """
        parse_snap(snap, None)  # refuses None, with which links would not be looked at
        made = update_links(self._store, links, snap, takeover)
        self._forget()
        return made

    # -- common ------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Drop cached blocks and sizes after an update."""
        self._blocks.forget()
        self._on_device = None
        self._all_bytes = None

    def _answer(self, ask: Callable[[], T]) -> T:
        """Run a query, and run it again if the index is updated meanwhile."""
        for _ in range(ATTEMPTS):
            if self._store.refresh():
                self._forget()
            try:
                answer = ask()
            except Exception:
                # In the midst of an update anything may fail, so an error counts only if there was
                # none.
                if not self._store.has_changed():
                    raise
                continue
            # Blocks of two versions may have been read: the answer holds only if all are of one.
            if not self._store.has_changed():
                return answer
        raise RunError(
            f"{self._store.storage} was updated {ATTEMPTS} times while it was asked; ask again"
        )

    def _cost_attributes(self, unreachable: float) -> dict[str, Any]:
        """Return the attributes of a table of costs."""
        problem = self._store.problem
        (cost,) = problem.outputs
        units = {"units": cost.attrs["units"]} if "units" in cost.attrs else {}
        unit = {} if problem.length_unit is None else {"length_unit": problem.length_unit.name}
        fill = {"_FillValue": unreachable} if math.isfinite(unreachable) else {}
        return {"long_name": "least cost", **units, **unit, **fill}

    def _notes(self, start: Places, end: Places) -> dict[str, Any]:
        """Return attributes of a table: what became of the places, and their CRS."""
        raster = self._store.rasters[0]
        crs = raster.georeference.crs_wkt
        skipped = start.notes("points") | ({} if end is start else end.notes("targets"))
        turn = {"turn": list(turn_of(raster))} if self._store.form.wraps else {}
        return {**skipped, **turn, **({} if crs is None else {"crs_wkt": crs})}

    def _check_unreachable(self, value: float | None) -> float:
        """Return the value for pairs without a path, of the dtype of the costs."""
        dtype = np.dtype(self._store.form.dtype)
        if value is None:
            return -1 if dtype.kind == "i" else np.inf
        if dtype.kind == "i":
            return check_integer("unreachable", value, -BARRIER, BARRIER)
        if isinstance(value, float) and math.isnan(value):
            return math.nan
        number = check_number("unreachable", value)
        most = float(np.finfo(dtype).max)
        if math.isfinite(number) and abs(number) > most:
            raise InputError(f"unreachable: {number:g}; in {dtype} it must be at most {most:g}")
        return float(dtype.type(number))

    def _write_table(
        self, ends: Callable[[], tuple[Places, Places]], value: float, spec: RunSpec
    ) -> xr.DataArray:
        """Write a table of costs to a store in parts, and open it."""
        assert spec.storage is not None
        check_extension("out", spec.storage)
        (start, end), version = self._answer(lambda: (ends(), version_of_index(self._blocks)))
        shape = len(start), len(end)
        job = TableJob(
            *((), shape, table_layout(shape), self._backend, self._blocks, start, end, value),
            version,
            *(self._cost_attributes(value), self._notes(start, end), self._context, self._tell),
            spec=spec,
        )
        table = launch(job, "distance_matrix").result()
        return table["cost"].assign_attrs(table.attrs)

    def _ends(
        self,
        points: PointsLike,
        targets: PointsLike | None,
        given: Mapping[str, Any],
        all_touched: bool,
    ) -> tuple[Places, Places]:
        """Return the places that a table leads from and to."""
        all_touched, raster = check_flag("all_touched", all_touched), self._store.rasters[0]
        start = parse_places(points, raster, "points", extended=False, **given)
        if targets is None:
            return start, start
        return start, parse_places(targets, raster, "targets", all_touched=all_touched, **given)

    def _context(self, client: Client | None) -> QueryContext:
        """Return the context of a query of tables."""
        if not may_use_numba(self._backend) and self._on_device is None:
            self._on_device = BlocksOnDevice(self._blocks)
        return QueryContext(None if self._on_device else client, self._on_device)

    def _table(self, start: Places, end: Places, nearest: int | None) -> npt.NDArray[Any]:
        """Return the costs between places; with ``nearest`` those of the least of each row."""
        context = self._context(self._client or current_client())
        # of the cells of one place any may be the nearest
        nearest = nearest if end.are_cells else None
        costs = table_of(self._blocks, start.cells, end.cells, nearest, context)
        self._tell(context)
        return costs_of_places(costs, end)

    def _tell(self, context: QueryContext) -> None:
        if self._all_bytes is None:
            self._all_bytes = self._store.bytes("matrices/c")
        self._touched = QueryStats(
            blocks=len(context.read),
            bytes=sum(context.read.values()),
            all_blocks=self._store.form.count,
            all_bytes=self._all_bytes,
            visits=context.visits,
        )


def _labelled(
    costs: npt.NDArray[Any], start: Places, end: Places, attributes: Mapping[str, Any]
) -> xr.DataArray:
    import xarray as xr

    coords = {
        "from": start.labels,
        "to": end.labels,
        "from_x": ("from", start.points[:, 0]),
        "from_y": ("from", start.points[:, 1]),
        "to_x": ("to", end.points[:, 0]),
        "to_y": ("to", end.points[:, 1]),
    }
    return xr.DataArray(costs, coords, ("from", "to"), "cost", attributes)


def _check_memory(memory: object) -> int:
    return check_integer("memory", memory, 0, MOST_MEMORY, "bytes")
