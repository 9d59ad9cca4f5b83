"""Arrays, groups and stores of zarr-python as rasters."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import orograph as og
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import LazyRaster, StoreRaster, open_raster

GRID = np.random.default_rng(4).integers(1, 9, (11, 7)).astype(np.float32)
OPTIONS: dict[str, Any] = {"tile": 4, "shard": 4}
PLACED = xr.DataArray(
    GRID, {"y": 5.0 - np.arange(11) * 2, "x": np.arange(7) * 2.0}, ("y", "x"), "z", {"units": "m"}
)

STORES: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: MemoryStore(),
    "folder": LocalStore,
    "store of another package": lambda folder: WrapperStore(LocalStore(folder)),
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("what", ["array", "group", "store"])
def test_a_raster_is_that_of_the_data_array(tmp_path: Path, store: str, what: str) -> None:
    place = STORES[store](tmp_path / "z.zarr")
    PLACED.to_dataset().to_zarr(place, zarr_format=3, consolidated=False)
    group = zarr.open_group(place, mode="r")
    source = {"array": group["z"], "group": group, "store": place}[what]
    raster, expected = open_raster(source), open_raster(PLACED)
    assert (raster.shape, raster.dtype, raster.name) == ((11, 7), np.float32, "z")
    assert raster.georeference == expected.georeference
    assert raster.attrs == expected.attrs
    again = pickle.loads(pickle.dumps(raster))
    np.testing.assert_array_equal(again.read(Window(2, 1, 7, 5)), GRID[2:9, 1:6])
    found = og.cost_distance(source, [(4, -1)], out=tmp_path / "out.zarr", **OPTIONS)
    xr.testing.assert_identical(
        found.load().drop_encoding(), og.cost_distance(PLACED, [(4, -1)], **OPTIONS)
    )


@pytest.mark.parametrize("names", [("row", "col"), None])
def test_an_array_alone_is_a_raster(names: tuple[str, str] | None) -> None:
    array = zarr.create_array(
        MemoryStore(), shape=GRID.shape, chunks=(4, 4), dtype="f4", dimension_names=names
    )
    array[...] = GRID
    raster = open_raster(array)
    np.testing.assert_array_equal(raster.read(Window(0, 0, 11, 7)), GRID)
    dims = (raster.georeference.y_name, raster.georeference.x_name)
    assert dims == (names or ("y", "x"))
    one, two = (og.minimum_spanning_forest(cells, **OPTIONS) for cells in (array, GRID))
    np.testing.assert_array_equal(one["edges"].values, two["edges"].values)
    layers = zarr.create_array(MemoryStore(), shape=(2, *GRID.shape), dtype="f4")
    layers[1] = GRID
    found = open_raster(layers, band=2).read(Window(0, 0, 11, 7))
    np.testing.assert_array_equal(found, GRID)


def test_what_belongs_to_a_store_of_ours_is_read_as_such(tmp_path: Path) -> None:
    og.ingest(GRID, tmp_path / "dem.zarr", tile=4)
    for source in (
        zarr.open_group(tmp_path / "dem.zarr", mode="r"),
        zarr.open_group(tmp_path / "dem.zarr", mode="r")["elevation"],
        zarr.open_array(tmp_path / "dem.zarr" / "elevation", mode="r"),
        LocalStore(tmp_path / "dem.zarr"),
    ):
        raster = open_raster(source)
        assert isinstance(raster, StoreRaster)
        assert raster.path == str(tmp_path / "dem.zarr")
        with pytest.raises(InputError, match="sources are never written"):
            og.ingest(source, tmp_path / "dem.zarr" / "a")


def test_a_fingerprint_is_of_the_cells(tmp_path: Path) -> None:
    seen = []
    for store in (MemoryStore(), LocalStore(tmp_path / "z.zarr")):
        PLACED.to_dataset().to_zarr(store, zarr_format=3, consolidated=False)
        group = zarr.open_group(store)
        before = open_raster(group)
        assert isinstance(before, LazyRaster)
        assert before.fingerprint() == open_raster(group).fingerprint()
        seen.append(before.fingerprint())
        group["z"][3, 3] = 100
        assert open_raster(group).fingerprint() not in seen


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda s: s, "no array or group", id="an empty store"),
        pytest.param(lambda s: zarr.create_group(s), "0 rasters", id="an empty group"),
        pytest.param(
            lambda s: zarr.create_array(s, shape=(4,), dtype="f4"), r"shape \(4,\)", id="a line"
        ),
        pytest.param(
            lambda s: zarr.create_array(s, shape=(4, 4), dtype="c8"), "complex64", id="complex"
        ),
    ],
)
def test_what_is_no_raster_is_refused(make: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(InputError, match=f"source: .*{says}"):
        open_raster(make(MemoryStore()))
    array = zarr.create_array(MemoryStore(), shape=(4, 4), dtype="f4")
    with pytest.raises(InputError, match="it is a single array"):
        open_raster(array, variable="z")
