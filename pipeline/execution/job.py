"""Jobs: an operation with its checked arguments, and how its result is collected.

`orograph.execution.launch` runs any `Job`, in memory or through a workspace on disk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from orograph.execution.context import RunContext
from orograph.execution.options import RunSpec, run_layout
from orograph.settings import setting
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.unchanged import Version, version_of
from orograph.tiles.storage import Storage
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.dataset import open_dataset
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    from distributed import Client

    from orograph.execution.run import Progress

T = TypeVar("T")
Table = Mapping[str, tuple[tuple[str, ...], Iterable[npt.NDArray[Any]]]]


class Engine(Protocol):
    """Interface of the engine of a job: `QuadtreePass`, `Frontier`, or an operation's own."""

    def run(self, client: Client | None, handle: Any, cancelled: Event) -> dict[str, Any]:
        """Do all the work; return the attributes of the result."""

    def table(self) -> Table:
        """Return the columns that the result has beside its rasters, in pieces."""

    def progress(self) -> Progress:
        """Return how far the work is; called from any thread."""

    def statistics(self) -> dict[str, int]:
        """Return how much work it was, where that depends on the order in which it was done."""


@dataclass(frozen=True)
class Job(ABC, Generic[T]):
    """One operation with its checked arguments; ``T`` is what it returns."""

    rasters: tuple[Raster, ...]
    """The inputs."""
    shape: tuple[int, int]
    """Rows and columns of the grid that is worked on."""
    layout: Layout
    backend: str
    """``"numba"``, ``"cuda"``, or ``"auto"`` where the first worker that comes will tell."""
    spec: RunSpec = field(default_factory=RunSpec, kw_only=True)
    """The options of its run."""

    stored: ClassVar[bool] = True
    """Whether the result is a store; otherwise it is what the engine knows at the end."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return all that determines the result, in JSON types: equal identities, equal results."""

    @cached_property
    def first_versions(self) -> list[Version | None]:
        """The versions of the inputs when the run began."""
        return self.versions()

    def versions(self) -> list[Version | None]:
        """Return the versions of the inputs that there are now."""
        return [version_of(raster) for raster in self.rasters]

    @abstractmethod
    def warm_up(self) -> None:
        """Compile the kernels before several threads or workers want them."""

    @abstractmethod
    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine of the job, on rasters that all tasks can read."""

    def column_attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of a column of the engine's table."""
        return {}

    def sink(self) -> ArraySink:
        """Return a sink in memory for all outputs."""
        return ArraySink({})

    def collect(self, engine: Any, sink: ArraySink, attributes: dict[str, Any]) -> T:
        """Return the result of a run in memory, or of one that has no store."""
        raise NotImplementedError

    def create_result(self, result: Storage, token: str) -> None:
        """Lay out the empty store of the result."""

    def open(self, out: Storage) -> T:
        """Return the result that stands in a finished store."""
        raise NotImplementedError

    def load(self, result: T) -> T:
        """Return an opened result wholly in memory: its store is about to be removed."""
        raise NotImplementedError


