"""One run from heights to sub-basins has the bits of its four operations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401
import xarray as xr
from distributed import Client
from shapely import LineString
from terrain_cases import fractal

import orograph as og

Y, X = 4_000_000 - 30.0 * np.arange(70), 500_000 + 30.0 * np.arange(90)
DEM = xr.DataArray(fractal(90)[:70], {"y": Y, "x": X}, ("y", "x")).rio.write_crs("EPSG:32633")


def in_four_runs(elevation: Any, threshold: float, weights: Any = None, **given: Any) -> xr.Dataset:
    """Directions, accumulation, streams and sub-basins, one after the other."""
    wrap = {"wrap": given["wrap"]} if "wrap" in given else {}
    flow = og.flow_direction(elevation, **given)
    amounts = og.flow_accumulation(flow, weights=weights, **wrap)
    streams = og.streams(flow, amounts, threshold, **wrap)
    basins = og.watersheds(flow, streams["link"], **wrap)
    return xr.merge(
        [flow, amounts, streams, basins], compat="override", combine_attrs="drop_conflicts"
    )


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"connectivity": 4},
        {"flats": "gradient", "codes": "esri"},
        {"depressions": "breach", "max_length": 20},
        {"depressions": "keep"},
        {"weights": "area"},
        {"weights": np.random.default_rng(3).random((70, 90))},
        {"wrap": True},
        {"outlets": [(X[40], Y[30])], "edges": "closed"},
        {"streams": [LineString([(X[9], Y[9]), (X[60], Y[50]), (X[89] + 30, Y[50])])], "burn": 900},
        {"streams": DEM < 200, "burn": 5},
    ],
    ids=str,
)
def test_it_has_the_bits_of_the_four(given: dict[str, Any]) -> None:
    threshold = 36_000.0 if isinstance(given.get("weights"), str) else 20
    expected = in_four_runs(DEM, threshold, **given)
    for cut in ({}, {"tile": 16, "shard": 32}):
        found = og.drainage_network(DEM, threshold, **given, **cut)
        assert set(found.data_vars) == set(expected.data_vars)
        for name, values in expected.data_vars.items():
            np.testing.assert_array_equal(found[name], values, err_msg=str(name))
        assert found.attrs["link_count"] == expected.sizes["links"]
        assert "sink_count" in found.attrs


@pytest.mark.filterwarnings("ignore:4 of 82 links have no line")
def test_workers_write_it_and_lines_are_made_of_it(
    tmp_path: Path, clients: Callable[[int], Client]
) -> None:
    out = tmp_path / "network.zarr"
    og.drainage_network(DEM, 40, out=out, tile=16, shard=32, client=clients(2))
    stored, alone = og.open(out), og.drainage_network(DEM, 40)
    for name, values in alone.data_vars.items():
        np.testing.assert_array_equal(stored[name], values, err_msg=str(name))
    lines = og.stream_lines(out)
    assert len(lines) == stored.sizes["links"] - 4  # of a single cell at the edge
    np.testing.assert_array_equal(lines.columns["link"], og.stream_lines(alone).columns["link"])
    assert stored["accumulation"].rio.crs == DEM.rio.crs
    report = json.loads((out / "report.json").read_text())
    assert report["operation"] == "drainage_network"


def test_no_stream_is_told() -> None:
    with pytest.warns(RuntimeWarning, match="no link was found: no accumulation is 1"):
        og.drainage_network(DEM, 1e9)
