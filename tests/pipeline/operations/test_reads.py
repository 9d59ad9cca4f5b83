"""How often each operation reads its rasters, and how often Dask computes lazy ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask import delayed
from distributed import Client, LocalCluster
from shapely import LineString

import orograph as og
from orograph.operations.operation import Operation
from orograph.tiles.grid.window import Window
from orograph.tiles.raster import marks, snapping
from orograph.tiles.raster.array import LazyRaster
from orograph.tiles.raster.file import FileRaster
from orograph.tiles.store.raster import StoreRaster

SIDE, TILE = 128, 32
rng = np.random.default_rng(0)
HEIGHTS = np.round(rng.random((SIDE, SIDE)) * 50).astype(np.float32)
DIRECTIONS = og.flow_direction(HEIGHTS)["direction"].values
ZONES = np.zeros((SIDE, SIDE), np.int32)
ZONES[5:9, 5:9], ZONES[100:110, 15:30], ZONES[50:65, 90:120] = 1, 2, 3
RASTERS = {
    "heights": HEIGHTS,
    "directions": DIRECTIONS,
    "weights": np.ones((SIDE, SIDE), np.uint8),
    "low": (HEIGHTS < 5).astype(np.uint8),
    "friction": (1 + rng.random((SIDE, SIDE))).astype(np.float32),
    "zones": ZONES,
    "amounts": og.flow_accumulation(DIRECTIONS, codes="taudem")["accumulation"].values,
}
HERE = [(10, 10)]
LINE = LineString([(10, 10), (90, 60), (90, 127.9)])
LOW = [tuple(np.argwhere(RASTERS["low"])[0, ::-1].tolist())]

Get = Callable[[str], Any]
ALL = ("cost", "back_direction", "allocation")
# each with how often it reads cells of a stored raster, where that is not once
READS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "minimum_spanning_forest": (lambda r, **o: og.minimum_spanning_forest(r("heights"), **o), {}),
    "connected_components": (lambda r, **o: og.connected_components(r("low"), **o), {}),
    "cost_distance": (lambda r, **o: og.cost_distance(r("friction"), HERE, **o), {}),
    "cost_distance of cells": (lambda r, **o: og.cost_distance(r("friction"), r("zones"), **o), {}),
    "cost_distance, eikonal": (
        lambda r, **o: og.cost_distance(r("friction"), HERE, cost="eikonal", **o),
        {},
    ),
    "cost_distance with allocation": (
        lambda r, **o: og.cost_distance(r("friction"), r("zones"), outputs=ALL, **o),
        {"friction": 2, "zones": 2},
    ),
    "walking_time": (lambda r, **o: og.walking_time(r("heights"), HERE, cell_size=1, **o), {}),
    "hop_distance": (lambda r, **o: og.hop_distance(r("low"), LOW, **o), {}),
    "is_connected": (
        lambda r, out, **o: og.is_connected(r("friction"), (10, 10), (100, 100), **o),
        {},
    ),
    "region_network": (
        lambda r, out, **o: og.region_network(r("friction"), r("zones"), **o),
        {"friction": 3, "zones": 3},
    ),
    "linkages": (
        lambda r, **o: og.linkages(r("friction"), r("zones"), threshold=1, **o),
        {"friction": 27, "zones": 27},  # eight runs, and the outlines of zones
    ),
    "fill_depressions": (lambda r, **o: og.fill_depressions(r("heights"), **o), {"heights": 2}),
    "breach_depressions": (lambda r, **o: og.breach_depressions(r("heights"), **o), {}),
    "flood_level": (lambda r, **o: og.flood_level(r("heights"), HERE, **o), {"heights": 2}),
    "pass_elevation": (
        lambda r, out, **o: og.pass_elevation(r("heights"), [(10, 10), (90, 90)], **o),
        {},
    ),
    "peaks": (lambda r, **o: og.peaks(r("heights"), **o), {}),
    "depressions": (lambda r, **o: og.depressions(r("heights"), **o), {"heights": 2}),
    "flow_direction": (lambda r, **o: og.flow_direction(r("heights"), **o), {"heights": 2}),
    "flow_direction along lines": (
        lambda r, **o: og.flow_direction(r("heights"), streams=LINE, burn=99, **o),
        {"heights": 2},
    ),
    "flow_direction with lowered cells": (
        lambda r, **o: og.flow_direction(r("heights"), streams=r("zones"), burn=1, **o),
        {},
    ),
    "flow_direction of pits": (
        lambda r, **o: og.flow_direction(r("heights"), depressions="keep", **o),
        {},
    ),
    "flow_accumulation": (
        lambda r, **o: og.flow_accumulation(r("directions"), codes="taudem", **o),
        {},
    ),
    "flow_accumulation of weights": (
        lambda r, **o: og.flow_accumulation(
            r("directions"), weights=r("weights"), codes="taudem", **o
        ),
        {"directions": 2, "weights": 2},
    ),
    "flow_accumulation of heights": (
        lambda r, **o: og.flow_accumulation(r("heights"), method="mfd", **o),
        {"heights": 2},
    ),
    "watersheds of labels": (
        lambda r, **o: og.watersheds(r("directions"), r("zones"), codes="taudem", **o),
        {},
    ),
    "watersheds": (lambda r, **o: og.watersheds(r("directions"), codes="taudem", **o), {}),
    "flow_distance": (lambda r, **o: og.flow_distance(r("directions"), codes="taudem", **o), {}),
    "downstream": (
        lambda r, **o: og.downstream(r("directions"), r("heights"), codes="taudem", **o),
        {"directions": 2, "heights": 2},
    ),
    "upstream": (
        lambda r, **o: og.upstream(r("directions"), r("heights"), codes="taudem", **o),
        {"directions": 2, "heights": 2},
    ),
    "upstream_length": (
        lambda r, **o: og.upstream_length(r("directions"), codes="taudem", **o),
        {},
    ),
    "drainage_network": (
        lambda r, **o: og.drainage_network(r("heights"), 50, **o),
        {"heights": 2},
    ),
    "streams": (
        lambda r, **o: og.streams(r("directions"), r("amounts"), 50, codes="taudem", **o),
        {},
    ),
    "height_above_drainage": (
        lambda r, **o: og.height_above_drainage(
            r("heights"), r("directions"), r("low"), codes="taudem", **o
        ),
        {"heights": 2, "directions": 2, "low": 2},
    ),
    "catchments": (
        lambda r, **o: og.catchments(r("friction"), HERE, population=r("weights"), **o),
        {"weights": 2},
    ),
    "site": (
        lambda r, **o: og.site(r("friction"), HERE, population=r("weights"), within=np.inf, **o),
        {"weights": 3},
    ),
    "floating_catchments": (
        lambda r, **o: og.floating_catchments(
            r("friction"), HERE, population=r("weights"), within=np.inf, **o
        ),
        {"weights": 3},
    ),
    "zonal": (lambda r, out, **o: og.zonal(r("zones"), r("heights"), **o), {}),
    "polygonize": (lambda r, out, **o: og.polygonize(r("zones"), **o), {}),
    "isochrones": (lambda r, out, **o: og.isochrones(r("friction"), [1.2, 1.5], **o), {}),
    "DistanceIndex.build": (
        lambda r, out, tile, **o: og.DistanceIndex.build(r("friction"), out, block=tile, **o),
        {},
    ),
}
HALOS = 1.25
"""Cells that are read of a raster, with the halos of tiles, over those that it has."""


class Counts:
    """Counts cells by the names of rasters, in any thread; the same one when it is pickled."""

    known: ClassVar[dict[int, Counts]] = {}

    def __init__(self) -> None:
        self._cells: Counter[str] = Counter()
        self._lock = Lock()
        self.known[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return counts_of, (id(self),)

    def add(self, name: str, cells: int) -> None:
        """Count cells of a raster."""
        with self._lock:
            self._cells[name] += cells

    def times(self) -> dict[str, float]:
        """How often each raster was read whole, on average of its cells."""
        return {name: self._cells[name] / SIDE**2 for name in RASTERS if self._cells[name]}


def counts_of(number: int) -> Counts:
    return Counts.known[number]


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture(autouse=True)
def few_cells_at_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small a raster would be read whole to look at a point, or for a sample."""
    monkeypatch.setattr(snapping, "READ_SIDE", 8)
    monkeypatch.setattr(marks, "SIDE", 32)


