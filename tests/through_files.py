"""Repeat each call of orograph with its rasters in GeoTIFFs, and compare the results.

`install` changes the package for a whole process. From then on, an operation, or a function that
takes results, runs twice: as it was called, and with each DataArray and Dataset among its arguments
written to a GeoTIFF and given as its path, or as what rioxarray opens from it. A result of one
raster is written by the second call itself, by ``out=``, and the later calls read that file. Both
calls must return the same: equal cells, attributes, tables, paths and shapes.

So a program whose every call passes also works with a GeoTIFF between all of its steps.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import rioxarray
import xarray as xr

import orograph as og
from orograph.operations.operation import Operation
from orograph.tiles.local_storage import local_path

WRITERS = ("og", "rio")
"""``og.to_file``, or ``out=`` where an operation can; and ``.rio.to_raster`` of rioxarray."""
READERS = ("path", "rioxarray", "masked")
"""The path itself, and ``rioxarray.open_rasterio`` without and with ``masked=True``."""
WAYS = tuple(f"{writer}, {reader}" for writer in WRITERS for reader in READERS)

RESULTS = {"component_table", "corridor", "least_cost_path"}
"""Functions that take the rasters of one result as a list of files."""
FUNCTIONS = (
    *("component_table", "convert_units", "corridor", "forest_lines", "least_cost_path"),
    *("path_mask", "plot", "rasterize", "roads"),
)
"""Functions, beside the operations, to which the guides pass rasters that fit a GeoTIFF."""
OPENED = {"path_mask"}
"""Functions that take what is opened, and no path."""
OF_FILES = {"AREA_OR_POINT", "scale_factor", "add_offset", "band"}
"""What rioxarray adds to the attributes."""


class Files:
    """GeoTIFFs of the rasters that a program passes from one call to the next."""

    def __init__(self, folder: Path, ways: tuple[str, ...]) -> None:
        folder.mkdir()
        self.folder = folder
        self.ways: Iterator[str] = itertools.cycle(ways)
        self.by_out: dict[int, tuple[Any, Path]] = {}
        """Files that operations have written themselves, by the array that they hold."""
        self.numbers = itertools.count()
        self.handed = 0
        """How many rasters the current call has been given in files."""
        self.masked = False
        """Whether integers have become floats, NaN where they were nodata, in the current call."""
        self.passed: dict[str, int] = {}
        """How many calls of each name had a raster in a file, and returned the same."""

    def new(self, ending: str = ".tif") -> Path:
        """Return the path of a file that does not exist."""
        return self.folder / f"{next(self.numbers)}{ending}"

    def raster(self, name: str, array: xr.DataArray, result: xr.Dataset | None) -> Any:
        """Return what a later step is given for a raster, by the next of the ways."""
        writer, reader = next(self.ways).split(", ")
        self.handed += 1
        if name == "plot":  # it draws labels and directions by their names and dtypes
            writer, reader = "og", reader.replace("masked", "rioxarray")
        if not set(array.dims) <= set(array.coords):
            reader = "path"  # to rioxarray the first cell without coordinates is at 0.5, not at 0
        _, written = self.by_out.get(id(array.variable._data), (None, None))
        path = written
        if writer == "rio":
            # rioxarray keeps no name, so that a raster is called as its file
            path = self.new("") / f"{array.name or 'raster'}.tif"
            path.parent.mkdir()
            own = array if result is None else array.assign_attrs(result.attrs | array.attrs)
            if own.dtype == bool:  # it writes none, and xarray keeps the nodata value of counts
                own = own.astype("uint8").drop_attrs(deep=False)
            own.rio.to_raster(path)
        elif path is None:
            path = self.new()
            if result is None:
                og.to_file(array, path)
            else:
                og.to_file(result, path, variable=str(array.name))
        if reader == "path" and name not in OPENED:
            return str(path)
        read: Any = rioxarray.open_rasterio(path, masked=reader == "masked")
        self.masked |= read.dtype != array.dtype and array.dtype.kind in "iu"
        return read.squeeze("band", drop=True)

    def in_files(self, name: str, value: Any) -> Any:
        """Return an argument with each raster in it replaced by one from a file."""
        if isinstance(value, xr.DataArray) and value.ndim == 2:
            return self.raster(name, value, None)
        if isinstance(value, xr.Dataset):
            grid = max((array.dims for array in value.values()), key=len)
            rasters = [array for array in value.values() if array.dims == grid]
            if len(grid) != 2 or (len(rasters) > 1 and name not in RESULTS):
                return value
            if name == "least_cost_path" and len(rasters) < len(value):
                return value  # the ends of links, a table
            files = [self.raster(name, array, value) for array in rasters]
            return files[0] if len(files) == 1 else files
        if isinstance(value, og.TerrainCost):
            return self.terrain_cost(value)
        if type(value) in (list, tuple):
            return type(value)(self.in_files(name, part) for part in value)
        if type(value) is dict:
            return {key: self.in_files(name, part) for key, part in value.items()}
        return value

    def terrain_cost(self, cost: og.TerrainCost) -> og.TerrainCost:
        """Return a cost whose rasters are in files."""
        twin = object.__new__(og.TerrainCost)
        twin.__dict__ = {key: self.in_files("", part) for key, part in cost.__dict__.items()}
        return twin

    def twice(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function as it was called, and with files; return what the first call does."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            expected = function(*args, **kwargs)
        for warning in warned:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        self.handed, self.masked = 0, False
        bound = inspect.signature(function).bind(*args, **kwargs)
        given = {key: self.in_files(name, value) for key, value in bound.arguments.items()}
        of_operation = isinstance(function, Operation) and is_one_raster(expected)
        if not (self.handed or of_operation):
            return expected
        bound.arguments.update(given)
        for target in ("out", "store"):
            if isinstance(bound.arguments.get(target), str):
                bound.arguments[target] = str(self.new(Path(bound.arguments[target]).suffix))
        out = None
        if of_operation and bound.arguments.get("out") is None:
            out = self.new()
            bound.arguments["out"] = str(out)
        where = f"{name}({', '.join(f'{key}={shown(value)}' for key, value in given.items())})"
        try:
            with warnings.catch_warnings(record=True) as again:
                warnings.simplefilter("always")
                found = function(*bound.args, **bound.kwargs)
            check_same(found, expected, self.masked)
            one, other = (texts_of(part) for part in (again, warned))
            assert one == other, f"{one} are not {other}"
        except Exception as error:
            error.add_note(where)
            raise
        if out is not None:
            (array,) = expected.data_vars.values()
            self.by_out[id(array.variable._data)] = array, out
        if self.handed:
            self.passed[name] = self.passed.get(name, 0) + 1
        return expected


def texts_of(warned: list[warnings.WarningMessage]) -> list[str]:
    """Return the warnings that users see, without the names of files."""
    seen = [w.message for w in warned if not issubclass(w.category, PendingDeprecationWarning)]
    return [re.sub(r"\S*\d+\.tif", "FILE", str(message)) for message in seen]


def shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else type(value).__name__


def is_one_raster(result: Any) -> bool:
    """Return whether a result fits a GeoTIFF as a whole."""
    arrays = list(result.values()) if isinstance(result, xr.Dataset) else []
    return len(arrays) == 1 and arrays[0].ndim == 2


def attributes_of(found: xr.DataArray | xr.Dataset) -> dict[str, Any]:
    """Return attributes in comparable form; a nodata value may be in the encoding."""
    fill = {key: found.encoding[key] for key in ("_FillValue",) if key in found.encoding}
    return {
        key: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in (fill | found.attrs).items()
        if key not in OF_FILES and value is not None
    }


def check_same(found: Any, expected: Any, masked: bool, part_of_result: bool = False) -> None:
    """Assert that two results are equal: cells to the bit, places to rounding.

    If ``masked``, results that have the dtype of an argument may be floats in place of integers.
    """
    if isinstance(expected, xr.DataArray) and isinstance(found, xr.Dataset):
        found = found[expected.name]  # of a path, functions of results return all of it
    assert type(found) is type(expected)
    if isinstance(expected, xr.Dataset):
        assert list(found.data_vars) == list(expected.data_vars)
        same_attributes(found, expected, masked)
        for name in expected.data_vars:
            check_same(found[name], expected[name], masked, part_of_result=True)
    elif isinstance(expected, xr.DataArray):
        assert found.name in (expected.name, None)  # rioxarray writes no names
        assert found.dims == expected.dims
        if masked and found.dtype != expected.dtype:
            assert (found.dtype.kind, expected.dtype.kind) == ("f", "i")
            expected = expected.where(expected != expected.attrs.get("_FillValue"))
        else:
            assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.values, expected.values)
        same_attributes(found, expected, masked, part_of_result)
        for axis in expected.dims:
            if axis in expected.coords and expected[axis].dtype.kind == "f":
                np.testing.assert_allclose(found[axis], expected[axis], rtol=1e-12)
        assert found.rio.crs == expected.rio.crs
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.cells.tolist() == other.cells.tolist()
            assert (one.cost, one.point, one.source) == (other.cost, other.point, other.source)
            np.testing.assert_allclose(one.coordinates, other.coordinates, rtol=1e-12)
            np.testing.assert_allclose(one.length, other.length, rtol=1e-9)
    elif isinstance(expected, og.VectorLayer):
        same_layers(found, expected)
    elif isinstance(expected, og.Graph):
        assert found.directed == expected.directed
        for one, other in zip(found.rows, expected.rows, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9)
    elif isinstance(expected, og.DistanceIndex):
        for path in store_of(expected).rglob("*"):
            if path.is_file() and "c" in path.parts:  # a chunk
                again = store_of(found) / path.relative_to(store_of(expected))
                assert again.read_bytes() == path.read_bytes()
    elif hasattr(expected, "equals"):
        import pandas as pd

        pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)
        assert found.attrs == expected.attrs
    elif isinstance(expected, og.Reach):
        np.testing.assert_array_equal(found.connected, expected.connected)
        np.testing.assert_array_equal(found.hops, expected.hops)


def same_attributes(found: Any, expected: Any, masked: bool, exactly: bool = True) -> None:
    """Assert that attributes are equal; a raster alone also has those of its file."""
    one, other = attributes_of(found), attributes_of(expected)
    if not exactly:
        one = {key: value for key, value in one.items() if key in other}
    if masked:
        one.pop("_FillValue", None), other.pop("_FillValue", None)
    differ = {
        key: (one.get(key), other.get(key))
        for key in one.keys() | other.keys()
        if repr(one.get(key)) != repr(other.get(key))
    }
    assert not differ, f"attributes found and expected: {differ}"


def store_of(index: og.DistanceIndex) -> Path:
    """Return the folder of an index."""
    return local_path(index._store.storage)


def same_layers(found: og.VectorLayer, expected: og.VectorLayer) -> None:
    import shapely

    assert found.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        assert found.columns[name].tolist() == column.tolist(), name
    assert found.units == expected.units
    assert shapely.equals_exact(found.geometry, expected.geometry, 1e-9).all()


def texts_and_cells(axes: Any) -> tuple[list[str], list[Any]]:
    """Return what a picture says and the cells that it shows."""
    from matplotlib.text import Text

    figure = axes.figure
    words = [text.get_text() for text in figure.findobj(Text)]
    cells = [image.get_array() for part in figure.axes for image in part.get_images()]
    return words, cells


def draw_twice(files: Files, plot: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws three times: for the page, and two pictures to compare."""
    import matplotlib.pyplot as plt

    @functools.wraps(plot)
    def drawn(result: Any, **options: Any) -> Any:
        alone = {key: value for key, value in options.items() if key != "ax"}
        files.handed = 0
        shown = result
        if isinstance(result, xr.Dataset) and result.sizes.keys() == {"y", "x"}:
            shown = result[alone.pop("variable", next(iter(result)))]
        one = files.in_files("plot", shown)
        others = {key: files.in_files("plot", value) for key, value in alone.items()}
        if files.handed:
            pictures = []
            for first, rest in ((shown, alone), (one, others)):
                _, axes = plt.subplots()
                pictures.append(texts_and_cells(plot(first, **{**rest, "ax": axes})))
                plt.close(axes.figure)
            (words, cells), (expected_words, expected_cells) = reversed(pictures)
            assert words == expected_words, f"{words} are not {expected_words}"
            for found, expected in zip(cells, expected_cells, strict=True):
                np.testing.assert_array_equal(found, expected)
            files.passed["plot"] = files.passed.get("plot", 0) + 1
        return plot(result, **options)

    return drawn