@dataclass(frozen=True)
class DatasetJob(Job[xr.Dataset]):
    """A job whose result is a dataset of rasters, and of a table if the engine has one."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[Variable, ...]:
        """The rasters of the result."""

    @property
    @abstractmethod
    def georeference(self) -> Georeference:
        """Their dimensions and coordinates."""

    @property
    def header(self) -> dict[str, Any]:
        """Attributes of the result that do not come from the work."""
        return {}

    def sink(self) -> ArraySink:
        """Return arrays for all outputs."""
        return ArraySink({v.name: np.empty(self.shape, v.dtype) for v in self.outputs})

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Attributes of the result that the arguments decide, so that they are known before."""
        return {}

    @property
    def has_table(self) -> bool:
        """Whether the result has columns too, as long as only the engine knows."""
        return False

    def collect(self, engine: Engine, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Return the arrays and the table as a dataset."""
        columns: dict[str, Any] = {}
        for name, (dims, column) in engine.table().items():
            pieces = list(column)
            columns[name] = dims, pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return self.dataset(sink.arrays, columns, attributes)

    def dataset(
        self, arrays: Mapping[str, Any], columns: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> xr.Dataset:
        """Return the result, given an array for each raster."""
        place = self.georeference
        dims = (place.y_name, place.x_name)
        # xarray keeps attributes in arithmetic, but no encoding: by it `plot` tells a result from
        # what was computed of it, whose units are others
        variables = {
            v.name: (dims, arrays[v.name], _stated(v), {"dtype": np.dtype(v.dtype)})
            for v in self.outputs
        }
        return xr.Dataset(
            {**variables, **columns}, coords=place.coords(), attrs={**self.header, **attributes}
        )

    @property
    def on_gpu(self) -> bool:
        """Whether the first raster is of CuPy's arrays, so that a result in memory is too."""
        return any(getattr(raster, "on_gpu", False) for raster in self.rasters[:1])

    def to_gpu(self, result: xr.Dataset) -> xr.Dataset:
        """Return a result in memory with its rasters as arrays of CuPy."""
        import cupy

        rasters = {v.name: result[v.name] for v in self.outputs}
        return result.assign(
            {name: raster.copy(data=cupy.asarray(raster.data)) for name, raster in rasters.items()}
        )

    def create_result(self, result: Storage, token: str) -> None:
        """Lay out the empty store of the dataset."""
        create_store(
            result, self.shape, self.layout, self.outputs, self.georeference, self.header, token
        )

    def open(self, out: Storage) -> xr.Dataset:
        """Open the dataset lazily."""
        return open_dataset(out)

    def load(self, result: xr.Dataset) -> xr.Dataset:
        """Read the whole dataset."""
        result = result.load()
        result.close()
        # the store, which is about to be removed
        for encoding in (result.encoding, *(v.encoding for v in result.variables.values())):
            encoding.pop("source", None)
        for variable in self.outputs:  # as in `dataset`
            result.variables[variable.name].encoding["dtype"] = np.dtype(variable.dtype)
        for variable in self.outputs:  # as in `dataset`
            result.variables[variable.name].encoding["dtype"] = np.dtype(variable.dtype)
        return result


@dataclass(frozen=True)
class RasterJob(DatasetJob):
    """A problem on rasters and the engine that solves it; see `raster_job`."""

    make_engine: Callable[..., Engine]
    problem: Any
    parameters: Mapping[str, Any]
    compile_kernels: Callable[[], None] | None
    join_tiles: Callable[[RunContext], RunContext] = field(
        default=lambda context: context, kw_only=True
    )
    """Makes larger tiles of those of the layout, where that is quicker."""

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Rasters that the problem writes."""
        outputs: tuple[Variable, ...] = self.problem.outputs
        return outputs

    @property
    def known_attributes(self) -> dict[str, Any]:
        """Attributes that the problem knows beforehand."""
        return dict(getattr(self.problem, "known_attributes", {}))

    @property
    def has_table(self) -> bool:
        """Whether the problem has columns."""
        return bool(getattr(self.problem, "columns", None))

    @property
    def georeference(self) -> Georeference:
        """Georeference of the first raster."""
        return self.rasters[0].georeference

    @property
    def header(self) -> dict[str, Any]:
        """The conventions; attributes of the inputs speak of the inputs."""
        return {"Conventions": "CF-1.10"}

    def identity(self) -> dict[str, Any]:
        """Return the problem, its parameters, and the fingerprints of the rasters."""
        return {
            "operation": self.problem.name,
            **self.parameters,
            "input": [
                version.fingerprint if version else raster.fingerprint()
                for raster, version in zip(self.rasters, self.first_versions, strict=True)
            ],
            "tile": self.layout.tile,
            "shard": self.layout.shard,
        }

    def warm_up(self) -> None:
        """Compile the kernels of the problem."""
        if self.compile_kernels is not None:
            self.compile_kernels()

    def engine(self, rasters: tuple[Raster, ...], context: RunContext, backend: str) -> Engine:
        """Return the engine with the problem on this backend."""
        problem = self.problem
        if problem.backend != backend:
            problem = replace(problem, backend=backend)
        return self.make_engine(problem=problem, rasters=rasters, context=self.join_tiles(context))


def raster_job(
    engine: Callable[..., Engine],
    problem: Any,
    rasters: tuple[Raster, ...],
    parameters: Mapping[str, Any],
    compile_kernels: Callable[[], None] | None,
    spec: RunSpec,
    least_tile: int = 1,
    kind: type[RasterJob] = RasterJob,
) -> RasterJob:
    """Return the job of a problem on rasters.

    Parameters
    ----------
    engine
        Called with ``problem``, ``rasters`` and ``context``.
    problem
        Has a ``name``, a ``backend`` and ``outputs``.
    rasters
        What it reads; the result has the grid of the first.
    parameters
        What beside the rasters decides the result, in JSON types.
    compile_kernels
        Compiles the kernels, so that workers find them in the cache; None: no Numba kernels.
    spec
        Its ``tile`` and ``shard`` say how the grid is cut.
    least_tile
        Cells a side that a tile must have, so that no edge goes beyond its neighbours.
    kind
        What is returned: a `RasterJob`, or one whose result is something else.
    """
    first = rasters[0]
    tile = spec.tile if spec.tile is not None else first.tile or setting("tile")
    side = max(Layout(tile, tile).tile, least_tile)
    layout = run_layout(first.shape, side, spec.shard)
    return kind(
        rasters,
        first.shape,
        layout,
        problem.backend,
        engine,
        problem,
        parameters,
        compile_kernels,
        spec=spec,
    )


def _stated(variable: Variable) -> dict[str, Any]:
    """Return the attributes of a variable as `open_dataset` shows those of a stored one."""
    fill = {} if variable.fill_value is None else {"_FillValue": variable.fill_value}
    return {**variable.attrs, **fill}
