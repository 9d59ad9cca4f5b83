"""Settings, clients and working directories that no call can do with; and what is the same call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import bad_values as bad
import distributed
import numpy as np
import pyproj
import pytest
import xarray as xr
from watched_raster import Gate

import orograph as og
from orograph.tiles.raster.raster import ArrayRaster

GRID = np.arange(1.0, 13).reshape(3, 4)
POINT = [(0, 0)]
CALLS: dict[str, Callable[..., Any]] = {
    "minimum_spanning_forest": lambda **given: og.minimum_spanning_forest(GRID, **given),
    "connected_components": lambda **given: og.connected_components(GRID, **given),
    "cost_distance": lambda **given: og.cost_distance(GRID, POINT, **given),
    "hop_distance": lambda **given: og.hop_distance(GRID, POINT, **given),
    "all_pairs": lambda **given: og.all_pairs(np.ones((3, 3)), **given),
    "is_connected": lambda **given: og.is_connected(GRID, (0, 0), (1, 1), **given),
}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "backend": ("gpu", "", 5, True, None, [], {}),
    "tile": (0, -1, 9000, 1.5, "x", "", True, None, bad.NAN, bad.HUGE, [1024], {}),
    "threads": (-1, 1.5, "x", "", True, None, bad.NAN, bad.HUGE, [2], {}),
    "field": (-1, 1.5, "x", "", True, None, bad.NAN, bad.HUGE, [2], {}),
    "scratch": ("/nonexistent/folder", "a\0b", 5, True, [], {}),
    "tiles": (1024,),
}


@contextmanager
def refused(message: str) -> Iterator[None]:
    """Nothing begins, and the message is in one line."""
    with pytest.MonkeyPatch.context() as patch:

        def begun(*given: object, **named: object) -> None:
            raise AssertionError("a run has begun")

        patch.setattr("orograph.run.run.Run.__init__", begun)
        with pytest.raises(og.InputError, match=message) as caught:
            yield
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_settings_are_checked_by_each_operation(name: str) -> None:
    for setting, values in SETTINGS.items():
        for value in values:
            with (
                og.config.set({setting: value}),
                refused(rf"config\['{setting}'\].*(; |use one of|settings are)"),
            ):
                CALLS[name]()
            with og.config.set({setting: value}), refused(setting):
                getattr(og, name).plan(og.RasterSpec((3, 3)))


def test_a_client_that_no_run_can_use_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    og.ingest(GRID, store)

    async def with_an_asynchronous_client() -> None:
        options: dict[str, Any] = {"processes": False, "dashboard_address": None}
        async with (
            distributed.LocalCluster(n_workers=0, asynchronous=True, **options) as cluster,
            distributed.Client(cluster, asynchronous=True) as client,
        ):
            for call in CALLS.values():
                with refused("client: .* is asynchronous.*; pass one made without"):
                    call(client=client)
            with refused("client: .* is asynchronous.*close the one that is active"):
                og.minimum_spanning_forest(store)
            with refused("client: .* is asynchronous"):
                og.cost_distance.plan(og.RasterSpec((3, 3)))

    asyncio.run(with_an_asynchronous_client())
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        client = distributed.Client(cluster)
        client.close()
        for call in CALLS.values():
            with refused("client: .* is closed; pass one that is open"):
                call(client=client)


def test_a_working_directory_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    gone = "is relative, but the working directory has been removed; change to another"
    for name, call in CALLS.items():
        if name != "is_connected":
            with refused(f"out: 'a.zarr' {gone}"):
                call(out="a.zarr")
    for relative in (
        lambda: og.ingest(GRID, "a.zarr"),
        lambda: og.to_geotiff(GRID, "a.tif"),
        lambda: og.open("a.zarr"),
        lambda: og.DistanceIndex.build(GRID, "a.zarr"),
        lambda: og.DistanceIndex.open("a.zarr"),
        lambda: og.minimum_spanning_forest("a.tif"),
        lambda: og.least_cost_path("a.zarr", POINT),
    ):
        with refused(gone):
            relative()
    with refused("none.tif does not exist"):
        og.minimum_spanning_forest(tmp_path / "none.tif")
    assert og.ingest(GRID, tmp_path / "a.zarr").shape == (3, 4)
    assert og.to_geotiff(GRID, tmp_path / "a.tif").exists()
    forest = og.minimum_spanning_forest(tmp_path / "a.tif", out=tmp_path / "forest.zarr")
    assert forest.attrs["tree_count"] == 1


@dataclass(frozen=True, eq=False, repr=False)
class GatedArray(ArrayRaster):
    """A raster in memory behind a gate."""

    gate: Gate | None = None

    def read(self, window: Any) -> Any:
        """Return the cells when the gate is open."""
        assert self.gate is not None
        self.gate.enter()
        return super().read(window)


def test_a_result_goes_where_the_call_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """A relative path counts from the working directory of the call, not from a later one."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    gate.shut(after=1)  # the fingerprint
    run = og.minimum_spanning_forest.submit(
        GatedArray(GRID, GRID.dtype, gate=gate), out="forest.zarr"
    )
    monkeypatch.chdir(tmp_path / "there")
    gate.open()
    run.result()
    assert os.listdir(tmp_path / "here") == ["forest.zarr"]
    assert os.listdir(tmp_path / "there") == []


