"""Make rasters of arrays, DataArrays and Datasets."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.tiles.errors import InputError, OptionMissingError
from orograph.tiles.format.metadata import is_store
from orograph.tiles.grid.cf import X_NAMES, Y_NAMES, georeference_of
from orograph.tiles.grid.window import check_sides
from orograph.tiles.nodata import LARGEST_USUAL, Nodata, fill_masked, native_nodata, supported_dtype
from orograph.tiles.raster.array import ArrayRaster, LazyRaster, check_band, is_cupy, to_host
from orograph.tiles.raster.tags import STORAGE_ATTRIBUTES
from orograph.tiles.raster.version import absolute, is_remote
from orograph.tiles.store.raster import StoreRaster

if TYPE_CHECKING:
    import xarray as xr

_UNNAMED = "__xarray_dataarray_variable__"
"""Name that xarray gives a DataArray without a name in a file."""
Opened = ArrayRaster | LazyRaster | StoreRaster


def choose_variable(
    dataset: xr.Dataset, what: str, variable: str | None, opened: str = "dataset"
) -> Hashable:
    """Return the name of a Dataset's only raster, or check a given name.

    ``opened`` is an expression that yields the Dataset, for the message.
    """
    names = {str(name): name for name, array in dataset.data_vars.items() if array.ndim >= 2}
    if variable is None:
        if not names:
            raise InputError(f"{what} has 0 rasters (none); open another file")
        if len(names) > 1:
            message = f"{what} has {len(names)} rasters ({', '.join(names)})"
            first = next(iter(names))
            raise OptionMissingError(
                *(message, "variable", f"pass variable={first!r}"),
                *(f"pass one of them, such as {opened}[{first!r}]", list(names)),
            )
        return next(iter(names.values()))
    if str(variable) not in names:
        raise InputError(f"{what} has no raster {variable!r}; it has {', '.join(names) or 'none'}")
    return names[str(variable)]


def from_dataset(
    dataset: xr.Dataset, what: str, band: int | None, nodata: float | None, variable: str | None
) -> Opened:
    """Return the raster of one variable of a Dataset."""
    return from_dataarray(dataset[choose_variable(dataset, what, variable)], band, nodata)


def _check_shape(shape: tuple[int, ...], what: str) -> None:
    if len(shape) != 2:
        raise InputError(
            f"{what}: {len(shape)} dimensions {shape}; a raster has 2, (y, x): "
            "select one layer with .isel(...)"
        )
    check_sides(shape, what)
    if min(shape) == 0:
        raise InputError(
            f"{what}: {shape[0]} x {shape[1]} cells; at least 1 x 1 is needed: "
            "did a selection leave nothing?"
        )


def _pick_band(count: int, band: int | None, what: str) -> int:
    if band is None:
        if count > 1:
            raise OptionMissingError(
                *(f"{what}: {count} bands", "band", "pass band= with the number of one, from 1"),
                "pass one layer, such as its [0]",
            )
        band = 1
    return check_band(band, count, what) - 1


def from_array(source: Any, band: int | None, nodata: float | None) -> Opened:
    """Return the raster of an array, which may be masked or on a GPU."""
    what = "array"
    if source.ndim == 3:
        source = source[_pick_band(source.shape[0], band, what)]
    elif band not in (None, 1):
        raise InputError(f"{what}: band={band}, but it has one layer only; leave band= out")
    _check_shape(source.shape, what)
    dtype = supported_dtype(source.dtype, what)
    rule = _rule(nodata, (), dtype, what)
    if isinstance(source, np.ma.MaskedArray):
        cells, value = fill_masked(source, dtype, rule.value, "masked array")
        return ArrayRaster(cells, dtype, value, rule=rule)
    return ArrayRaster(to_host(source), dtype, rule.value, on_gpu=is_cupy(source), rule=rule)


def from_dataarray(source: xr.DataArray, band: int | None, nodata: float | None) -> Opened:
    """Return the raster of a DataArray: in memory, lazy, or of the store it was opened from."""
    what = f"DataArray {source.name!r}" if source.name else "DataArray"
    if source.ndim == 3:
        layers = _dimension_of_layers(source)
        at = _pick_band(source.sizes[layers], band, f"{what} ({layers})")
        source = source.isel({layers: at}, drop=True)
    elif band not in (None, 1):
        raise InputError(f"{what}: band={band}, but it has one layer only; leave band= out")
    _check_shape(source.shape, what)
    dtype = supported_dtype(source.dtype, what)
    for key, neutral in (("scale_factor", 1), ("add_offset", 0)):
        if np.any(source.attrs.get(key, neutral) != neutral):
            raise InputError(
                f"{what}: its attribute {key} is {source.attrs[key]}: cells are packed; open the "
                "file with mask_and_scale=True"
            )
    rule = _rule(nodata, _declared_nodata(source), dtype, what)
    value = rule.value
    place = georeference_of(source)
    place.check_shape((source.shape[0], source.shape[1]), what)
    # xarray names an array of a Dask array by the key of that one, which is not a name.
    task_name = source.data.name if source.chunks else None
    name = None if source.name in (None, task_name, _UNNAMED) else str(source.name)
    attrs = {str(key): item for key, item in source.attrs.items() if key not in STORAGE_ATTRIBUTES}
    stored = _as_store(source, value)
    if stored is not None:
        return stored
    if _on_cluster(source):
        raise InputError(
            f"{what}: its chunks are held by a cluster (.persist()), where a task of a run cannot "
            "ask for them; pass it as it was before .persist(), or write it with .to_zarr(...) and "
            "pass the path"
        )
    # xarray counts only arrays of NumPy as being in memory.
    held = source.variable._in_memory or hasattr(source.variable._data, "__cuda_array_interface__")
    if held:
        on_gpu = is_cupy(source.data)
        cells = to_host(source.data)
        if nodata is None and _is_masked(source):
            cells, rule = rule.unify(cells), Nodata(value)  # once, and not for each window
        return ArrayRaster(cells, dtype, value, place, name, attrs, on_gpu=on_gpu, rule=rule)
    file = source.encoding.get("source")
    known = isinstance(file, str) and (is_remote(file) or os.path.exists(file))
    path = absolute(str(file)) if known else ""
    on_gpu = is_cupy(source.variable._data)
    lazy = source.variable
    return LazyRaster(lazy, dtype, value, place, name, attrs, path=path, on_gpu=on_gpu, rule=rule)


def _dimension_of_layers(source: xr.DataArray) -> Hashable:
    """Return which of three dimensions counts bands, times or levels."""
    others = [name for name in source.dims if str(name).lower() not in X_NAMES | Y_NAMES]
    return others[0] if len(others) == 1 else source.dims[0]


def _on_cluster(source: xr.DataArray) -> bool:
    """Return whether the chunks of a Dask array are futures of a distributed client.

    Types are compared by name, since this folder does not import Dask.
    """
    if not source.chunks:
        return False
    for layer in getattr(source.data.dask, "layers", {}).values():
        if type(layer).__name__ == "MaterializedLayer":
            kind = type(next(iter(layer.values()), None))
            if kind.__name__ == "Future" and kind.__module__.startswith("distributed"):
                return True
    return False


def _rule(
    nodata: float | None, declared: Iterable[object], dtype: np.dtype[Any], what: str
) -> Nodata:
    """Return which cells are nodata: by the argument, if it is given, else as declared."""
    given = native_nodata(nodata, dtype, what)
    return Nodata.of(declared if given is None else (given,), dtype, what)


def _is_masked(source: xr.DataArray) -> bool:
    """Return whether nodata cells were made NaN when a DataArray was opened."""
    return source.dtype.kind == "f" and source.encoding.get("_FillValue") is not None


def _declared_nodata(source: xr.DataArray) -> list[Any]:
    """Return the nodata values that a DataArray declares, by the rules of xarray and rioxarray."""
    if source.dtype.kind == "b":
        return []  # xarray keeps attributes in comparisons: those of the values compared
    if _is_masked(source):
        # What differs from a huge value in its last digits only was not masked with it.
        encoded = (source.encoding.get(key) for key in ("_FillValue", "missing_value"))
        stated = [float(value) for each in encoded if each is not None for value in np.ravel(each)]
        return [np.nan, *(value for value in stated if abs(value) > LARGEST_USUAL)]
    declared = [source.attrs[key] for key in ("_FillValue", "missing_value") if key in source.attrs]
    declared = [value for each in declared for value in np.ravel(each)]
    if not declared and "rioxarray" in sys.modules:  # its accessor may hold one (rio.set_nodata)
        with suppress(OverflowError, ValueError):  # one that no cell has
            declared = [source.rio.nodata]
    if not declared:
        declared = [source.attrs.get("fill_value", source.attrs.get("nodata"))]
    return [value for value in declared if value is not None]


def _as_store(source: xr.DataArray, nodata: int | float | None) -> StoreRaster | None:
    """Return the store of an unchanged DataArray that `open_dataset` returned, else None.

    The store is read without Dask.
    """
    from orograph.tiles.store.lazy import lazy_name

    path, chunks = source.encoding.get("source"), source.chunks
    if not chunks or not path:
        return None
    storage = source.encoding.get("storage", path)
    if not is_store(storage):
        return None
    try:
        raster = StoreRaster(storage, str(source.name))
    except InputError:
        return None
    # The name of a Dask array identifies its cells: any change by the user has changed it.
    _, kind, _ = f"{source.data.name}--".split("-", 2)
    # one that labels declare for rioxarray only, and no cell has, is not the nodata of the store
    declared = raster.nodata, raster.attrs.get("nodata")
    same = source.data.name == lazy_name(raster, kind) and repr(nodata) in map(repr, declared)
    return raster if same and georeference_of(source) == raster.georeference else None
