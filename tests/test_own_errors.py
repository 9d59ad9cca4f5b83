"""Whatever exception is thrown into a public function, an error of the package leaves it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import xarray as xr
from verbs import call

import orograph as og
from orograph.flow.directions import Directions

GRID = np.random.default_rng(3).integers(1, 9, (8, 9)).astype(float)
THROWN = [
    OSError("without a number"),
    OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300),
    OSError(errno.ELOOP, "Too many levels of symbolic links", "a"),
    OSError(errno.ENOSPC, "No space left on device", "a"),
    FileNotFoundError(errno.ENOENT, "No such file", "a\nb"),
    PermissionError(errno.EACCES, "Permission denied", "a"),
    ConnectionResetError("peer"),
    TimeoutError("late"),
    ValueError("two\nlines"),
    UnicodeEncodeError("ascii", "ü", 0, 1, "ordinal not in range"),
    TypeError("float16"),
    KeyError("name"),
    IndexError(),
    AttributeError("'int' object has no attribute 'x'"),
    OverflowError("int too large"),
    ZeroDivisionError("division by zero"),
    RuntimeError("NetCDF: HDF error"),
    NotImplementedError(),
    RecursionError("depth"),
    MemoryError(),
    AssertionError(),
    ImportError("no module"),
    EOFError(),
    StopIteration(),
    ExceptionGroup("several", [ValueError("one")]),
    type("ErrorOfALibrary", (Exception,), {})("its words"),
]
ERRORS = pytest.mark.parametrize("thrown", THROWN, ids=lambda error: repr(error)[:40])
NOT_OF_FILES = {"cluster", "runs"}
FUNCTIONS = {
    name: getattr(og, name)
    for name in og.__all__
    if isinstance(getattr(og, name), FunctionType | og.Operation) and name not in NOT_OF_FILES
}
METHODS = ("open", "distance_matrix", "nearest", "query", "path", "update", "update_links")


class Thrower(os.PathLike[str]):
    """A path that raises an exception whatever is done with it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __fspath__(self) -> str:
        raise self.error

    def __iter__(self) -> Any:
        raise self.error

    def __len__(self) -> int:
        raise self.error

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise self.error


def check(function: Callable[[], Any], thrown: Exception) -> None:
    """Assert that a call raises an error of the package, on one line, that names its cause."""
    with pytest.raises(og.OrographError) as caught:
        function()
    assert "\n" not in str(caught.value)
    if caught.value.__cause__ is thrown:
        assert isinstance(caught.value, OSError) == isinstance(thrown, OSError) or isinstance(
            caught.value, og.InputError
        )
        if not isinstance(thrown, OSError):
            assert type(thrown).__name__ in str(caught.value)


@ERRORS
def test_exceptions_while_arguments_are_read(thrown: Exception) -> None:
    for function in FUNCTIONS.values():
        needed = [p for p in signature(function).parameters.values() if p.default is p.empty]
        positional = [p for p in needed if p.kind is p.POSITIONAL_OR_KEYWORD]
        named = {p.name: Thrower(thrown) for p in needed if p.kind is p.KEYWORD_ONLY}
        for verb in ("", "submit", "lazy") if isinstance(function, og.Operation) else ("",):
            ask = partial(call, function, *[Thrower(thrown)] * len(positional), verb=verb, **named)
            check(ask, thrown)


@ERRORS
def test_exceptions_of_a_run(
    thrown: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise thrown

    monkeypatch.setattr(Directions, "finish", fail)
    endings: dict[str, Callable[[Any], Any]] = {
        "": lambda found: found,
        "submit": lambda run: run.result(),
        "lazy": lambda later: later.compute(),
    }
    for verb, finish in endings.items():
        for out in (None, tmp_path / f"{verb}.zarr"):
            ask = partial(call, og.flow_direction, GRID, out=out, verb=verb)
            check(partial(lambda ask, finish: finish(ask()), ask, finish), thrown)


@ERRORS
def test_exceptions_while_a_run_is_started(
    thrown: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise thrown

    monkeypatch.setattr("orograph.run.launch.Run", fail)
    check(lambda: og.flow_direction(GRID), thrown)


def test_every_public_function_has_the_door() -> None:
    for name, function in FUNCTIONS.items():
        wrapped = isinstance(function, og.Operation) or function.__code__.co_name == "wrapped"
        assert wrapped, f"{name} has no @own_errors"
    for name in METHODS:
        method = getattr(og.DistanceIndex, name)
        assert getattr(method, "__func__", method).__code__.co_name == "wrapped", name


def test_warnings_that_are_errors_and_interrupts_stay_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error in (UserWarning("w"), KeyboardInterrupt(), SystemExit()):

        def fail(*given: object, error: BaseException = error) -> None:
            raise error

        with monkeypatch.context() as change:
            change.setattr(Directions, "finish", fail)
            with pytest.raises(type(error)):
                og.flow_direction(GRID)


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    table = og.peaks(GRID)
    for ending in (".zarr", ".tif", ".nc", ".gpkg", ".csv", ".geojson"):
        for place in ("n" * 300, "loop/x", "file/x", "p/" * 3000, "none\nthere/x", "ü\udcff/x"):
            path = tmp_path / f"{place}{ending}"
            result: Any = table if ending in (".gpkg", ".csv", ".geojson") else GRID
            operation: Any = og.peaks if result is table else og.flow_direction
            for write in (
                partial(og.to_file, result, path),
                partial(call, operation, GRID, out=path),
                partial(og.open, path),
                partial(call, og.flow_direction, path),
                partial(og.roads, path, like=GRID),
            ):
                with pytest.raises(og.OrographError) as caught:
                    write()
                assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"]


@pytest.mark.parametrize(
    "raster",
    [
        xr.DataArray(GRID.astype("float16"), dims=("y", "x"), name="a"),
        *(
            xr.DataArray(GRID, dims=("y", "x"), name="a", attrs=attrs)
            for attrs in ({"a": {}}, {"a": object()}, {"a": [1, None]}, {"a/b": 1},
                          {"_FillValue": "x"})
        ),
        *(xr.DataArray(GRID, dims=("y", "x"), name=name) for name in ("a/b", 5)),
    ],
)  # fmt: skip
def test_what_netcdf_cannot_hold(raster: xr.DataArray, tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    with pytest.raises(og.InputError):
        og.to_file(raster, tmp_path / "a.nc")
    assert not list(tmp_path.iterdir())


def test_damaged_headers(tmp_path: Path) -> None:
    arrays = {"a.zarr": GRID, "a.tif": GRID, "a.nc": GRID}
    for name, array in arrays.items():
        path = tmp_path / name
        og.to_file(xr.DataArray(array, dims=("y", "x"), name="a"), path)
        header = path / "zarr.json" if path.is_dir() else path
        whole = header.read_bytes()
        for length in (0, 1, 4, 8, 40, len(whole) // 2):
            for damaged in (whole[:length], whole[:length] + b"\xff" * 64 + whole[length + 64 :]):
                header.write_bytes(damaged)
                for read in (og.open, og.flow_direction, og.read_graph, og.plot):
                    try:
                        read(path)  # type: ignore[operator]
                    except og.OrographError as error:
                        assert "\n" not in str(error)  # noqa: PT017
