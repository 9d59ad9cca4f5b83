"""Operations as methods of DataArrays: ``raster.orograph.cost_distance(sources)``.

Registered by ``import orograph``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import xarray as xr

OF_RASTERS = (
    "connected_components",
    "cost_distance",
    "depressions",
    "fill_depressions",
    "flood_level",
    "forest_lines",
    "hop_distance",
    "ingest",
    "minimum_spanning_forest",
    "pass_elevation",
    "peaks",
    "plot",
    "st_connected",
    "to_geotiff",
)
OF_RESULTS = (
    "component_table",
    "corridor",
    "forest_lines",
    "least_cost_path",
    "plot",
    "to_geotiff",
)


class _Accessor:
    """Public functions whose first argument is the object."""

    names: tuple[str, ...] = ()

    def __init__(self, raster: Any) -> None:
        self._raster = raster

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in self.names:
            raise AttributeError(f"orograph has no {name!r} here; it has {', '.join(self.names)}")
        from orograph.operation import Operation

        function = getattr(import_module("orograph"), name)
        if isinstance(function, Operation):
            return function.bind(self._raster)
        return functools.update_wrapper(functools.partial(function, self._raster), function)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]


@xr.register_dataarray_accessor("orograph")  # type: ignore[no-untyped-call]
class RasterAccessor(_Accessor):
    """The operations on one raster, such as ``raster.orograph.cost_distance(sources)``.

    Of `cost_distance` the raster is the friction; of `rasterize` the grid.
    """

    names = OF_RASTERS

    def rasterize(self, layer: Any, **options: Any) -> xr.DataArray:
        """Return the labels of a vector layer on this grid; see `orograph.rasterize`."""
        from orograph.tiles.convert.rasterize import rasterize

        return rasterize(layer, self._raster, **options)


@xr.register_dataset_accessor("orograph")  # type: ignore[no-untyped-call]
class ResultAccessor(_Accessor):
    """Methods of results, such as ``result.orograph.least_cost_path(points)``."""

    names = OF_RESULTS
