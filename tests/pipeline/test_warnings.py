"""Where an input or a result is not what one would expect, one warning says so."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import rasterio
import shapely
import xarray as xr
from affine import Affine
from distributed import Client

import orograph as og

GROUND = np.random.default_rng(0).random((30, 20)) * 100
FRICTION = GROUND + 1
SOURCES = np.zeros(GROUND.shape, np.int32)
SOURCES[3, 3] = 1


def flow() -> xr.DataArray:
    return og.flow_direction(GROUND)["direction"]


def accumulation() -> xr.DataArray:
    return og.flow_accumulation(flow())["accumulation"]


def filled() -> xr.DataArray:
    return og.fill_depressions(GROUND)["filled"]


def roads(*classes: str | None, first: int = 0) -> og.VectorLayer:
    lines = [shapely.LineString([(0, n), (9, n)]) for n in range(first, first + len(classes))]
    return og.VectorLayer(np.array(lines), {"highway": np.array(classes, object)}, None)


WARNS: dict[str, tuple[Callable[[], Any], str]] = {
    "friction and sources swapped": (
        lambda: og.cost_distance(SOURCES, FRICTION),
        "sources: all cells are sources",
    ),
    "all cells are sources of hops": (
        lambda: og.hop_distance(SOURCES == 0, GROUND + 1),
        "sources: all cells are sources",
    ),
    "all cells are sources of a walk": (
        lambda: og.walking_time(GROUND, SOURCES + 1, cell_size=30),
        "sources: all cells are sources",
    ),
    "an accumulation as streams": (
        lambda: og.height_above_drainage(filled(), flow(), accumulation()),
        "streams: all cells are streams, as those of an accumulation",
    ),
    "an accumulation to which water flows": (
        lambda: og.flow_distance(flow(), accumulation()),
        "to: all cells are streams, as those of an accumulation",
    ),
    "no streams": (
        lambda: og.height_above_drainage(filled(), flow(), accumulation() > 1e9),
        "streams: no cell is a stream",
    ),
    "no streams to which water flows": (
        lambda: og.flow_distance(flow(), accumulation() > 1e9),
        "to: no cell is a stream",
    ),
    "no links": (lambda: og.streams(flow(), accumulation(), 1e9), "no link was found"),
    "ground that was not filled": (
        lambda: og.height_above_drainage(GROUND, flow(), accumulation() > 20),
        r"\d+ of 600 cells lie below the stream .*fill_depressions",
    ),
    "links without a line": (
        lambda: og.stream_lines(og.streams(flow(), accumulation(), 5)),
        r"\d+ of \d+ links have no line",
    ),
    "roads left out": (
        lambda: og.roads(roads("primary", "track", "footway", "track", None), like=GROUND),
        r"lines: 4 of 5 are left out, .*: track \(2\), footway \(1\), none \(1\); pass speed=",
    ),
    "roads outside of the raster": (
        lambda: og.roads(
            roads("primary", "track", "track", None, first=29), like=GROUND, cost="length"
        ),
        r"lines: 3 of 4 are left out, .*outside of the raster.*: track \(2\), none \(1\)$",
    ),
}


@pytest.mark.parametrize("case", WARNS)
def test_one_warning_says_what_is_odd_and_points_to_the_call(case: str) -> None:
    call, says = WARNS[case]
    with pytest.warns(RuntimeWarning, match=says) as found:
        call()
    assert [warning.filename for warning in found] == [__file__]


FINE: dict[str, Callable[[], Any]] = {
    "zones on part of the grid": lambda: og.cost_distance(FRICTION, (GROUND > 50) * 1),
    "one cell": lambda: og.cost_distance(np.ones((1, 1)), np.ones((1, 1), int)),
    "all cells with initial costs": lambda: og.cost_distance(
        FRICTION, np.arange(1, 601).reshape(30, 20), initial_cost={1: 5.0}
    ),
    "streams of filled ground": lambda: og.height_above_drainage(
        filled(), flow(), accumulation() > 20
    ),
    "a mask of ones": lambda: og.height_above_drainage(filled(), flow(), accumulation() > 0),
    "roads left out by name": lambda: og.roads(
        roads("primary", "track"), like=GROUND, speed={"primary": 50, "track": None}
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_what_is_as_it_should_be_has_no_warning(case: str) -> None:
    FINE[case]()


HEIGHTS: dict[str, Callable[[Any], Any]] = {
    "fill_depressions": og.fill_depressions,
    "flow_direction": og.flow_direction,
    "breach_depressions": og.breach_depressions,
    "flood_level": lambda dem: og.flood_level(dem, [(5.0, 5.0)]),
    "depressions": og.depressions,
    "peaks": lambda dem: og.peaks(dem, min_prominence=50),
    "walking_time": lambda dem: og.walking_time(dem, [(5.0, 5.0)], cell_size=30, max_cost=90),
    "submitted": lambda dem: og.fill_depressions.submit(dem).result(),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("operation", HEIGHTS)
@pytest.mark.parametrize("value", [-9999, -32768, -99999, float(np.finfo("f4").min), -9999.9])
def test_nodata_that_is_not_declared_is_told(operation: str, value: float) -> None:
    dem = GROUND.copy()
    dem[:2] = value
    with pytest.warns(
        RuntimeWarning, match=r"elevation: the least value is -.* in 40 of 600"
    ) as found:
        HEIGHTS[operation](dem)
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.parametrize("operation", HEIGHTS)
def test_nodata_of_a_dask_array_that_is_not_declared_is_told_with_the_result(
    operation: str,
) -> None:
    dem = GROUND.copy()
    dem[:2] = -9999
    usual, counts = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    HEIGHTS[operation](counted(GROUND, usual))
    with pytest.warns(RuntimeWarning, match="elevation: the least value is -9999, in") as found:
        HEIGHTS[operation](counted(dem, counts))
    assert [warning.filename for warning in found] == [__file__]
    assert len(counts) == 12
    assert max(counts.values()) <= 2  # points are looked at before the run
    assert counts == usual


def counted(cells: np.ndarray, counts: Counter[tuple[int, int]]) -> da.Array:
    """Return a Dask array that counts how often each of its blocks is computed."""

    def block(block_info: Any = None) -> np.ndarray:
        (top, bottom), (left, right) = block_info[None]["array-location"]
        counts[top, left] += 1
        return cells[top:bottom, left:right]

    chunks = da.core.normalize_chunks(8, cells.shape)
    return da.map_blocks(block, chunks=chunks, dtype=cells.dtype, meta=np.empty((0, 0)))


LAZY: dict[str, tuple[Callable[[Callable[[Any], Any]], Any], str]] = {
    "sources, both": (
        lambda of: og.cost_distance(of(SOURCES), of(FRICTION)),
        "sources: all cells are sources",
    ),
    "sources on an array": (
        lambda of: og.cost_distance(SOURCES, of(FRICTION)),
        "sources: all cells are sources",
    ),
    "sources on lazy ground with gaps": (
        lambda of: og.cost_distance(
            of(np.where(GROUND < 9, np.nan, 1)), np.where(GROUND < 9, 0, FRICTION)
        ),
        "sources: all cells are sources",
    ),
    "sources of a walk": (
        lambda of: og.walking_time(of(GROUND), of(SOURCES + 1), cell_size=30),
        "sources: all cells are sources",
    ),
    "sources of an eikonal": (
        lambda of: og.cost_distance(of(SOURCES + 1), of(FRICTION), cost="eikonal"),
        "sources: all cells are sources",
    ),
    "outlets": (
        lambda of: og.fill_depressions(of(GROUND), outlets=of(FRICTION)),
        "outlets: all cells are outlets",
    ),
    "an accumulation as streams": (
        lambda of: og.height_above_drainage(filled(), flow(), of(accumulation().values)),
        "streams: all cells are streams",
    ),
    "no streams": (
        lambda of: og.flow_distance(flow(), of(accumulation().values > 1e9)),
        "to: no cell is a stream",
    ),
    "no outlets": (
        lambda of: og.watersheds(flow(), of(SOURCES * 0)),
        "outlets: no cell is one",
    ),
}


@pytest.mark.parametrize("case", LAZY)
def test_dask_arrays_get_the_warnings_of_arrays_in_memory(case: str) -> None:
    call, says = LAZY[case]
    for of in (lambda cells: cells, lambda cells: da.from_array(np.asarray(cells), chunks=8)):
        with pytest.warns(RuntimeWarning, match=says) as found:
            call(of)
        assert [warning.filename for warning in found] == [__file__]


def test_a_lazy_mask_of_some_sources_has_no_warning() -> None:
    og.cost_distance(da.from_array(FRICTION, chunks=8), da.from_array(SOURCES, chunks=8))
    og.fill_depressions(da.from_array(GROUND, chunks=8))


def test_nodata_of_a_file_that_is_not_declared_is_told(tmp_path: Path) -> None:
    path = tmp_path / "dem.tif"
    cells = np.tile(GROUND, (20, 30)).astype("f4")
    cells[:9] = -9999
    shape = {"height": cells.shape[0], "width": cells.shape[1], "count": 1, "dtype": "float32"}
    with rasterio.open(path, "w", "GTiff", transform=Affine(9, 0, 0, 0, -9, 0), **shape) as file:
        file.write(cells, 1)
    with pytest.warns(RuntimeWarning, match="elevation: the least value is -9999"):
        og.fill_depressions(path)


@pytest.mark.parametrize(("look", "size"), [(256, 600), (7, 245)])
def test_ground_that_was_not_filled_is_told_of_a_store(
    look: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.flow.drainage.height_above_drainage.LOOK", look)
    streams = accumulation() > 20
    text = rf"\d+ of {size} cells that were looked at lie below the stream .*fill_depressions"
    with pytest.warns(RuntimeWarning, match=text) as found:
        og.height_above_drainage(GROUND, flow(), streams, out=tmp_path / "heights.zarr", tile=8)
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("tile", [8, 64])
def test_nodata_that_is_not_declared_is_told_of_a_store(
    lazy: bool, tile: int, tmp_path: Path
) -> None:
    dem = GROUND.copy()
    dem[:2], dem[20, 7] = -9999, np.nan
    source = da.from_array(dem, chunks=7) if lazy else dem
    with pytest.warns(
        RuntimeWarning, match="source: the least value is -9999, in 40 of 600 cells"
    ) as found:
        og.ingest(source, tmp_path / "dem.zarr", tile=tile, shard=tile)
    assert [warning.filename for warning in found] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        og.ingest(source, tmp_path / "declared.zarr", nodata=-9999, tile=tile)


def test_a_run_on_a_cluster_tells_of_it_once() -> None:
    dem = np.where(GROUND < 5, -9999, GROUND)
    alone = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    with Client(**alone, dashboard_address=None) as client, pytest.warns(RuntimeWarning) as found:
        og.fill_depressions(dem, client=client)
    told = [str(warning.message) for warning in found if "least value" in str(warning.message)]
    assert len(told) == 1
    assert told[0].startswith("elevation: ")


@pytest.mark.parametrize(
    "dem",
    [
        np.linspace(-430, 1200, 600).reshape(30, 20),  # at the Dead Sea
        np.linspace(-10_900, 8800, 600).reshape(30, 20),  # a globe with its seas
        np.where(GROUND < 2, -9999, GROUND * 120 - 11_000),  # a sea floor around -9999
        np.where(GROUND < 2, -500, GROUND),  # a mine
        np.where(GROUND < 2, np.nan, GROUND),
    ],
    ids=["the Dead Sea", "a globe", "a sea floor", "a mine", "NaN"],
)
def test_deep_ground_is_no_nodata(dem: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        og.fill_depressions(dem)
        og.ingest(dem, tmp_path / "dem.zarr", tile=8)


def test_declared_nodata_has_no_warning() -> None:
    dem = np.where(GROUND < 2, -9999, GROUND)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        og.fill_depressions(dem, nodata=-9999)
        og.fill_depressions(xr.DataArray(dem, dims=("y", "x"), attrs={"_FillValue": -9999}))
