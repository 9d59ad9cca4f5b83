"""Roads as links: cut at cells, joined at nodes, with speeds, directions and access."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import oracle_roads as oracle
import pyogrio
import pytest
import rioxarray  # noqa: F401
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_roads import Road
from shapely import LineString, MultiLineString, Point

import orograph as og

ROAD = LineString([(0, 0), (3, 0)])
GROUND = np.full((3, 4), 2.0)


def layer_of(roads: Sequence[Road]) -> geopandas.GeoDataFrame:
    columns = {
        "kmh": [road.speed for road in roads],
        "way": [{0: "no", 1: "yes", -1: "-1"}[road.oneway] for road in roads],
        "gates": [road.access for road in roads],
    }
    return geopandas.GeoDataFrame(columns, geometry=[LineString(road.points) for road in roads])


COLUMNS = {"speed": "kmh", "oneway": "way", "access": "gates"}


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, list[Road], int]:
    shape = draw(st.tuples(st.integers(1, 7), st.integers(2, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    friction = rng.integers(1, 20, shape) / 4
    friction[rng.random(shape) < draw(st.sampled_from([0.0, 0.2, 0.5]))] = np.nan
    friction.flat[rng.integers(friction.size)] = 1
    # borders and corners of cells among them, and points outside
    size = np.array([shape[1], shape[0]])
    beyond = draw(st.sampled_from([0, 0, 1]))
    count = draw(st.integers(3, 24)), 2
    known = rng.integers(-4 * beyond, 4 * (size + beyond) + 1, count) / 4 - 0.5
    anywhere = rng.random(known.shape) * (size + 2 * beyond) - 0.5 - beyond
    spots = np.where(rng.random((len(known), 1)) < draw(st.sampled_from([0, 0.7])), anywhere, known)
    straight = draw(st.sampled_from(["everywhere", "ends", "junctions", "any"]))
    kinds = ["everywhere", "ends", "junctions"] if straight == "any" else [straight]
    roads = []
    for _ in range(draw(st.integers(1, 9))):
        chosen = spots[rng.integers(len(spots), size=rng.integers(2, 6))]
        points = tuple((float(x), float(y)) for x, y in chosen)
        if len(set(points)) > 1:
            oneway = int(rng.integers(-1, 2)) if draw(st.booleans()) else 0
            roads.append(Road(points, float(rng.integers(1, 90)), oneway, str(rng.choice(kinds))))
    if not roads:
        roads.append(Road(((0.0, 0.0), (1.0, 0.0))))
    return friction, roads, draw(st.integers(1, 9))


def assert_least(friction: np.ndarray, roads: Sequence[Road], tile: int) -> None:
    links = None  # where no road passes a valid cell
    with suppress(og.InputError):
        links = og.roads(layer_of(roads), like=friction, **COLUMNS)
    cells = np.argwhere(np.isfinite(friction))
    row, column = (int(n) for n in cells[len(cells) // 2])
    found = og.cost_distance(friction, [(column, row)], links=links, tile=tile)["cost"]
    expected = oracle.costs(oracle.union(friction, roads), friction.shape, (row, column))
    np.testing.assert_allclose(found.values, expected, rtol=1e-9, atol=1e-12)
    again = og.cost_distance(friction, [(column, row)], links=links, tile=64)["cost"]
    np.testing.assert_array_equal(found.values, again.values)


@pytest.mark.filterwarnings("ignore:.*outside of the raster")
@given(cases())
@settings(max_examples=60, deadline=None)
def test_costs_are_those_of_ground_and_roads_as_one_graph(
    case: tuple[np.ndarray, list[Road], int],
) -> None:
    assert_least(*case)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*outside of the raster")
@given(cases())
@settings(max_examples=1500, deadline=None)
def test_costs_are_those_of_ground_and_roads_as_one_graph_many(
    case: tuple[np.ndarray, list[Road], int],
) -> None:
    assert_least(*case)


# --- what roads cost --------------------------------------------------------------------------


@pytest.mark.parametrize("points", [0, 40], ids=["straight", "winding"])
@pytest.mark.parametrize("lines", [1, 5], ids=["one line", "cut into five"])
def test_following_a_road_costs_its_length(points: int, lines: int) -> None:
    rng = np.random.default_rng(points)
    way = np.concatenate([[[0.1, 0.2]], rng.random((points, 2)) * (29, 19), [[29, 19]]])
    cuts = np.linspace(0, len(way) - 1, lines + 1).round().astype(int)
    parts = [LineString(way[a : b + 1]) for a, b in pairwise(cuts) if b > a]
    links = og.roads(parts, like=np.full((20, 30), 1e9), speed=36)
    first, last = (
        int(np.abs(np.stack([links.coordinates[n] for n in "xy"], 1) - end).sum(1).argmin())
        for end in (way[0], way[-1])
    )
    cost = og.shortest_paths(links, first)["cost"].values[0, last]
    length = np.hypot(*np.diff(way, axis=0).T).sum()
    assert cost == pytest.approx(length / 10)


def test_units_and_lengths() -> None:
    for options, expected in (
        ({"speed": 36}, 0.3), ({"speed": 36, "unit": "min"}, 0.005), ({"cost": "length"}, 3.0),
        ({"speed": 36, "unit": "h"}, 0.3 / 3600), ({"speed": 36, "cost": "length"}, 3.0),
    ):  # fmt: skip
        links = og.roads([ROAD], like=GROUND, **options)
        assert links.rows.weight.sum() / 2 == pytest.approx(expected)


def placed(crs: str, corner: tuple[float, float], side: float) -> xr.DataArray:
    x = corner[0] + side * (np.arange(40) + 0.5)
    y = corner[1] - side * (np.arange(30) + 0.5)
    raster = xr.DataArray(np.full((30, 40), 5.0), {"y": y, "x": x}, ("y", "x"))
    return raster.rio.write_crs(crs)


def test_lengths_are_geodesic_on_geographic_rasters() -> None:
    from pyproj import Geod

    raster = placed("EPSG:4326", (7.0, 46.3), 0.01)
    line = LineString([(7.05, 46.25), (7.35, 46.05)])
    links = og.roads(geopandas.GeoSeries([line], crs="EPSG:4326"), like=raster, cost="length")
    expected = Geod(ellps="WGS84").geometry_length(line)
    assert links.rows.weight.sum() / 2 == pytest.approx(expected)


def test_times_are_those_of_metres_whatever_the_unit_of_the_raster() -> None:
    raster = placed("EPSG:2225", (6_000_000.0, 2_000_000.0), 100.0)  # feet
    x, y = raster.x.values, raster.y.values
    line = geopandas.GeoSeries([LineString([(x[0], y[0]), (x[10], y[0])])], crs="EPSG:2225")
    time = og.roads(line, like=raster, speed=3.6).rows.weight.sum() / 2
    assert time == pytest.approx(1000 * 1200 / 3937)
    length = og.roads(line, like=raster, cost="length").rows.weight.sum() / 2
    assert length == pytest.approx(1000)


def test_a_layer_is_brought_to_the_crs_of_the_raster() -> None:
    raster = placed("EPSG:32632", (400_000.0, 5_100_000.0), 100.0)
    there = geopandas.GeoSeries(
        [LineString([(400_150, 5_099_050), (402_950, 5_098_050)])], crs="EPSG:32632"
    )
    one, other = (
        og.roads(layer, like=raster, speed=50) for layer in (there, there.to_crs("EPSG:4326"))
    )
    np.testing.assert_allclose(one.rows.weight, other.rows.weight, rtol=1e-6)
    for name in "xy":
        np.testing.assert_allclose(one.coordinates[name], other.coordinates[name], atol=1e-2)


# --- where roads meet, and where one gets on and off -------------------------------------------


def barrier() -> np.ndarray:
    """Ground with a river of three columns."""
    friction = np.full((7, 11), 10.0)
    friction[:, 4:7] = np.nan
    return friction


@pytest.mark.parametrize("tile", [2, 5, 64])
def test_a_bridge_is_not_left_in_its_middle(tile: int) -> None:
    friction = barrier()
    friction[2:5, 5] = 10.0  # an island below the bridge
    bridge = [LineString([(2, 3), (5, 3)]), LineString([(5, 3), (8, 3)])]
    given = {"like": friction, "speed": 36}
    for access, on_island in (("everywhere", True), ("ends", True), ("junctions", False)):
        links = og.roads(bridge, access=access, **given)
        cost = og.cost_distance(friction, [(2, 3)], links=links, tile=tile)["cost"].values
        assert cost[3, 8] == pytest.approx(0.6)
        assert np.isfinite(cost[3, 5]) == on_island


def test_roads_that_cross_without_a_point_in_common_are_not_joined() -> None:
    east, north = LineString([(0, 3), (10, 3)]), LineString([(5, 0), (5, 6)])
    for access in ("ends", "junctions"):
        links = og.roads([east, north], like=np.full((7, 11), 10.0), speed=36, access=access)
        assert links.edge_count == 2
        assert np.isinf(og.shortest_paths(links, 0)["cost"].values).sum() == 2
    shared = [LineString([(0, 3), (5, 3), (10, 3)]), LineString([(5, 0), (5, 3), (5, 6)])]
    links = og.roads(shared, like=np.full((7, 11), 10.0), speed=36, access="junctions")
    assert sorted(og.shortest_paths(links, 0)["cost"].values[0]) == pytest.approx([0, 0.8, 0.8, 1])


def test_one_way_roads_lead_one_way() -> None:
    for options, there, back in (
        ({"oneway": True}, True, False), ({"oneway": False}, True, True), ({}, True, True),
    ):  # fmt: skip
        links = og.roads([LineString([(2, 3), (8, 3)])], like=barrier(), speed=36, **options)
        for source, target, leads in (((2, 3), (3, 8), there), ((8, 3), (3, 2), back)):
            cost = og.cost_distance(barrier(), [source], links=links)["cost"].values
            assert np.isfinite(cost[target]) == leads
        to = og.cost_distance(barrier(), [(8, 3)], links=links, travel="to")["cost"].values
        assert np.isfinite(to[3, 2]) == there


@pytest.mark.parametrize(
    ("tags", "there", "back"),
    [
        ({"oneway": "yes"}, True, False),
        ({"oneway": "-1"}, False, True),
        ({"oneway": "no", "highway": "motorway"}, True, True),
        ({"oneway": None, "highway": "motorway"}, True, False),
        ({"junction": "roundabout"}, True, False),
        ({"oneway": "reversible"}, True, True),
        ({"oneway": True}, True, False),
        ({"oneway": 0}, True, True),
    ],
    ids=str,
)
def test_tags_of_direction(tags: dict[str, Any], there: bool, back: bool) -> None:
    road = geopandas.GeoDataFrame(
        {name: np.array([value], object) for name, value in tags.items()},
        geometry=[LineString([(2, 3), (8, 3)])],
    )
    links = og.roads(road, like=barrier(), speed=36)
    for source, target, leads in (((2, 3), (3, 8), there), ((8, 3), (3, 2), back)):
        cost = og.cost_distance(barrier(), [source], links=links)["cost"].values
        assert np.isfinite(cost[target]) == leads


def test_paths_go_over_roads() -> None:
    friction = barrier()
    links = og.roads([LineString([(2, 3), (8, 3)])], like=friction, speed=36)
    result = og.cost_distance(
        friction, [(0, 0)], links=links, outputs=("cost", "back_direction"), tile=4
    )
    (path,) = og.least_cost_path(result, [(10, 6)])
    assert {(3, 3), (3, 7)} <= {tuple(cell) for cell in path.cells.tolist()}


# --- files ------------------------------------------------------------------------------------

OSM = """<?xml version="1.0"?>
<osm version="0.6" generator="test">
 <bounds minlat="46.0" minlon="7.0" maxlat="46.3" maxlon="7.4"/>
 <node id="1" lat="46.15" lon="7.05"/><node id="2" lat="46.15" lon="7.15"/>
 <node id="3" lat="46.15" lon="7.25"/><node id="4" lat="46.15" lon="7.35"/>
 <node id="5" lat="46.25" lon="7.15"/>
 <way id="10"><nd ref="1"/><nd ref="2"/><tag k="highway" v="primary"/></way>
 <way id="11"><nd ref="2"/><nd ref="3"/><tag k="highway" v="primary"/>
  <tag k="bridge" v="yes"/><tag k="oneway" v="yes"/></way>
 <way id="12"><nd ref="3"/><nd ref="4"/><tag k="highway" v="residential"/></way>
 <way id="13"><nd ref="2"/><nd ref="5"/><tag k="highway" v="footway"/></way>
 <way id="14"><nd ref="1"/><nd ref="5"/><tag k="waterway" v="river"/></way>