def count_reads(
    kind: type[Any], name_of: Callable[[Any], str], counts: Counts, patch: pytest.MonkeyPatch
) -> None:
    """Count what is read of a kind of rasters from now on."""
    read = kind.read

    def counted(self: Any, window: Window) -> Any:
        counts.add(name_of(self), window.size)
        return read(self, window)

    patch.setattr(kind, "read", counted)


def as_store(folder: Path, name: str) -> Path:
    path = folder / f"{name}.zarr"
    og.ingest(xr.DataArray(RASTERS[name], dims=("y", "x"), name=name), path, tile=TILE)
    return path


def as_file(folder: Path, name: str) -> Path:
    stored = xr.DataArray(RASTERS[name], dims=("y", "x"), name=name)
    og.to_geotiff(stored, folder / f"{name}.tif")
    return folder / f"{name}.tif"


def as_netcdf(folder: Path, name: str) -> Path:
    xr.DataArray(RASTERS[name], dims=("y", "x"), name=name).to_netcdf(folder / f"{name}.nc")
    return folder / f"{name}.nc"


KINDS: dict[str, tuple[type[Any], Callable[[Path, str], Path], Callable[[Any], str]]] = {
    "store": (StoreRaster, as_store, lambda raster: str(raster.name)),
    "GeoTIFF": (FileRaster, as_file, lambda raster: Path(raster.path).stem),
    "NetCDF": (LazyRaster, as_netcdf, lambda raster: str(raster.name)),
}