def _identity(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> Any:
    """Return what a run is known by when it is resumed."""
    jobs = []

    class Launched(og.OrographError):
        pass

    def launch(job: Any, name: str, *more: Any, **how: Any) -> None:
        jobs.append(job)
        raise Launched

    monkeypatch.setattr("orograph.operations.operation.launch", launch)
    with pytest.raises(Launched):
        call()
    return jobs[0].identity()


SAME: dict[str, tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]] = {
    "forest": (
        CALLS["minimum_spanning_forest"],
        {
            "connectivity": (8, np.int64(8), np.uint8(8)),
            "weight": ("mean", np.str_("mean")),
            "tile": (2, np.int32(2)),
            "shard": (1024, np.int64(1024)),
            "nodata": (5, np.int16(5), 5.0, np.float32(5)),
        },
    ),
    "components": (
        CALLS["connected_components"],
        {"connectivity": (4, np.int64(4)), "min_size": (2, np.uint16(2))},
    ),
    "cost": (
        CALLS["cost_distance"],
        {
            "connectivity": (16, np.int64(16)),
            "dtype": ("float64", np.float64, np.dtype("float64"), "f8", float, np.dtype(">f8")),
            "max_cost": (5, 5.0, np.float32(5), np.int64(5)),
            "cell_size": (2, 2.0, np.float32(2), (np.float32(2), 2), [2.0, 2.0], np.array([2, 2])),
            "initial_cost": (1, 1.0, np.float32(1), [1], (1.0,), np.array([1.0])),
            "outputs": ("cost", ("cost",), ["cost"], np.array(["cost"])),
            "snap": (True, np.True_, 10, np.int64(10)),
        },
    ),
    "hops": (
        CALLS["hop_distance"],
        {"connectivity": (8, np.int64(8)), "max_hops": (3, np.int64(3), np.uint8(3))},
    ),
    "targets": (
        lambda **given: og.hop_distance(GRID, GRID.astype(np.int16), **given),
        {
            "source_values": (
                [1, 2],
                (1, np.int8(2)),
                np.array([1, 2]),
                {1: 0, 2: 0}.keys(),
                iter([1, 2]),
            )
        },
    ),
    "all pairs": (
        CALLS["all_pairs"],
        {
            "dtype": ("float32", np.float32, np.dtype("float32"), "f4"),
            "predecessors": (True, np.True_),
            "no_edge": (0, 0.0, np.int8(0), np.float32(0)),
            "tile": (2, np.int64(2)),
        },
    ),
    "index": (
        lambda **given: og.DistanceIndex.build(GRID, "unwritten.zarr", **given),
        {
            "dtype": ("float32", np.float32, "f4"),
            "block": (8, np.int64(8)),
            "levels": (0, np.int8(0)),
            "connectivity": (4, np.int64(4)),
            "sparsify": (True, np.True_),
        },
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_means_the_same_is_the_same_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, parameters = SAME[name]
    for parameter, values in parameters.items():
        found = [_identity(monkeypatch, partial(call, **{parameter: value})) for value in values]
        different = [v for v, one in zip(values, found, strict=True) if one != found[0]]
        assert not different, f"{parameter}: {different} is not {values[0]!r}"


def test_latitudes_beyond_the_poles_are_no_latitudes(tmp_path: Path) -> None:
    wkt = pyproj.CRS(4326).to_wkt()
    place = {"spatial_ref": xr.DataArray(0, attrs={"crs_wkt": wkt})}

    def grid(*y: float) -> xr.DataArray:
        return xr.DataArray(
            GRID, {"y": list(y), "x": [10.0, 11, 12, 13]}, ("y", "x")
        ).assign_coords(place)

    message = (
        "coordinate y: 91 at row 0, but the CRS is geographic, with latitudes from -90 to 90; "
    )
    with refused(message):
        og.cost_distance(grid(91, 90, 89), [(10, 90)])
    with refused("coordinate y: -91 at row 1"):
        og.DistanceIndex.build(grid(-90, -91, -92), tmp_path / "index.zarr")
    with refused("coordinate y: 5e"):
        og.cost_distance(grid(5e6, 5e6 - 1, 5e6 - 2), [(10, 5e6)])
    with refused("coordinate y: 90 at row 0 is a pole, where cells have no width; leave that row"):
        og.cost_distance(grid(90, 89, 88), [(10, 90)])
    # rows beyond the last one would lie beyond the pole
    for rows in ((89.5, 88.5, 87.5), (-87.5, -88.5, -89.5), (-89.5, -88.5, -87.5)):
        result = og.cost_distance(grid(*rows), [(10, rows[0])], connectivity=16)
        assert result.attrs["reached_cells"] == 12
    assert og.cost_distance(grid(91, 90, 89), [(10, 90)], cell_size=1).attrs["reached_cells"] == 12