</osm>
"""


def test_lines_of_paths_follow_the_road() -> None:
    """A straight road that passes cells off their centres."""
    friction = np.full((12, 40), 50.0)
    road = LineString([(2.0, 3.3), (37.0, 7.9)])
    links = og.roads([road], like=friction, speed=100)
    result = og.cost_distance(friction, [(2, 3)], links=links, outputs=("cost", "back_direction"))
    (path,) = og.least_cost_path(result, [(37, 8)])
    away = [road.distance(Point(*xy)) for xy in path.line[1:-1]]
    assert max(away) < 0.15  # vertices keep 0.1 from borders of cells, both ways in corners
    assert np.median(away) < 1e-9
    assert path.length == pytest.approx(road.length, rel=0.01)
    assert len(path.cells) > 36


def test_extracts_of_openstreetmap(tmp_path: Path) -> None:
    from pyproj import Geod

    (tmp_path / "town.osm").write_text(OSM)
    raster = placed("EPSG:4326", (7.0, 46.3), 0.01)
    with pytest.warns(RuntimeWarning, match=r"lines: 1 of 4 are left out.* footway \(1\);"):
        links = og.roads(tmp_path / "town.osm", like=raster)
    assert links.directed
    step = Geod(ellps="WGS84").inv(7.05, 46.15, 7.15, 46.15)[2]
    west, east = (int(end(links.coordinates["x"])) for end in (np.argmin, np.argmax))
    cost = og.shortest_paths(links, west)["cost"].values[0]
    # each way along a parallel; the second is a bridge at the speed of the first
    assert cost[east] == pytest.approx(3.6 * step * (2 / 65 + 1 / 25), rel=1e-5)
    assert np.isinf(og.shortest_paths(links, east)["cost"].values[0][west])
    over = (links.coordinates["x"] > 7.16) & (links.coordinates["x"] < 7.24)
    assert not over.any()  # no one gets on or off the bridge
    more = og.roads(
        tmp_path / "town.osm", like=raster, speed={"primary": 60, "residential": 30, "footway": 5}
    )
    assert more.coordinates["y"].max() > 46.24
    with pytest.raises(og.InputError, match="speed: it has no class 'footway', of line 3"):
        og.roads(tmp_path / "town.osm", like=raster, speed={"primary": 60, "residential": 30})
    (tmp_path / "none.osm").write_text(OSM.replace("highway", "note"))
    with pytest.raises(og.InputError, match="no way with a tag 'highway'"):
        og.roads(tmp_path / "none.osm", like=raster)
    (tmp_path / "junk.osm.pbf").write_bytes(b"junk")
    for name, message in (
        ("junk.osm.pbf", "not an extract of OpenStreetMap"),
        ("a.osm", "not exist"),
    ):
        with pytest.raises(og.InputError, match=message):
            og.roads(tmp_path / name, like=raster)


@pytest.mark.parametrize("name", ["roads.gpkg", "roads.geojson", "roads.shp"])
def test_vector_files_and_stores(name: str, tmp_path: Path) -> None:
    raster = placed("EPSG:32632", (400_000.0, 5_100_000.0), 100.0)
    lines = MultiLineString(
        [[(400_150, 5_099_050), (402_950, 5_098_050)], [(400_150, 5_099_050), (400_150, 5_098_050)]]
    )
    frame = geopandas.GeoDataFrame({"kmh": [50]}, geometry=[lines], crs="EPSG:32632")
    pyogrio.write_dataframe(frame, tmp_path / name)
    links = og.roads(tmp_path / name, like=raster, speed="kmh", store=tmp_path / "roads.zarr")
    again = og.read_graph(tmp_path / "roads.zarr")
    assert again.edge_count == links.edge_count > 30
    expected = og.roads(frame, like=raster, speed="kmh")
    if name != "roads.geojson":  # which is in degrees
        np.testing.assert_array_equal(links.rows.weight, expected.rows.weight)
    cost = og.cost_distance(raster, [(400_150, 5_099_050)], links=again)["cost"]
    assert float(cost.sel(x=402_950, y=5_098_050)) == pytest.approx(
        lines.geoms[0].length * 3.6 / 50, rel=1e-6
    )


# --- what is refused --------------------------------------------------------------------------

FRAME = geopandas.GeoDataFrame(
    {"kmh": [50.0, 60.0], "highway": ["primary", "track"], "way": ["yes", "sideways"]},
    geometry=[ROAD, LineString([(0, 1), (3, 1)])],
)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lines": []}, "lines: "),
        ({"lines": FRAME.iloc[:0], "speed": 5}, "lines: the layer is empty"),
        ({"lines": [Point(0, 0)], "speed": 5}, "geometry 0 is a Point; give lines alone"),
        ({"lines": [ROAD]}, "no column 'highway'"),
        ({"speed": 0}, "speed: 0; give a positive number"),
        ({"speed": -5}, "speed: -5"),
        ({"speed": np.nan}, "speed: nan"),
        ({"speed": "fast"}, "no column 'fast'; their columns are kmh, highway, way"),
        ({"lines": FRAME.assign(kmh=[50, np.nan]), "speed": "kmh"}, "kmh of line 1 is nan"),
        ({"lines": FRAME.assign(kmh=[0, 50]), "speed": "kmh"}, "kmh of line 0 is 0"),
        ({"speed": {"primary": 50}}, "no class 'track', of line 1"),
        ({"speed": {"primary": None, "track": None}}, "leaves out every line"),
        ({"lines": FRAME.assign(highway="steps")}, "no line is of a class for cars"),
        ({"oneway": "way"}, "way of line 1 is 'sideways'"),
        ({"oneway": "x"}, "no column 'x'"),
        ({"access": "way"}, "access: way of line 0 is 'yes'"),
        ({"access": "nowhere"}, "no column 'nowhere'"),
        ({"cost": "price"}, "cost: 'price' is unknown"),
        ({"unit": "d"}, "unit: 'd' is unknown"),
        ({"lines": FRAME.translate(100), "speed": 5}, "no line passes the raster"),
        ({"like": np.where(np.arange(4) < 9, np.nan, GROUND)}, "nodata cells of the raster alone"),
        ({"lines": FRAME.set_crs("EPSG:32632")}, "CRS is WGS 84 / UTM zone 32N, but the raster"),
        ({"like": placed("EPSG:32632", (0.0, 9.0), 1.0)}, "no CRS, but the raster's is WGS 84"),
        ({"like": xr.DataArray(GROUND, {"y": [3, 2, 0], "x": range(4)}, ("y", "x"))}, "evenly"),
    ],
    ids=str,
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    speed = {} if "speed" in given or "highway" in message or "cars" in message else {"speed": 50}
    with pytest.raises(og.InputError, match=message):
        og.roads(**{"lines": FRAME, "like": GROUND, **speed, **given})


def test_parts_outside_are_left_out() -> None:
    inside = og.roads([LineString([(-0.5, 1), (3.5, 1)])], like=GROUND, speed=36)
    across = og.roads([LineString([(-50, 1), (90, 1)])], like=GROUND, speed=36)
    np.testing.assert_allclose(across.rows.weight, 0.1)
    assert across.edge_count == inside.edge_count == 3
    far = [LineString([(1, 1), (1, 500)]), LineString([(1, 1), (2, 1)])]
    with pytest.warns(RuntimeWarning, match="lines: 1 of 2 are left out, .*points of access$"):
        links = og.roads(far, like=GROUND, speed=36, access="ends")
    assert links.edge_count == 1