def computed(counts: Counts, side: int, name: str) -> da.Array:
    """A Dask array that counts the cells of the blocks that are computed."""
    return da.block(
        [[block_of(counts, side, name, y, x) for x in range(0, SIDE, side)]
         for y in range(0, SIDE, side)]
    )  # fmt: skip


def block_of(counts: Counts, side: int, name: str, y: int, x: int) -> da.Array:
    part = RASTERS[name][y : y + side, x : x + side]
    block = delayed(counted_block)(counts, name, side, y, x)
    return da.from_delayed(block, part.shape, part.dtype)


def counted_block(counts: Counts, name: str, side: int, y: int, x: int) -> Any:
    part = RASTERS[name][y : y + side, x : x + side]
    counts.add(name, part.size)
    return part


def test_all_operations_on_rasters_are_counted() -> None:
    of_graphs = {"all_pairs", "shortest_paths"}
    public = {name for name in dir(og) if isinstance(getattr(og, name), Operation)}
    assert public - of_graphs == {name.split()[0].rstrip(",") for name in READS} - {
        "DistanceIndex.build"
    }
    assert isinstance(og.DistanceIndex.build, Operation)


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", READS)
def test_cells_of_files_are_read_as_often_as_promised(
    operation: str, kind: str, tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "NetCDF":
        pytest.importorskip("netCDF4")
    call, more = READS[operation]
    raster, made, name_of = KINDS[kind]
    paths = {name: made(tmp_path, name) for name in RASTERS}
    count_reads(raster, name_of, counts, monkeypatch)
    call(paths.__getitem__, out=tmp_path / "out.zarr", tile=TILE)
    times = counts.times()
    assert times
    for name, count in times.items():
        promised = more.get(name, 1)
        assert promised - 1 < count <= promised * HALOS, times


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None,
            memory_limit=0,
        ) as local,
        Client(local, set_as_default=False) as client,
    ):  # fmt: skip
        yield client


