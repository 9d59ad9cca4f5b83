"""Values that no argument of a kind can be used with, for tests of what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr

NAN, INF, HUGE = math.nan, math.inf, 2**70


class Thing:
    """What is nothing that anyone could mean."""

    def __repr__(self) -> str:
        return "<a thing>"


def generator() -> Iterator[str]:
    """Yield what is no number."""
    yield "x"


# of none of the kinds below
JUNK: tuple[Any, ...] = (Thing(), {}, {"x": 1}, ["a", "b"], [[1], [1, 2]], 1j, object, print, b"x")
ARRAYS: tuple[Any, ...] = (
    np.array(["1", "2"]),
    np.array([1j, 2j]),
    np.array([Thing(), None], object),
)


@dataclass(frozen=True)
class Kind:
    """Values of which each is refused."""

    make: Callable[[Path], list[Any]]
    """From an empty folder; called for each test, as a generator can be used once."""
    shows: bool = True
    """Whether a message repeats a value that is a number, a truth value or a short text."""
    errors: tuple[str, ...] = ("InputError",)
    also: str = ""
    """Other words for the parameter, as alternatives of a regular expression."""

    def values(self, folder: Path) -> list[Any]:
        """Return the values."""
        return self.make(folder)


def kind(*values: Any, optional: bool = False, shows: bool = True, junk: bool = True) -> Kind:
    """Return a kind of which these values, None and what is of no kind are refused."""

    def make(folder: Path) -> list[Any]:
        common = [*JUNK, *ARRAYS, generator()] if junk else []
        return [*values, *common, *(() if optional else (None,))]

    return Kind(make, shows)


FLAG_VALUES: tuple[Any, ...] = (
    *("yes", "", 0, 1, 1.0, NAN, [True]),
    *(np.array([True, False]), np.int64(1)),
)
FLAG = kind(*FLAG_VALUES)


def integer(least: int, most: int = HUGE - 1, *, optional: bool = False) -> Kind:
    """Return the kind of whole numbers within two bounds."""
    outside = (least - 1, most + 1, -HUGE, HUGE)
    alike = (True, False, np.True_, "1", "", float(least), 1.5, np.float64(1), NAN, INF, [1], (1,))
    return kind(*outside, *alike, optional=optional)


def number(*outside: float, optional: bool = False) -> Kind:
    """Return the kind of numbers; ``outside`` are some beyond its bounds."""
    alike = (True, np.True_, "1", "", [1.0, 2.0, 3.0], 10**400, np.datetime64("2020"))
    return kind(*outside, *alike, optional=optional)


def choice(*unknown: Any, optional: bool = False) -> Kind:
    """Return the kind of a choice."""
    alike = ("", "x", 0, -1, 1.5, 8.0, True, NAN, HUGE, ["max"], ("cost",), np.array(["cost"]))
    return kind(*alike, *unknown, optional=optional)


DTYPE = choice("float16", "complex128", "U5", "O", np.complex128, np.dtype(object), bool, "f8,(")


def _outputs(folder: Path) -> list[Any]:
    """Return paths at which no store can be written."""
    (folder / "file").write_text("no store")
    (folder / "folder").mkdir()
    (folder / "folder" / "mine.txt").write_text("mine")
    return [
        *("", "\0", str(folder / "a\0b"), 5, 1.5, True, NAN, HUGE, b"bytes", *JUNK, generator()),
        *(folder / ("x" * 245), folder / ("ü" * 120), folder / "none" / "a.zarr"),
        *("s3://bucket/a.zarr", "file://", "nonsense://a", folder / "file" / "a.zarr"),
        *(folder / "file", folder / "folder"),
        *(folder / "peaks.shp", folder / "x.KML", folder / "m.xlsx", folder / "a.1" / "x.grib"),
        *(folder / "a.zarr.zip", f"file://{folder}/x.feather"),
    ]


CRS = kind(
    *("", "x", "EPSG:99999", 5, -1, 1.5, True, NAN, [], {"proj": "x"}), optional=True, shows=False
)
OUT = Kind(_outputs, errors=("InputError", "StoreExistsError"))
LAYER_OUT = Kind(
    lambda folder: [
        folder / "stores.zarr",
        *(out for out in _outputs(folder) if getattr(out, "suffix", "") != ".shp"),
    ],
    errors=("InputError", "StoreExistsError"),
)


def _new_files(folder: Path) -> list[Any]:
    """Return paths at which no file can be written."""
    return [
        *("", "\0", str(folder / "a\0b"), 5, 1.5, True, NAN, HUGE, b"bytes", *JUNK, None),
        *(folder / ("x" * 256), folder / "none" / "a.tif", folder),
        *(folder / "a.png", folder / "a.nc", folder / "a.zip"),
    ]


FILE = Kind(_new_files, errors=("InputError", "StoreExistsError"))
RESULT_FILE = Kind(
    lambda folder: [value for value in _new_files(folder) if value != folder / "a.nc"],
    errors=("InputError", "StoreExistsError"),
)


def _stores(folder: Path) -> list[Any]:
    """Return paths at which no store of ours is."""
    (folder / "file").write_text("no store")
    (folder / "folder").mkdir()
    return [
        *("", "\0", 5, 1.5, True, NAN, HUGE, b"bytes", *JUNK, generator(), None),
        *(folder / "none.zarr", folder / "file", folder / "folder", folder / ("x" * 300)),
        *("s3://bucket/a.zarr", "nonsense://a"),
    ]


STORE = Kind(_stores)


def _several() -> xr.Dataset:
    """Return two rasters of names."""
    grid = xr.DataArray(np.ones((3, 4)), {"y": [3.0, 2, 1], "x": [1.0, 2, 3, 4]}, ("y", "x"))
    return xr.Dataset({"a": grid, "b": grid})


def _layers() -> xr.DataArray:
    """Return two bands."""
    grid = _several()["a"]
    return xr.concat([grid, grid], "band").assign_coords(band=[1, 2])


@cache
def _files_of_several() -> dict[Path, bytes]:
    """Return files of two rasters or bands: written once, as that takes a tenth of a second."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _several().to_netcdf(folder / "two.nc")
        _several().to_zarr(folder / "two.zarr", consolidated=False)
        _layers().rio.to_raster(folder / "two.tif")
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder): path.read_bytes() for path in files}