def install(folder: Path, *ways: str) -> Files:
    """Let each call of this process run a second time with its rasters in GeoTIFFs.

    ``ways`` are taken in turns; by default all `WAYS`. Pictures are not saved.
    """
    from matplotlib.figure import Figure

    Figure.savefig = lambda *_, **__: None  # type: ignore[assignment]
    files = Files(folder, ways or WAYS)
    inside = False
    call = Operation.__call__

    def checked(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return function(*args, **kwargs)
        inside = True
        try:
            return files.twice(name, function, args, kwargs)
        finally:
            inside = False

    @functools.wraps(call)
    def called(self: Operation[..., Any], *args: Any, **kwargs: Any) -> Any:
        if inside:
            return call(self, *args, **kwargs)
        of_all = Operation(self.describe, *self.estimates) if self.given else self
        return checked(self.__name__, of_all, *self.given, *args, **kwargs)

    Operation.__call__ = called  # type: ignore[method-assign]
    for name in FUNCTIONS:
        function = getattr(og, name)
        if name == "plot":
            wrapped = draw_twice(files, function)
        else:
            wrapped = functools.wraps(function)(functools.partial(checked, name, function))
        setattr(og, name, wrapped)
    return files


def report(files: Files) -> None:
    """Print how often each function was called with a GeoTIFF, as JSON in the last line."""
    sys.stdout.flush()
    print(f"\n{json.dumps(files.passed)}")


def use_exact_terrain(every: int = 1) -> None:
    """Let the guides' elevation model have sides of cells that are powers of two.

    So coordinates and transform determine each other to the bit, whoever computes one of the two.
    The grid has one of ``every`` rows and columns of the real one.
    """
    from orograph.cli import demo

    real = demo.jacksboro_fault()
    part = real.isel(y=slice(None, None, every), x=slice(None, None, every))
    side = 2.0**-10 * every
    left, top = (np.round(float(real[axis][0]) / side) * side for axis in ("x", "y"))
    y, x = top - side * np.arange(part.sizes["y"]), left + side * np.arange(part.sizes["x"])
    exact = part.assign_coords(y=y, x=x)
    demo.jacksboro_fault = lambda: exact.copy(deep=True)
