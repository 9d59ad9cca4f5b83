"""Shapes far beyond what a file holds: an answer at once, and no work begun."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from reseal import reseal

import orograph as og
from orograph.tiles.format.checksums import CHECKSUMS
from orograph.tiles.format.metadata import MARK


def vrt(folder: Path, side: int, place: str = "") -> Path:
    path = folder / "a.vrt"
    path.write_text(
        f'<VRTDataset rasterXSize="{side}" rasterYSize="{side}">{place}'
        '<VRTRasterBand dataType="Byte" band="1"/></VRTDataset>'
    )
    return path


def store(folder: Path, side: int, stated: bool = True) -> Path:
    """A store whose metadata say more than was written, with or without its chunks' checksums."""
    path = folder / "a.zarr"
    og.ingest(np.ones((100, 100)), path, tile=32)

    def enlarge(document: dict[str, Any]) -> None:
        raster = document["consolidated_metadata"]["metadata"]["elevation"]
        assert raster["shape"] == [100, 100]
        raster["shape"] = [side, side]
        if not stated:
            document["attributes"][MARK].pop(CHECKSUMS)

    reseal(path, enlarge)
    return path


def ascii_grid(folder: Path, side: int) -> Path:
    path = folder / "a.asc"
    path.write_text(
        f"ncols {side}\nnrows {side}\nxllcorner 0\nyllcorner 0\ncellsize 1\n1 2 3\n4 5 6\n"
    )
    return path


SOURCES: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "a VRT": (lambda f: vrt(f, 2 * 10**9), og.InputError, "2000000000 x .* at most 134217728"),
    "a VRT with a place": (
        lambda f: vrt(f, 2 * 10**9, "<GeoTransform>0,1,0,0,0,-1</GeoTransform>"),
        og.InputError,
        "2000000000 x .* at most 134217728 a side",
    ),
    "a Dask array": (
        lambda f: xr.DataArray(da.zeros((2**40, 3), chunks=(2**30, 3))),
        og.InputError,
        "1099511627776 x 3 cells; at most",
    ),
    "an ASCII grid": (
        lambda f: ascii_grid(f, 10**5), og.InputError, "line 8: .* 6 numbers.* 100000 x 100000"
    ),
    "a store": (lambda f: store(f, 10**6), og.DamagedStoreError, "has 4 bytes for .* chunks"),
    "a store that states no checksums": (
        lambda f: store(f, 10**6, stated=False),
        og.DamagedChunkError,
        r"c/0/1 is missing: shard \(0, 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("operation", [og.minimum_spanning_forest, og.connected_components])
def test_a_run_is_refused_at_once(operation: Callable[..., Any], kind: str, tmp_path: Path) -> None:
    make, error, message = SOURCES[kind]
    source = make(tmp_path)
    there = sorted(tmp_path.iterdir())
    for _ in range(2):  # threads of tests before may end, or a library be imported, meanwhile
        started = time.process_time()
        with pytest.raises(error, match=message):
            operation(source, out=tmp_path / "out.zarr")
        took = time.process_time() - started
        if took < 1:
            break
    assert took < 1
    assert sorted(tmp_path.iterdir()) == there


def test_a_store_with_shards_that_were_never_written_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    og.ingest(np.ones((40, 40)), path, tile=8, shard=16)
    before = og.minimum_spanning_forest(path).attrs["total_weight"]
    assert before == 40 * 40 - 1
    (path / "elevation/c/1/2").unlink()
    with pytest.raises(og.DamagedChunkError, match="c/1/2 is missing"):
        og.minimum_spanning_forest(path)
    absent = {"elevation": [[1, 2]]}
    reseal(path, lambda document: document["attributes"]["orograph"].update(absent_shards=absent))
    assert og.minimum_spanning_forest(path).attrs["vertex_count"] < 40 * 40
