"""Jobs: an operation with its checked arguments, and how its result is collected.

`orograph.run.session` runs any `Job`, in memory or through a workspace on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from orograph.arguments.keywords import Choice
from orograph.arguments.settings import setting
from orograph.run.backends import choose_backend
from orograph.run.cluster.compute import load
from orograph.run.context import RunContext
from orograph.run.options import RunSpec, run_layout
from orograph.run.problem import facts_of, on_backend
from orograph.tiles.errors import InputError
from orograph.tiles.format.metadata import ArrayMetadata
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.nodata import fill_value_in_xarray
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.unchanged import Version, version_of
from orograph.tiles.raster.wrap import (
    NO_POLES,
    POLES,
    WRAPS,
    states_wrap,
    turn_of,
    warn_of_globe,
    wraps_of,
)
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import ColumnsInTurns, Layout, Variable, begin_store
from orograph.tiles.store.dataset import open as open_dataset
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    from orograph.run.run import Engine, ResultTable

T = TypeVar("T")


@dataclass(frozen=True)
class Job(ABC, Generic[T]):
    """One operation with its checked arguments; ``T`` is what it returns."""

    rasters: tuple[Raster, ...]
    """Input rasters."""
    shape: tuple[int, int]
    """Numbers of rows and columns of the grid that is worked on."""
    layout: Layout
    backend: str
    """Backend, ``"numba"`` or ``"cuda"``; ``"auto"`` if the first worker is to tell."""
    spec: RunSpec = field(default_factory=RunSpec, kw_only=True)
    """Options of the job's run."""

    stored: ClassVar[bool] = True
    """Whether the result is a store; otherwise it is what the engine knows at the end."""

    wraps: bool = field(default=False, kw_only=True)
    """Whether the last column of the grid lies beside its first."""

    poles: tuple[bool, bool] = field(default=NO_POLES, kw_only=True)
    """Whether cells of the first and of the last row are neighbours over a pole."""

    cut_at_seam: bool = field(default=False, kw_only=True)
    """Whether the run ends at the seam of a grid that wraps, and the result is joined there."""

    reads_all: bool = field(default=True, kw_only=True)
    """Whether the run reads all cells; else Dask arrays are computed where they are read."""

    tells_whole: ClassVar[bool] = False
    """Whether the metadata of the empty result tell whether all of it is there."""

    @property
    def around(self) -> dict[str, str]:
        """Attributes that tell how the grid closes upon itself."""
        return {**(WRAPS if self.wraps else {}), **(POLES if any(self.poles) else {})}

    @property
    def is_layer(self) -> bool:
        """Whether the result is a vector layer, which is written to a vector file if at all."""
        return False

    @property
    def writes_store(self) -> bool:
        """Whether the run writes a store at ``out``, from which it can be resumed."""
        return self.stored and self.spec.storage is not None

    @property
    def is_table(self) -> bool:
        """Whether the result is a table of points, beside which there may be a raster."""
        return False

    @property
    def as_lines(self) -> str:
        """Advice on how to write a result with rasters to a vector file; mostly empty."""
        return ""

    @property
    def is_brief(self) -> bool:
        """Whether the work takes less than a second, so that a call does it in its own thread."""
        return False

    def concern(self, result: T) -> str | None:
        """Return a warning about a result that is not what one would expect; mostly None."""
        return None

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return a JSON dict of all that determines the result; equal dicts mean equal results."""

    @cached_property
    def first_versions(self) -> list[Version | None]:
        """The versions of the inputs when the run began."""
        return [version_of(raster) for raster in self.rasters]

    def versions(self) -> list[Version | None]:
        """Return the current version of each input raster, to detect changes during the run."""
        known = zip(self.rasters, self.first_versions, strict=True)
        return [version_of(raster, first) for raster, first in known]

    @abstractmethod
    def warm_up(self) -> None:
        """Compile the kernels once, before several threads or workers would each compile them."""

    @abstractmethod
    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine that does the work, reading rasters that all tasks can open."""

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of one column of the result's table, such as its units."""
        return {}

    def sink(self) -> ArraySink:
        """Return the in-memory sink that receives the output arrays."""
        return ArraySink({})

    def collect(self, engine: Any, sink: ArraySink, attributes: dict[str, Any]) -> T:
        """Build the result of an in-memory run, or of a run that writes no store."""
        raise NotImplementedError

    def create_result(self, result: Storage, token: str) -> Mapping[str, ArrayMetadata]:
        """Create the empty store that the run will fill; see `begin_store`."""
        return {}

    def open(self, out: Storage) -> T:
        """Open the finished store and return it as the result."""
        raise NotImplementedError

    def load(self, result: T) -> T:
        """Read an opened result fully into memory, because its store is about to be removed."""
        raise NotImplementedError

    def like_input(self, result: T) -> T:
        """Move the rasters of an in-memory result to the GPU if the input was on a GPU."""
        return result


