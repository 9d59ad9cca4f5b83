"""Jobs of problems on the terrain: `terrain_job` and `TableJob`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from orograph.engines.quadtree_pass import QuadtreePass
from orograph.execution.job import Engine, RasterJob, raster_job
from orograph.execution.options import RunSpec
from orograph.kernels.terrain import basins, merge_tree, order
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster
from orograph.tiles.storage import Storage
from orograph.tiles.store.sink import ArraySink

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class TableJob(RasterJob):
    """A job whose result is a table alone, which has coordinates of its own."""

    coordinates: ClassVar[tuple[str, ...]] = ()
    """Which columns they are."""

    @property
    def has_table(self) -> bool:
        """Always."""
        return True

    @property
    def georeference(self) -> Georeference:
        """Return none, because there is no raster."""
        return Georeference()

    @property
    def header(self) -> dict[str, Any]:
        """Return the attributes of the input, with its CRS."""
        crs = self.rasters[0].georeference.crs_wkt
        return {**super().header, **({} if crs is None else {"crs_wkt": crs})}

    def collect(self, engine: Engine, sink: ArraySink, attributes: dict[str, Any]) -> xr.Dataset:
        """Return the table."""
        return super().collect(engine, sink, attributes).set_coords(self.coordinates)

    def open(self, out: Storage) -> xr.Dataset:
        """Open the table lazily."""
        return super().open(out).set_coords(self.coordinates)


def compile_kernels(dtype: np.dtype[Any]) -> None:
    """Compile, or load from the cache, what tiles of this dtype need."""
    basins.compile_kernels(dtype)
    merge_tree.compile_kernels()
    order.compile_kernels()


def terrain_job(
    problem: Any,
    rasters: tuple[Raster, ...],
    parameters: Mapping[str, Any],
    spec: RunSpec,
    engine: Callable[..., Engine] = QuadtreePass,
    kind: type[RasterJob] = RasterJob,
    compile_for: Callable[[np.dtype[Any]], None] = compile_kernels,
) -> RasterJob:
    """Return the job of a problem on the terrain.

    ``parameters`` are what decides the result beside the rasters, their nodata and neighbours.
    ``compile_for`` compiles what tiles of a dtype need.
    """
    decisive = {
        "connectivity": problem.connectivity,
        "nodata": repr(problem.nodata),
        **parameters,
    }
    warm_up = partial(compile_for, rasters[0].dtype)
    return raster_job(engine, problem, rasters, decisive, warm_up, spec, kind=kind)
