"""Statistics of zones, against sums of fractions and GeoPandas."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rioxarray  # noqa: F401  (registers `.rio`)
import xarray as xr
from pyproj import Geod

import orograph as og
from orograph.cli.main import main
from orograph.components.exact_groups import GroupSums, sums_of, sums_of_squares
from orograph.run.cluster.clusters import cluster

SEEDS = [*range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 60))]
EXTREMES = [5e-324, -5e-324, 2.2e-308, 1.0, -1.0, 1e-300, 3e300, -1.7e308, 0.1, 2.0**53 + 2, 0.0]


def whole(sums: GroupSums) -> list[Fraction]:
    """Return the numbers as fractions."""
    return [n * Fraction(2) ** sums.exponent for n in sums.numbers]


@pytest.mark.parametrize("seed", range(20))
def test_sums_and_squares_are_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.choice(EXTREMES, 40) if seed % 2 else random.normal(size=40) ** 9
    group = random.integers(0, 3, values.size)
    given = [[Fraction(v) for v in values[group == n].tolist()] for n in range(4)]
    assert whole(sums_of(group, 4, values)) == [sum(g) for g in given]
    squares = sums_of_squares(group, 4, values)
    assert whole(squares) == [sum(v * v for v in g) for g in given]
    assert GroupSums.unpacked(*squares.packed()) == squares


def expected(zones: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> pd.DataFrame:
    """Return the statistics of zones of cells of one by one, by fractions."""
    rows = {}
    height, width = zones.shape
    around = np.pad(zones, 1, constant_values=np.nan)
    for zone in np.unique(zones[np.isfinite(zones)]).tolist():
        inside = around == zone
        sides = sum(
            int((inside[1:-1, 1:-1] & ~inside[1 + y : 1 + y + height, 1 + x : 1 + x + width]).sum())
            for y, x in ((0, 1), (1, 0), (0, -1), (-1, 0))
        )
        own = [Fraction(v) for v in values[(zones == zone) & np.isfinite(values)].tolist()]
        count, total, squares = len(own), sum(own), sum(v * v for v in own)
        row = {"cells": int((zones == zone).sum()), "perimeter": sides, "count": count}
        nothing = dict.fromkeys(("mean", "std", "min", "max"), math.nan)
        rows[int(zone)] = row | {"area": row["cells"], "sum": float(total)} | (
            {
                "mean": float(total / count),
                "std": math.sqrt(float((count * squares - total**2) / count**2)),
                "min": float(min(own)),
                "max": float(max(own)),
            }
            if own
            else nothing
        )  # fmt: skip
    return pd.DataFrame.from_dict(rows, "index")


@pytest.mark.parametrize("seed", SEEDS)
def test_statistics_are_exact_on_any_tiling(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 40, 2).tolist())
    zones = random.integers(-1, 4, shape).astype(float)
    zones[random.random(shape) < 0.1] = np.nan
    zones.flat[0] = 2
    values = random.normal(size=shape) * 10.0 ** random.integers(-9, 9, shape)
    values[random.random(shape) < 0.2] = np.nan
    values[zones == 3] = np.nan
    found = og.zonal(zones, values, tile=int(random.integers(1, 9)))
    pd.testing.assert_frame_equal(found, og.zonal(zones, values), check_exact=True)
    wanted = expected(zones, values)[list(found.columns)]
    assert found.index.tolist() == wanted.index.tolist()
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64", "float32", "bool"])
def test_any_dtype_of_zones_and_values(dtype: str) -> None:
    zones = (np.arange(30).reshape(5, 6) % 2).astype(dtype)
    values = np.arange(30).reshape(5, 6).astype(dtype)
    found = og.zonal(zones, values, statistics=("count", "sum", "max"))
    table = pd.DataFrame({"zone": zones.ravel().astype(int), "v": values.ravel().astype(float)})
    grouped = table.groupby("zone")["v"]
    assert found["sum"].tolist() == grouped.sum().tolist()
    assert found["max"].tolist() == grouped.max().tolist()
    assert found["count"].tolist() == grouped.count().tolist()


def test_areas_and_perimeters_on_the_ground() -> None:
    place = {"y": 5e6 - 30.0 * np.arange(4), "x": 5e5 + 30.0 * np.arange(5)}
    zones = xr.DataArray(np.ones((4, 5), int), place, ("y", "x")).rio.write_crs("EPSG:32633")
    found = og.zonal(zones)
    assert found.loc[1].to_dict() == {"cells": 20.0, "area": 18000.0, "perimeter": 540.0}
    assert found.attrs == {"area_unit": "m²", "length_unit": "m"}
    feet = zones.rio.write_crs("EPSG:2264")  # US survey feet
    metres = 540 * 1200 / 3937
    assert og.zonal(feet)["perimeter"].tolist() == pytest.approx([metres], rel=1e-12)
    for rows in (1, -1):
        degrees = {"lat": 50 - 0.5 * np.arange(4.0)[::rows], "lon": 7 + 0.5 * np.arange(5.0)}
        globe = xr.DataArray(np.ones((4, 5), int), degrees, ("lat", "lon"))
        table = og.zonal(globe.rio.write_crs("EPSG:4326"))
        polygon = og.polygonize(globe.rio.write_crs("EPSG:4326")).geometry[0]
        # along parallels sides are geodesics between corners, as those of one cell are
        length = Geod(ellps="WGS84").geometry_length(polygon.segmentize(0.5))
        assert table["perimeter"].tolist() == pytest.approx([length], rel=1e-9)


def test_zones_keep_their_names(tmp_path: Path) -> None:
    labels = xr.DataArray(
        np.array([[0, 1], [1, 1]]),
        dims=("y", "x"),
        name="labels",
        attrs={"source_names": ["a", "b"]},
    )
    assert og.zonal(labels)["name"].tolist() == ["a", "b"]
    basins = og.watersheds(og.flow_direction(np.random.default_rng(1).random((9, 9))))
    table = og.zonal(basins)
    assert table["cells"].sum() == 81
    assert len(table) == basins.attrs["watershed_count"]


def test_zones_that_wrap_have_no_side_at_the_seam() -> None:
    zones = np.array([[1, 2, 1]])
    assert og.zonal(zones, statistics="perimeter").loc[1].item() == 8
    assert og.zonal(zones, statistics="perimeter", wrap=True).loc[1].item() == 6


def test_workers_and_stores_give_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    zones, values = random.integers(0, 9, (90, 70)), random.normal(size=(90, 70))
    og.ingest(zones, tmp_path / "zones.zarr", tile=16, shard=32)
    og.ingest(values, tmp_path / "values.zarr", tile=16, shard=32)
    with cluster(2, dashboard_address=None) as client:
        found = og.zonal(tmp_path / "zones.zarr", tmp_path / "values.zarr", client=client)
    pd.testing.assert_frame_equal(found, og.zonal(zones, values), check_exact=True)


def test_the_command_writes_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zones = xr.DataArray(np.array([[1, 1, 2]]), dims=("y", "x"))
    og.to_file(zones.rename("zones"), tmp_path / "zones.tif")
    main(["zonal", str(tmp_path / "zones.tif"), "--statistics", "cells"])
    assert capsys.readouterr().out.split() == ["zone,cells", "1,2", "2,1"]
    table = tmp_path / "table.csv"
    main(["zonal", str(tmp_path / "zones.tif"), "--values", str(tmp_path / "zones.tif"),
          "--table", str(table)])  # fmt: skip
    assert pd.read_csv(table)["sum"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("zones", "values", "how", "said"),
    [
        (np.array([[1.5]]), None, {}, "must be whole numbers"),
        (np.eye(2), np.eye(3), {}, "values: "),
        (np.eye(2), None, {"statistics": "mean"}, "pass values= too"),
        (np.eye(2), np.full((2, 2), 2**60), {}, r"up to 2\*\*53"),
    ],
)
def test_what_has_no_statistics_is_refused(zones: Any, values: Any, how: Any, said: str) -> None:
    with pytest.raises(og.InputError, match=said):
        og.zonal(zones, values, **how)
