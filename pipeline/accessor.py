"""Operations as methods of DataArrays: ``raster.orograph.cost_distance(sources)``.

Registered by ``import orograph``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import xarray as xr

if TYPE_CHECKING:
    from orograph.tiles.vector.layer import VectorLike


class _Accessor:
    """Base of xarray accessors: public functions as methods of an object."""

    _functions: tuple[str, ...] = ()
    """Names of the methods that are functions of the package but not operations."""
    _of_rasters = False
    """Whether the object is a raster, of which all operations on rasters are methods."""

    def __init__(self, raster: xr.DataArray | xr.Dataset) -> None:
        self._raster = raster

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from orograph.operations.operation import Operation
        from orograph.tiles.arguments import closest

        function: Any = getattr(import_module("orograph"), name, None)
        if self._of_rasters and isinstance(function, Operation) and function.takes_raster:
            return function.bind(self._raster)
        if name not in self._functions:
            # copy and pickle ask for names such as ``__deepcopy__``: no list is made for these.
            names = [] if name.startswith("_") else self._names()
            near = closest(name, names)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(names)}"
            raise AttributeError(f"orograph has no {name!r} here; {hint}")
        return functools.update_wrapper(functools.partial(function, self._raster), function)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._names()]

    def _names(self) -> list[str]:
        """Return the names of all methods, sorted."""
        from orograph.operations.operation import public_operations

        operations = public_operations() if self._of_rasters else {}
        return sorted([*self._functions, *(n for n, o in operations.items() if o.takes_raster)])


@xr.register_dataarray_accessor("orograph")  # type: ignore[no-untyped-call]
class RasterAccessor(_Accessor):
    """Operations on one raster, such as ``raster.orograph.cost_distance(sources)``.

    Of `cost_distance` the raster is the friction, of `walking_time` the elevation; of `rasterize`
    the grid.
    """

    _functions = (
        "convert_units", "explore", "forest_lines", "ingest", "plot", "to_file", "to_geotiff",
    )  # fmt: skip
    _of_rasters = True

    def rasterize(self, layer: VectorLike, **options: Any) -> xr.DataArray:
        """Return the labels of a vector layer on this grid; see `orograph.rasterize`."""
        from orograph.tiles.convert.rasterize import rasterize

        return rasterize(layer, self._raster, **options)


@xr.register_dataset_accessor("orograph")  # type: ignore[no-untyped-call]
class ResultAccessor(_Accessor):
    """Methods of results, such as ``result.orograph.least_cost_path(points)``."""

    _functions = (
        "component_table", "convert_units", "corridor", "explore", "forest_lines",
        "least_cost_path", "plot", "to_file", "to_geodataframe", "to_geotiff",
    )  # fmt: skip
