"""Streams are cut into links at confluences, with their orders and lengths, for any tiling."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import flow_of_peers
import numpy as np
import oracle_flow as oracle
import pytest
import shapely
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import CRS
from terrain_cases import Case, cases, fractal, properties

import orograph as og

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*no link was found"),
    # drawn heights may look like an undeclared nodata value
    pytest.mark.filterwarnings("ignore:.*the least value is"),
    pytest.mark.filterwarnings("ignore:.*links have no line"),
]

Cell = tuple[int, int]


def network(step: np.ndarray, leaves: np.ndarray, streams: np.ndarray) -> dict[Cell, list[Cell]]:
    """The cells of each link by its first, by plain loops; and that to which it flows, if any."""
    cells = [tuple(cell) for cell in np.argwhere(streams).tolist()]

    def below(cell: Cell) -> Cell | None:
        if step[cell] >= 8 or leaves[cell]:
            return None
        dy, dx = oracle.STEPS[step[cell]]
        return cell[0] + dy, cell[1] + dx

    flows = {cell: target for cell in cells if (target := below(cell)) and streams[target]}
    into = list(flows.values())
    heads = [cell for cell in cells if into.count(cell) != 1]
    links = {}
    for head in heads:
        way = [head]
        while way[-1] in flows:
            way.append(flows[way[-1]])
            if way[-1] in heads:
                break
        links[head] = way
    return links


def orders(links: dict[Cell, list[Cell]]) -> dict[Cell, tuple[int, int]]:
    """The Strahler and Shreve order of each link, from the heads of the network down."""
    above: dict[Cell, list[Cell]] = {head: [] for head in links}
    for head, way in links.items():
        if way[-1] in links and way[-1] != head:
            above[way[-1]].append(head)
    found: dict[Cell, tuple[int, int]] = {}
    while len(found) < len(links):
        for head in links:
            if head not in found and all(other in found for other in above[head]):
                own = [found[other] for other in above[head]]
                if not own:
                    found[head] = 1, 1
                    continue
                most = max(strahler for strahler, _ in own)
                twice = [strahler for strahler, _ in own].count(most) > 1
                found[head] = most + twice, sum(shreve for _, shreve in own)
    return found


@settings(properties, max_examples=60)
@given(cases(), st.integers(1, 9), st.sampled_from(tuple(oracle.CODES)), st.booleans())
def test_any_tiling_gives_the_links_of_plain_loops(
    case: Case, threshold: int, encoding: str, gaps: bool
) -> None:
    step, leaves = oracle.directions(case.elevation, case.valid)
    codes = oracle.encode(step, leaves, case.valid, encoding).astype(np.int16)
    amounts = oracle.accumulate(step, leaves, np.ones(step.shape, int)).astype(float)
    if gaps:  # streams that end on their way
        amounts *= np.random.default_rng(threshold).random(step.shape)
    amounts[~case.valid] = np.nan
    found = og.streams(
        codes, amounts, threshold, elevation=case.elevation, codes=encoding, **case.cut
    )
    links = network(step, leaves, case.valid & (amounts >= threshold))
    of_links = orders(links)
    number = {head: n for n, head in enumerate(links, 1)}
    assert found.attrs["link_count"] == len(links)
    expected = np.zeros(step.shape, int)
    for head, way in links.items():
        own = way[:-1] if len(way) > 1 and way[-1] in links else way
        for cell in own:
            expected[cell] = number[head]
    np.testing.assert_array_equal(found["link"], expected)
    strahler = np.array([0, *(of_links[head][0] for head in links)])
    np.testing.assert_array_equal(found["order"], strahler[expected])
    np.testing.assert_array_equal(found["strahler"], strahler[1:])
    np.testing.assert_array_equal(found["shreve"], [of_links[head][1] for head in links])
    heights = case.elevation.astype(float)
    at = dict(zip(range(1, len(links) + 1), links, strict=True))
    for head, way in links.items():
        k = number[head] - 1
        flows = len(way) > 1 and way[-1] in links
        assert found["downstream"][k] == (number[way[-1]] if flows else 0)
        assert float(found["drop"][k]) == pytest.approx(heights[head] - heights[way[-1]], abs=1e-9)
        length = sum(math.dist(a, b) for a, b in pairwise(way))
        assert float(found["length"][k]) == pytest.approx(length, abs=1e-4)
        own = np.flatnonzero(found["vertex_link"].values == k + 1)
        cells = way[:-1] if flows else way
        vertices = [found["vertex_y"].values[own], found["vertex_x"].values[own]]
        assert list(zip(*vertices, strict=True)) == cells
        above = [other for other in links if links[other][-1] == head and other != head]
        if above:
            most = max(above, key=lambda other: (amounts[links[other][-2]], -number[other]))
            assert at[int(found["upstream"][k])] == most
        else:
            assert found["upstream"][k] == 0
    whole = og.streams(codes, amounts, threshold, elevation=case.elevation, codes=encoding)
    xr.testing.assert_identical(found, whole)


def test_orders_of_pyflwdir() -> None:
    pyflwdir = pytest.importorskip("pyflwdir")
    esri = flow_of_peers.esri_codes()
    peer = pyflwdir.from_array(esri, ftype="d8")
    count = peer.upstream_area()
    streams = count >= 20
    found = og.streams(esri, count, 20, codes="esri", tile=32)
    np.testing.assert_array_equal(found["order"], peer.stream_order(mask=streams, type="strahler"))


@pytest.mark.parametrize("tile", [16, None])
def test_lines_lead_from_link_to_link(tile: int | None, tmp_path: Path) -> None:
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:32617").to_wkt()})
    heights = fractal(100)
    place = {"y": 5e6 - 10.0 * np.arange(100), "x": 4e5 + 10.0 * np.arange(100)}
    heights = xr.DataArray(heights, place, ("y", "x")).assign_coords(spatial_ref=crs)
    flow = og.flow_direction(heights)
    count = og.flow_accumulation(flow)["accumulation"]
    found = og.streams(flow, count, 30, elevation=heights, tile=tile, out=tmp_path / "net.zarr")
    found.load()  # row by row it would be read a thousand times
    layer = og.stream_lines(tmp_path / "net.zarr")
    assert CRS(layer.crs) == CRS("EPSG:32617")
    lines = dict(zip(layer.columns["link"].tolist(), layer.geometry, strict=True))
    for link, line in lines.items():
        below = int(found["downstream"][link - 1])
        if below in lines:
            assert line.coords[-1] == lines[below].coords[0]
        assert line.length == pytest.approx(float(found["length"][link - 1]), abs=1e-3)
    assert shapely.is_valid(layer.geometry).all()
    # each cell of a stream lies on its line
    y, x = (values.tolist() for values in np.nonzero(found["link"].values))
    for row, column in zip(y, x, strict=True):
        line = lines.get(int(found["link"][row, column]))
        point = shapely.Point(place["x"][column], place["y"][row])
        assert line is None or line.distance(point) < 1e-9
    layer.to_file(tmp_path / "streams.gpkg")
    assert (
        og.stream_lines(og.open(tmp_path / "net.zarr"))
        .to_geodataframe()
        .equals(layer.to_geodataframe())
    )


@pytest.mark.parametrize("tile", [1, 2, None])
def test_circles_are_refused(tile: int | None) -> None:
    codes = np.array([[1, 7, 7], [3, 5, 5]], np.uint8)
    sentence = "direction: the water of row [01], column [01] comes back"
    for threshold in (1, 2):
        amounts = np.array([[2, 2, 1], [2, 2, 1]])
        with pytest.raises(og.InputError, match=sentence):
            og.streams(codes, amounts, threshold, codes="taudem", tile=tile)


def test_no_streams_at_all() -> None:
    found = og.streams(np.ones((4, 4), np.uint8), np.ones((4, 4)), 9, codes="taudem", tile=2)
    assert found.attrs["link_count"] == found.sizes["links"] == found.sizes["vertices"] == 0
    assert len(og.stream_lines(found)) == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"accumulation": np.ones((3, 3))}, "accumulation: 3 x 3 cells, but"),
        ({"direction": np.full((4, 4), 255, np.uint8)}, "accumulation: the cell at row 0, column"),
        ({"threshold": 0}, "threshold: 0; it must be a number"),
    ],
)
def test_what_has_no_streams_is_refused(change: dict[str, Any], sentence: str) -> None:
    arguments = {
        "direction": np.ones((4, 4), np.uint8), "accumulation": np.ones((4, 4)), "threshold": 1,
    } | change  # fmt: skip
    with pytest.raises(og.InputError, match=sentence):
        og.streams(**arguments, codes="taudem")


def test_other_results_have_no_lines() -> None:
    with pytest.raises(og.InputError, match="streams: it has no table of links"):
        og.stream_lines(og.flow_direction(fractal(9)))