def _undecided(folder: Path) -> list[Any]:
    """Return what can be read with nodata=, band= or variable= alone, if it can be read."""
    several, layers = _several(), _layers()
    for name, content in _files_of_several().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    masked = np.ma.masked_equal(np.arange(12).reshape(3, 4), 5)
    return [masked, several, layers, *(folder / f"two.{kind}" for kind in ("nc", "zarr", "tif"))]


def _rasters(folder: Path) -> list[Any]:
    """Return what is no raster."""
    (folder / "file.tif").write_text("no raster")
    (folder / "folder").mkdir()
    (folder / "empty").write_text("")
    grid = np.ones((3, 4))
    degrees = xr.DataArray(grid, {"y": [1.0, 2, 3], "x": [1.0, 2, 3, 4]}, ("y", "x"))
    junk_crs = degrees.assign_coords(spatial_ref=xr.DataArray(0, attrs={"crs_wkt": "nonsense"}))
    empty_name = degrees.assign_coords(
        spatial_ref=xr.DataArray(0, attrs={"grid_mapping_name": "nonsense"})
    )
    return [
        *(5, 1.5, True, NAN, HUGE, [[1, 2], [3, 4]], *JUNK, generator(), "", "\0"),
        *(folder / "none.tif", folder / "file.tif", folder / "folder", folder / "empty"),
        *(folder / ("x" * 300), "s3://bucket/a.zarr", "nonsense://a/b"),
        *(np.ones(3), np.ones((2, 3, 4)), np.ones((0, 3)), np.array(5), np.array([["a", "b"]])),
        *(np.array([[1j, 2]]), np.array([[Thing(), None]]), np.ones((2, 2), "M8[s]")),
        *(np.ones((2, 2), "i4,f4"), xr.Dataset(), xr.DataArray(np.ones((2, 2), "U1"))),
        *(junk_crs, empty_name, degrees.assign_coords(x=[1.0, NAN, 3, 4])),
        *(degrees.assign_coords(y=[1.0, 3, 2]), degrees.assign_coords(x=list("abcd"))),
        *_undecided(folder),
    ]