@dataclass(frozen=True)
class UnstoredJob(Job[T]):
    """Job whose result is what its engine knows at the end, such as a vector layer."""

    operation: str
    make_engine: Callable[[tuple[Raster, ...], RunContext, str], Engine]
    """Function that makes the engine from the rasters, the context and the backend."""
    result: Callable[[Any, dict[str, Any]], T]
    """Function that makes the result from the engine and the attributes, after the run."""
    compile_kernels: Callable[[], None] | None = None
    is_layer: bool = False
    problem: Any = None
    """Problem that the engine solves, if it is one on rasters, by which the run is planned."""

    stored = False

    def identity(self) -> dict[str, Any]:
        """Return the operation's name only, since such runs are never resumed."""
        return {"operation": self.operation}

    def warm_up(self) -> None:
        """Compile the kernels, if they are known before the run."""
        if self.compile_kernels is not None:
            self.compile_kernels()

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine of the operation."""
        return self.make_engine(rasters, context, backend)

    def collect(self, engine: Any, sink: ArraySink, attributes: dict[str, Any]) -> T:
        """Return the result, which ``result`` takes from the engine."""
        return self.result(engine, attributes)


@dataclass(frozen=True)
class DatasetJob(Job[xr.Dataset]):
    """A job whose result is a dataset of rasters, and of a table if the engine has one."""

    tells_whole: ClassVar[bool] = True

    @property
    @abstractmethod
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters of the result."""

    @property
    @abstractmethod
    def georeference(self) -> Georeference:
        """Dimension names, coordinates and CRS of the output rasters."""

    @property
    def header(self) -> dict[str, Any]:
        """Dataset attributes that do not depend on the computed values, such as Conventions."""
        return {}

    def sink(self) -> ArraySink:
        """Return a sink with an empty array for each output raster."""
        return ArraySink({v.name: np.empty(self.shape, v.dtype) for v in self.outputs})

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that follow from the arguments, available before the run."""
        return {}

    @property
    def has_table(self) -> bool:
        """Whether the result also has table columns, whose length only the run determines."""
        return False

    def collect(self, engine: Engine, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Build a dataset of the output arrays and the engine's table."""
        columns = {
            name: (*column, self.column_attributes(name))
            for name, column in whole_columns(engine.table()).items()
        }
        return self.dataset(sink.arrays, columns, attributes)

    def dataset(
        self, arrays: Mapping[str, Any], columns: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> xr.Dataset:
        """Build the result dataset from an array for each raster, table columns and attributes."""
        place = self.georeference
        dims = (place.y_name, place.x_name)
        # xarray keeps attributes in arithmetic, but no encoding: by it `plot` tells a result from
        # what was computed of it, whose units are others
        variables = {
            v.name: (dims, arrays[v.name], *_stated(v, place.encoding)) for v in self.outputs
        }
        return xr.Dataset(
            {**variables, **columns}, coords=place.coords(), attrs={**self.header, **attributes}
        )

    def like_input(self, result: xr.Dataset) -> xr.Dataset:
        """Convert the rasters of an in-memory result to CuPy if the first input is a CuPy array."""
        if not any(getattr(raster, "on_gpu", False) for raster in self.rasters[:1]):
            return result
        import cupy

        rasters = {v.name: result[v.name] for v in self.outputs}
        return result.assign(
            {name: raster.copy(data=cupy.asarray(raster.data)) for name, raster in rasters.items()}
        )

    def create_result(self, result: Storage, token: str) -> Mapping[str, ArrayMetadata]:
        """Create the empty Zarr store of the dataset."""
        return begin_store(
            result, self.shape, self.layout, self.outputs, self.georeference, self.header, token
        )

    def open(self, out: Storage) -> xr.Dataset:
        """Open the finished Zarr store lazily as a dataset."""
        return open_dataset(out)

    def load(self, result: xr.Dataset) -> xr.Dataset:
        """Read the whole dataset into memory and close its store."""
        result = load(result)
        result.close()
        # the store, which is about to be removed
        for encoding in (result.encoding, *(v.encoding for v in result.variables.values())):
            for place in ("source", "storage"):
                encoding.pop(place, None)
        for variable in self.outputs:  # as in `dataset`
            result.variables[variable.name].encoding["dtype"] = np.dtype(variable.dtype)
        return result


@dataclass(frozen=True)
class RasterJob(DatasetJob):
    """Job of a problem on rasters; made by `raster_job`."""

    problem: Any
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the result that neither the problem nor the run tells."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units of output rasters and columns by name, where the problem does not know them."""

    def concern(self, result: xr.Dataset) -> str | None:
        """Return the warning of the problem about a result, if it has one."""
        concern = getattr(self.problem, "concern", None)
        return None if concern is None else concern(result)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Output rasters of the problem: names, dtypes and attributes."""
        units = {name: {"units": unit} for name, unit in self.units.items()}
        return tuple(
            replace(v, attrs={**v.attrs, **units.get(v.name, {}), **self.around})
            for v in self.problem.outputs
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields of the problem that decide the result, for the report of the run."""
        return {k: v for k, v in self.problem.identity().items() if k != "operation"}

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Dataset attributes that the problem can state before the run."""
        return dict(getattr(self.problem, "known_attributes", {}))

    @property
    def has_table(self) -> bool:
        """Whether the problem also produces table columns."""
        return self.coordinates is not None or bool(getattr(self.problem, "columns", None))

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of a column of the problem's table, if it states any."""
        stated = getattr(self.problem, "column_attributes", None)
        units = {"units": self.units[name]} if name in self.units else {}
        return {**({} if stated is None else stated(name)), **units}

    @property
    def is_table(self) -> bool:
        """Whether the problem is one whose table is of points."""
        return self.coordinates is not None

    @property
    def as_lines(self) -> str:
        """Advice on how to write the result to a vector file, if its problem has some."""
        return str(getattr(self.problem, "as_lines", ""))

    @property
    def coordinates(self) -> tuple[str, ...] | None:
        """Table columns to set as coordinates; None if the result is mainly rasters."""
        coordinates: tuple[str, ...] | None = getattr(self.problem, "coordinates", None)
        return coordinates

    @property
    def georeference(self) -> Georeference:
        """Georeference of the first input raster; empty if no raster is written."""
        return self.rasters[0].georeference if self.outputs else Georeference()

    @property
    def header(self) -> dict[str, Any]:
        """The CF conventions, the CRS for a table, and notes; input attributes are not copied."""
        crs = self.rasters[0].georeference.crs_wkt
        of_table = {} if self.coordinates is None or crs is None else {"crs_wkt": crs}
        turn = {"turn": list(turn_of(self.rasters[0]))} if self.wraps else {}
        return {"Conventions": "CF-1.10", **of_table, **self.around, **turn, **self.notes}

    def collect(self, engine: Engine, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Build a dataset of the output arrays and the table, with coordinates set."""
        return super().collect(engine, sink, attributes).set_coords(self.coordinates or ())

    def open(self, out: Storage) -> xr.Dataset:
        """Open the finished Zarr store lazily, with coordinates set."""
        return super().open(out).set_coords(self.coordinates or ())

    def identity(self) -> dict[str, Any]:
        """Return the identity of the problem, with fingerprints and nodata of the inputs."""
        return {
            **self.problem.identity(),
            **({"notes": dict(self.notes)} if self.notes else {}),
            **self.around,
            "input": [
                version.fingerprint if version else raster.fingerprint()
                for raster, version in zip(self.rasters, self.first_versions, strict=True)
            ],
            "nodata": [facts_of(raster.nodata) for raster in self.rasters],
            "tile": self.layout.tile,
            "shard": self.layout.shard,
        }

    def warm_up(self) -> None:
        """Compile the kernels of the problem."""
        several = max(self.shape) > self.layout.tile
        self.problem.compile_kernels([raster.dtype for raster in self.rasters], several)

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine of the problem, set to the given backend."""
        # The first worker of a cluster may have decided on the backend.
        engine: Engine = on_backend(self.problem, backend).engine(rasters, context)
        return engine


def layout_of(raster: Raster, spec: RunSpec, least_tile: int = 1) -> Layout:
    """Return the tile and shard sides of a run on a raster; tiles have at least ``least_tile``."""
    tile = spec.tile if spec.tile is not None else raster.tile or setting("tile")
    return run_layout(raster.shape, max(Layout(tile, tile).tile, least_tile), spec.shard)


def raster_job(
    problem: Any,
    rasters: tuple[Raster, ...],
    spec: RunSpec,
    *,
    notes: Mapping[str, Any] | None = None,
    units: Mapping[str, str] | None = None,
    poles: tuple[bool, bool] = NO_POLES,
) -> RasterJob:
    """Return the job of a problem on rasters.

    Parameters
    ----------
    problem
        Derives from the base class of the engine that solves it, such as
        `orograph.engines.quadtree_pass.SweepProblem`. If it names a ``stage``, its backend is
        chosen here.
    rasters
        What it reads; the result has the grid of the first.
    spec
        Its ``tile`` and ``shard`` say how the grid is cut.
    notes
        Attributes of the result beside those of the problem and the run, in JSON types.
    units
        Those of output rasters and columns that the problem does not know, such as `units_of`.
    poles
        Whether cells of the first and of the last row are neighbours over a pole.

    Raises
    ------
    InputError, BackendError
        If the backend of the options cannot be used.
    """
    if problem.stage:
        chosen = choose_backend(problem.stage, rasters, spec, problem.lacking)
        problem = on_backend(problem, chosen)
    layout = layout_of(rasters[0], spec, problem.least_tile)
    return RasterJob(
        rasters,
        rasters[0].shape,
        layout,
        problem.backend,
        problem,
        notes or {},
        units or {},
        spec=spec,
        wraps=problem.may_wrap and goes_around(rasters[0], spec, layout.tile, problem.least_tile),
        poles=poles,
    )


def refuse_wrap(operation: str, job: Job[Any], wrap: bool | None) -> None:
    """Raise InputError if a raster is to wrap, and the operation ends it at its edges."""
    if job.wraps or job.cut_at_seam or (wrap is not None and not wrap):
        return
    if wrap is None and not any(states_wrap(raster) for raster in job.rasters[:1]):
        return
    what = "wrap: " if wrap else "the raster wraps (its attribute wraps is 'x'), and "
    raise InputError(
        f"{what}{operation} does not go around the globe; pass wrap=False to end the raster at its "
        "first and last column"
    )


def goes_around(raster: Raster, spec: Choice, tile: int, least: int = 1) -> bool:
    """Return whether the grid of a run wraps; warn if it does not, though it spans the globe.

    ``least`` is how many columns a tile must have.
    """
    if not wraps_of(raster, spec.wrap):
        if spec.wrap is None:
            warn_of_globe(raster)
        return False
    columns = raster.shape[1]
    last = columns % tile or tile
    if last < least or columns <= 2 * least:
        raise InputError(
            f"wrap: the last tile has {last} of {columns} columns, and with 16 neighbours steps "
            f"cross {least}, of at least {2 * least + 1}; pass another tile="
        )
    return True


def layer_job(
    problem: Any,
    rasters: tuple[Raster, ...],
    result: Callable[[Any, dict[str, Any]], T],
    spec: RunSpec,
    *,
    cut_at_seam: bool = False,
) -> UnstoredJob[T]:
    """Return the job of a problem on rasters whose result is a vector layer.

    ``result`` makes the layer from the engine and the attributes, after the run. ``cut_at_seam``
    tells that it knows of grids that wrap, whose seam cuts the layer.
    """

    def make_engine(rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        engine: Engine = on_backend(problem, backend).engine(rasters, context)
        return engine

    layout = layout_of(rasters[0], spec, problem.least_tile)
    return UnstoredJob(
        rasters,
        rasters[0].shape,
        layout,
        choose_backend(problem.stage, rasters, spec, problem.lacking),
        problem.name,
        make_engine,
        result,
        partial(problem.compile_kernels, [raster.dtype for raster in rasters], True),
        is_layer=True,
        cut_at_seam=cut_at_seam,
        wraps=problem.may_wrap and goes_around(rasters[0], spec, layout.tile, problem.least_tile),
        problem=problem,
        spec=spec,
    )


def units_of(raster: Raster, *names: str) -> dict[str, str]:
    """Return the units of a raster, if it tells them, for outputs that are in the same."""
    units = raster.attrs.get("units")
    return dict.fromkeys(names, str(units)) if units else {}


def _stated(
    variable: Variable, of_place: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return attributes and encoding of an output variable, with ``_FillValue`` as in a store."""
    dtype = np.dtype(variable.dtype)
    fill, encoding = fill_value_in_xarray(variable.fill_value, dtype)
    return {**variable.attrs, **fill}, {"dtype": dtype, **encoding, **of_place}


def whole_columns(table: ResultTable) -> dict[str, tuple[tuple[str, ...], npt.NDArray[Any]]]:
    """Return the columns of a table, each concatenated into one array."""
    columns = table.gather() if isinstance(table, ColumnsInTurns) else table
    found = {}
    for name, (dims, column) in columns.items():
        pieces = list(column)
        found[name] = dims, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return found
