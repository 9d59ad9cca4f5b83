"""A watershed has the cells whose water passes its outlet before any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flow_of_peers
import geopandas as gpd
import numpy as np
import oracle_flow as oracle
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely import LineString, Point
from terrain_cases import Case, cases, fractal, properties

import orograph as og


@settings(properties, max_examples=50)
@given(cases(), st.sampled_from(tuple(oracle.CODES)), st.integers(0, 2**16))
def test_any_tiling_gives_the_watersheds_of_plain_loops(
    case: Case, encoding: str, seed: int
) -> None:
    step, leaves = oracle.directions(case.elevation, case.valid)
    codes = oracle.encode(step, leaves, case.valid, encoding).astype(np.int16)
    stops = np.argwhere(case.valid & ((step == 8) | leaves)).tolist()
    numbered = {tuple(cell): number for number, cell in enumerate(stops, 1)}
    found = og.watersheds(codes, codes=encoding, **case.cut)
    np.testing.assert_array_equal(found["watershed"], oracle.ends(step, leaves, numbered))
    assert found.attrs["watershed_count"] == len(stops)
    cells = np.argwhere(case.valid)
    if not cells.size:
        return
    chosen = np.random.default_rng(seed).permutation(cells)[:9]
    outlets = {tuple(cell): number for number, cell in enumerate(chosen.tolist())}
    found = og.watersheds(codes, chosen[:, ::-1].astype(float), codes=encoding, **case.cut)
    expected = oracle.ends(step, leaves, outlets)
    np.testing.assert_array_equal(found["watershed"], expected)
    parents = []
    for cell in outlets:
        below = tuple(np.add(cell, oracle.STEPS[step[cell]])) if step[cell] < 8 else None
        parents.append(-1 if below is None or leaves[cell] else expected[below])
    assert found["parent"].values.tolist() == parents
    assert found["label"].values.tolist() == list(outlets.values())
    np.testing.assert_array_equal(found["outlet_x"], chosen[:, 1])


@settings(properties, max_examples=30)
@given(cases(), st.integers(0, 2**16))
def test_a_raster_labels_outlets(case: Case, seed: int) -> None:
    step, leaves = oracle.directions(case.elevation, case.valid)
    codes = oracle.encode(step, leaves, case.valid, "taudem").astype(np.int16)
    random = np.random.default_rng(seed)
    labels = random.integers(1, 4, codes.shape) * (random.random(codes.shape) < 0.2) * case.valid
    if not labels.any():
        return
    outlets = {tuple(cell): labels[tuple(cell)] for cell in np.argwhere(labels).tolist()}
    expected = oracle.ends(step, leaves, outlets)
    for raster in (labels, np.where(labels, labels, np.nan).astype(np.float32)):
        found = og.watersheds(codes, raster, codes="taudem", **case.cut)
        np.testing.assert_array_equal(found["watershed"], expected)
        assert set(found) == {"watershed"}


def test_sub_basins_of_links_hold_the_cells_of_their_links(tmp_path: Path) -> None:
    flow = og.flow_direction(fractal(90))
    count = og.flow_accumulation(flow)["accumulation"]
    network = og.streams(flow, count, 60)
    basins = og.watersheds(flow, network, tile=16)
    link = network["link"].values
    found = basins["watershed"].values
    np.testing.assert_array_equal(found[link > 0], link[link > 0])
    # what a link drains is its sub-basin and those of the links above it
    cells = np.bincount(found.ravel() + 1, minlength=network.sizes["links"] + 2)[2:]
    last = [int(count.values[link == n].max()) for n in range(1, cells.size + 1)]
    total = cells.astype(np.int64)
    for n in np.argsort(last, kind="stable").tolist():
        below = int(network["downstream"][n])
        if below:
            total[below - 1] += total[n]
    assert total.tolist() == last
    og.to_file(network[["link"]], tmp_path / "link.tif")
    again = og.watersheds(flow, tmp_path / "link.tif")
    np.testing.assert_array_equal(again["watershed"], found)
    assert og.watersheds.plan(flow, network["link"]).tasks > 0


def test_labels_of_outlets_are_whole_numbers_from_1() -> None:
    flow = og.flow_direction(fractal(8))["direction"]
    labels = np.zeros((8, 8))
    labels[3, 4] = 1.5
    with pytest.raises(og.InputError, match=r"outlets: 1\.5 at row 3, column 4; outlets must be"):
        og.watersheds(flow, labels)
    labels[3, 4] = -2
    with pytest.raises(og.InputError, match=r"outlets: -2 at row 3, column 4; labels of outlets"):
        og.watersheds(flow, labels)
    labels[3, 4] = 2
    with pytest.raises(og.InputError, match="snap: of no use for a raster of outlets"):
        og.watersheds(flow, labels, snap=True)
    with pytest.raises(og.InputError, match="outlets: "):
        og.watersheds(flow, xr.DataArray(labels[:5]))
    with pytest.warns(RuntimeWarning, match="outlets: no cell is one"):
        og.watersheds(flow, np.zeros((8, 8)))


def test_basins_of_pyflwdir() -> None:
    pyflwdir = pytest.importorskip("pyflwdir")
    codes = flow_of_peers.esri_codes()
    network = pyflwdir.from_array(codes, ftype="d8")
    found = og.watersheds(codes, codes="esri", tile=32)["watershed"].values
    theirs = network.basins(ids=np.arange(1, network.idxs_pit.size + 1, dtype=np.uint32))
    order = np.argsort(network.idxs_pit)
    number = np.empty(order.size + 1, int)
    number[1 + order], number[0] = np.arange(1, order.size + 1), -1
    np.testing.assert_array_equal(found, number[theirs])


def test_a_store_and_an_array_have_the_same_watersheds(tmp_path: Path) -> None:
    heights = fractal(100)
    flow = og.flow_direction(heights, tile=16, shard=32, out=tmp_path / "flow.zarr")
    outlets = [(20, 30), (77, 60), (50, 50)]
    expected = og.watersheds(og.flow_direction(heights), outlets)
    found = og.watersheds(flow, outlets, out=tmp_path / "sheds.zarr")
    xr.testing.assert_equal(found.load(), expected)
    basins = og.watersheds(flow, out=tmp_path / "basins.zarr")
    np.testing.assert_array_equal(
        basins["watershed"], og.watersheds(og.flow_direction(heights))["watershed"]
    )


def test_outlets_are_moved_to_the_largest_accumulation() -> None:
    flow = og.flow_direction(fractal(60))
    count = og.flow_accumulation(flow)["accumulation"]
    near = count.values[20:31, 15:26]
    found = og.watersheds(flow, [(20, 25)], snap=5, accumulation=count)
    row, column = int(found["outlet_y"][0]), int(found["outlet_x"][0])
    assert 20 <= row <= 30
    assert 15 <= column <= 25
    assert count.values[row, column] == near.max()
    assert int((found["watershed"] == 0).sum()) == near.max()


def test_outlets_of_a_layer_bear_its_labels() -> None:
    codes = np.full((5, 5), 7, np.uint8)
    layer = gpd.GeoDataFrame({"gauge": [70, 30]}, geometry=[Point(2, 4), Point(2, 2)])
    found = og.watersheds(codes, layer, label="gauge", codes="taudem")
    assert found["watershed"].values[:, 2].tolist() == [30, 30, 30, 70, 70]
    assert (found["watershed"].values[:, 1] == -1).all()
    assert found["label"].values.tolist() == [70, 30]
    assert found["parent"].values.tolist() == [-1, 70]


CODES = np.full((20, 20), 7, np.uint8)
CODES[3, 4] = 255
CIRCLE = CODES.copy()
CIRCLE[9, 7:9] = 1, 5
LINES = gpd.GeoDataFrame(geometry=[LineString([(0, 0), (3, 3)])])
REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "outside": (CODES, [(1, 1), (30, 2)], {}, "outlets: point 1 .* lies outside"),
    "nodata": (CODES, [(1, 1), (4, 3)], {}, "outlets: point 1 at row 3, column 4 lies on nodata"),
    "twice": (CODES, [(1, 1), (5, 5), (1, 1)], {}, "outlets: points 0 and 2 lie on one cell"),
    "a circle": (CIRCLE, None, {}, "direction: the water of row 9, column 7 comes back to it"),
    "lines": (CODES, LINES, {}, "outlets: lines or areas; give points"),
    "no accumulation": (CODES, [(1, 1)], {"snap": True}, "snap: True; .* pass accumulation="),
    "no outlets": (CODES, None, {"snap": True, "accumulation": CODES}, "snap: True; it moves out"),
    "no snap": (CODES, [(1, 1)], {"accumulation": CODES}, "accumulation: used with snap= alone"),
    "a label": (CODES, [(1, 1)], {"label": "x"}, "label: 'x'; it is a column"),
}


@pytest.mark.parametrize("tile", [8, None])
@pytest.mark.parametrize(
    ("codes", "outlets", "options", "says"), REFUSED.values(), ids=[*REFUSED.keys()]
)
def test_what_has_no_watersheds_is_refused(
    codes: Any, outlets: Any, options: dict[str, Any], says: str, tile: int | None
) -> None:
    with pytest.raises(og.InputError, match=says):
        og.watersheds(codes, outlets, codes="taudem", tile=tile, **options)