RASTER = Kind(_rasters, shows=False)
OPTIONAL_RASTER = Kind(
    lambda folder: [value for value in _rasters(folder) if value is not None], shows=False
)

BARRIERS = Kind(
    lambda folder: [
        *[value for value in _rasters(folder) if value is not None],
        *(np.ones((4, 3)), xr.DataArray(np.ones((2, 2))), folder / "none.gpkg"),
        *([folder / "none.gpkg"], (np.ones((3, 4)), -1), [(np.ones((3, 4)), NAN)]),
        *([np.ones((3, 4)), np.ones((4, 3))], [(np.ones((3, 4)), True)], [np.ones((3, 4)), None]),
    ],
    shows=False,
)


def _points(folder: Path) -> list[Any]:
    """Return what is no point of a grid of 3 x 4 cells."""
    return [
        *(5, 1.5, True, NAN, HUGE, *JUNK, generator(), "", "x", "1,2", None, [], [[]], ()),
        *([1], [1, 2, 3], [[1, 2, 3]], [("1", "2")], [("a", "b")], [(1, None)], [(NAN, 1)]),
        *([(1, INF)], [(1j, 1)], [(True, False)], [{"x": 1}], [(9, 9)], (-1, 0), [(0, HUGE)]),
        *([(1, 2), (3,)], [[(1, 2)], [(1, 2)]], np.array([[1, 2]], object).astype("S1")),
        *(np.array([["1", 2]], object), np.array([[1j, 2]]), np.array([[True, False]])),
        *(np.array([["2020", "2021"]], "M8[Y]"), np.ones((2, 2, 2)), np.empty((0, 2))),
    ]


POINTS = Kind(_points, shows=False)
OPTIONAL_POINTS = Kind(lambda folder: [v for v in _points(folder) if v is not None], shows=False)
POINTS_OR_RASTER = Kind(
    lambda folder: [
        *[v for v in _points(folder) if not isinstance(v, str)],
        *(folder / "none.tif", np.zeros((3, 4)), np.ones((4, 3)), xr.DataArray(np.ones((2, 2)))),
        *(xr.DataArray(np.ones((3, 4), "U1")), "", "\0"),
    ],
    shows=False,
)
OPTIONAL_POINTS_OR_RASTER = Kind(
    lambda folder: [v for v in POINTS_OR_RASTER.values(folder) if v is not None], shows=False
)

SNAP = kind(None, -1, 1.5, 1.0, NAN, INF, "1", "", "yes", HUGE, -HUGE, [1], np.float64(1))
NODATA = number(optional=True)
CLIENT = kind("tcp://127.0.0.1:8786", "", 5, True, NAN, [], optional=True, shows=False)
STORAGE_OPTIONS = Kind(
    lambda folder: [
        *(5, 1.5, True, NAN, "region=x", [("region", "x")], ["region"], Thing(), print, 1j),
        *({"regoin": "x"}, {1: "x"}, {"region": 5}, {"region": ""}, {"region": None}),
        *({"skip_signature": "maybe"}, {"skip_signature": 1.5}, {"bucket": "other"}),
        *({"conditional_put": "disabled"}, {"secret_access_key": b"x"}, {"x": 1}),
    ],
    shows=False,
)


def brief(value: Any) -> str:
    """Return a value in a few letters."""
    return " ".join(repr(value).split())[:60]