@pytest.mark.diagonal
@pytest.mark.parametrize("side", [TILE, 50, 128], ids="blocks of {0} cells a side".format)
@pytest.mark.parametrize("operation", READS)
def test_blocks_of_a_dask_array_are_computed_twice_at_most(
    operation: str, side: int, tmp_path: Path, counts: Counts
) -> None:
    call, _ = READS[operation]
    arrays = {name: xr.DataArray(computed(counts, side, name), dims=("y", "x")) for name in RASTERS}
    found = call(arrays.__getitem__, out=tmp_path / "out.zarr", tile=TILE)
    times = counts.times()
    assert times
    assert max(times.values()) <= 2, times
    rasters = {name: xr.DataArray(cells, dims=("y", "x")) for name, cells in RASTERS.items()}
    expected = call(rasters.__getitem__, out=tmp_path / "other.zarr", tile=TILE)
    if isinstance(found, xr.Dataset):
        xr.testing.assert_equal(found.load(), expected.load())


# of each engine the one that reads most; the others are read the same way without a cluster, above
ENGINES = (
    "cost_distance with allocation",
    "cost_distance, eikonal",
    "is_connected",
    "region_network",
    "flow_direction",
    "flow_accumulation of weights",
    "DistanceIndex.build",
)


@pytest.mark.parametrize(
    "operation",
    [pytest.param(name, marks=() if name in ENGINES else pytest.mark.long) for name in READS],
)
def test_blocks_of_a_dask_array_are_computed_twice_at_most_by_a_cluster(
    operation: str, tmp_path: Path, counts: Counts, cluster: Client
) -> None:
    call, _ = READS[operation]
    arrays = {name: computed(counts, 50, name) for name in RASTERS}
    call(arrays.__getitem__, out=tmp_path / "out.zarr", tile=TILE, client=cluster)
    times = counts.times()
    assert times
    assert max(times.values()) <= 2, times


def test_what_several_dask_arrays_are_made_of_is_computed_once(
    tmp_path: Path, counts: Counts
) -> None:
    heights = computed(counts, 50, "heights")
    # each block depends on all others, and on those around it
    smooth = da.map_overlap(np.copy, heights - heights.mean(), depth=1, boundary="nearest")
    low, directions = heights < 5, da.from_array(DIRECTIONS, chunks=50)
    found = og.height_above_drainage(smooth, directions, low, codes="taudem", tile=TILE)
    assert counts.times() == {"heights": 1}
    around = HEIGHTS - HEIGHTS.mean()
    expected = og.height_above_drainage(
        around, DIRECTIONS, RASTERS["low"], codes="taudem", tile=TILE
    )
    np.testing.assert_allclose(found["height"], expected["height"], atol=1e-4)


def test_a_run_that_ends_leaves_no_copy_of_a_dask_array(tmp_path: Path, counts: Counts) -> None:
    og.fill_depressions(computed(counts, 50, "heights"), out=tmp_path / "out.zarr", tile=TILE)
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]


def test_a_cancelled_run_computes_no_more_blocks(tmp_path: Path, counts: Counts) -> None:
    begun, runs = Event(), list[Any]()

    def get(y: int, x: int) -> Any:
        assert begun.wait(300)
        runs[0].cancel()
        return counted_block(counts, "heights", TILE, y, x)

    blocks = [
        [
            da.from_delayed(delayed(get)(y, x), (TILE, TILE), np.float32)
            for x in range(0, SIDE, TILE)
        ]
        for y in range(0, SIDE, TILE)
    ]
    with og.config.set(threads=1):
        runs.append(
            og.fill_depressions.submit(
                da.block(blocks), out=tmp_path / "out.zarr", tile=TILE, shard=TILE
            )
        )
        begun.set()
        with pytest.raises(og.Cancelled):
            runs[0].result(timeout=300)
    assert counts.times()["heights"] < 0.5


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_plan_counts_the_store_of_a_dask_array(workers: int) -> None:
    shape = 4096, 2**18

    def plan(raster: Any) -> og.Plan:
        found: og.Plan = og.minimum_spanning_forest.plan(raster, workers=workers)
        return found

    within, across = (plan(da.zeros(shape, chunks=n, dtype=np.float32)) for n in (1024, 1000))
    bare = plan(og.RasterSpec(shape))
    assert within.memory_total == bare.memory_total
    more = {p.bytes_checkpoints - bare.bytes_checkpoints for p in (within, across)}
    assert more == {math.prod(shape) * 4}
    two_rows = 2 * across.shard * shape[1] * 4
    assert across.memory_total - bare.memory_total > 0.8 * two_rows
