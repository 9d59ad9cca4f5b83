"""Errors of a file system that is away for a while: tried again, others not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.tiles import patience
from orograph.tiles.errors import DamagedChunkError
from orograph.tiles.grid.window import Window
from orograph.tiles.local_storage import LocalStorage
from orograph.tiles.patience import patiently
from orograph.tiles.raster.raster import open_raster

CELLS = np.arange(64.0).reshape(8, 8)
Slept = list[float]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Slept:
    """The pauses that were made; no time passes."""
    pauses: Slept = []
    monkeypatch.setattr(patience.time, "sleep", pauses.append)
    return pauses


def failing(times: int, number: int, do: Callable[..., Any]) -> Callable[..., Any]:
    """A function that fails so many times first."""
    left = iter(range(times))

    def call(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is not None:
            raise OSError(number, os.strerror(number))
        return do(*arguments, **options)

    return call


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_what_may_pass_is_tried_again(slept: Slept, number: int) -> None:
    assert patiently(failing(3, number, lambda: "done")) == "done"
    assert slept == list(patience.PAUSES[:3])
    slept.clear()
    with pytest.raises(OSError, match=os.strerror(number)):
        patiently(failing(99, number, lambda: "done"))
    assert slept == list(patience.PAUSES)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOSPC, errno.EACCES])
def test_what_will_not_pass_is_raised_at_once(slept: Slept, number: int) -> None:
    with pytest.raises(OSError, match=os.strerror(number)):
        patiently(failing(1, number, lambda: "done"))
    assert slept == []


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("open", lambda place: place.open("a/b").range(0, 3).tobytes()),
        ("preadv", lambda place: place.open("a/b").range(0, 3).tobytes()),
        ("stat", lambda place: place.state("a/b").size),
        ("replace", lambda place: place.put("a/b", b"new")),
        ("replace", lambda place: place.move("a/b", "c")),
        ("link", lambda place: place.create("a/c", b"new")),
        ("unlink", lambda place: place.delete("a/b")),
        ("listdir", lambda place: place.names("a")),
    ],
    ids=["open", "read", "state", "put", "move", "create", "delete", "names"],
)
def test_objects_of_a_file_system_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: Slept, function: str, use: Any
) -> None:
    here, there = LocalStorage(tmp_path / "here"), LocalStorage(tmp_path / "there")
    for place in (here, there):
        place.claim()
        place.put("a/b", b"old")
    monkeypatch.setattr(os, function, failing(2, errno.ESTALE, getattr(os, function)))
    found = use(there)
    assert slept == list(patience.PAUSES[:2])
    assert found == use(here)
    contents = [{key: place.get(key) for key, _ in place.objects()} for place in (here, there)]
    assert contents[0] == contents[1]


def test_a_handle_that_became_stale_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: Slept
) -> None:
    place = LocalStorage(tmp_path)
    place.put("a", b"old")
    stale: set[int] = set()
    read = os.preadv

    def preadv(file: int, *rest: Any) -> int:
        if file in stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(file, *rest)

    with place.open("a") as reader:
        stale.add(reader._file)  # type: ignore[attr-defined]
        monkeypatch.setattr(os, "preadv", preadv)
        # the number of a closed handle would be given again
        monkeypatch.setattr(os, "close", lambda file: None)
        assert reader.range(0, 3).tobytes() == b"old"
        place.put("a", b"new")
        stale.add(reader._file)  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="has been replaced"):
            reader.range(0, 3)


def test_a_shard_that_is_away_for_some_seconds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    og.ingest(CELLS, tmp_path / "a.zarr", tile=4, shard=4)
    shard = tmp_path / "a.zarr" / "elevation" / "c" / "0" / "1"
    away = shard.rename(tmp_path / "away")
    slept: Slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 6:
            away.rename(shard)

    monkeypatch.setattr(patience.time, "sleep", sleep)
    raster = open_raster(tmp_path / "a.zarr")
    np.testing.assert_array_equal(raster.read(Window(0, 0, 8, 8)), CELLS)
    assert len(slept) == 6


def test_shards_that_do_not_come_are_waited_for_once(tmp_path: Path, slept: Slept) -> None:
    og.ingest(CELLS, tmp_path / "a.zarr", tile=4, shard=4)
    for name in ("0", "1"):
        (tmp_path / "a.zarr" / "elevation" / "c" / "0" / name).unlink()
    raster = open_raster(tmp_path / "a.zarr")
    for x in (0, 4):
        with pytest.raises(DamagedChunkError, match="is missing"):
            raster.read(Window(0, x, 4, 4))
    assert slept == list(patience.PAUSES)


def test_a_raster_file_that_is_away_for_some_seconds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = og.to_geotiff(CELLS, tmp_path / "a.tif")
    raster = open_raster(file)
    away = file.rename(tmp_path / "away")
    slept: Slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            away.rename(file)

    monkeypatch.setattr(patience.time, "sleep", sleep)
    np.testing.assert_array_equal(raster.read(Window(0, 0, 8, 8)), CELLS)
    file.unlink()
    with pytest.raises(DamagedChunkError, match="cannot be read"):
        raster.read(Window(0, 0, 8, 8))
