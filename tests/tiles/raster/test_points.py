"""Points of vector layers are brought to the raster; what is no point, or no number, is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from pyproj import CRS, Transformer
from shapely import LineString, MultiPoint, Point, Polygon, box

import orograph as og
from orograph.tiles.grid.cf import georeference_of
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.points import as_points, cells_of

ALBERS, CONUS, UTM = "EPSG:3310", "EPSG:5070", "EPSG:32611"
SHAPE = (6, 8)


@dataclass
class Series:
    """What a GeoSeries offers here; GeoPandas is no dependency, not even of the tests."""

    shapes: list[Any]
    crs: CRS | None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.shapes)

    @property
    def geom_type(self) -> list[str | None]:
        return [shape and shape.geom_type for shape in self.shapes]


@dataclass
class Frame:
    """And a GeoDataFrame."""

    geometry: Series


def layer(points: Any, crs: str | None) -> Frame:
    return Frame(Series([Point(*p) for p in points], None if crs is None else CRS(crs)))


def friction(crs: str | None = ALBERS) -> xr.DataArray:
    """Cells of a kilometre in California."""
    axes = {"y": 0.0 - 1000 * np.arange(SHAPE[0]), "x": 100_000.0 + 1000 * np.arange(SHAPE[1])}
    raster = xr.DataArray(np.ones(SHAPE), axes, ("y", "x"))
    return raster if crs is None else raster.rio.write_crs(crs)


def moved(points: Any, crs: str) -> list[tuple[float, float]]:
    across = Transformer.from_crs(ALBERS, crs, always_xy=True).transform
    return [across(x, y) for x, y in points]


AT = [(102_000.0, -3000.0), (106_000.0, -1000.0)]

TAKES_POINTS: dict[str, Callable[[Any, Path], Any]] = {
    "cost_distance": lambda points, _: og.cost_distance(friction(), points)["cost"].values,
    "hop_distance": lambda points, _: og.hop_distance(friction(), points)["hops"].values,
    "least_cost_path": lambda points, _: [
        path.coordinates
        for path in og.least_cost_path(
            og.cost_distance(friction(), [(100_000, 0)], outputs=("cost", "back_direction")), points
        )
    ],
    "is_connected": lambda points, _: og.is_connected(friction(), (100_000, 0), points).hops,
    "DistanceIndex": lambda points, folder: og.DistanceIndex.build(
        friction(), folder / "index.zarr", block=4, levels=0, overwrite=True
    ).distance_matrix(points).values,
}  # fmt: skip


@pytest.mark.parametrize("function", TAKES_POINTS)
def test_a_layer_in_another_crs_means_the_same_places(function: str, tmp_path: Path) -> None:
    ask = TAKES_POINTS[function]
    bare = ask(AT, tmp_path)
    there = ask(layer(moved(AT, CONUS), CONUS), tmp_path)
    assert all(np.array_equal(a, b) for a, b in zip(bare, there, strict=True))
    with pytest.raises(og.InputError, match=r"no CRS, but the raster's is .*California"):
        ask(layer(AT, None), tmp_path)


@pytest.mark.parametrize("crs", [CONUS, UTM, "EPSG:4326", "EPSG:4269"])
def test_layers_are_reprojected(crs: str) -> None:
    place = georeference_of(friction())
    for given in (layer(moved(AT, crs), crs), layer(moved(AT, crs), crs).geometry):
        assert as_points(given, "points", place) == pytest.approx(np.array(AT), abs=1e-3)


def test_a_layer_in_the_crs_of_the_raster_keeps_its_bits() -> None:
    """However it is written: by code, in the text that GDAL writes, with heights."""
    place = georeference_of(friction())
    points = [(102_000.1, -3000.3)]
    for crs in (ALBERS, CRS(ALBERS).to_wkt("WKT1_GDAL"), "EPSG:3310+5703"):
        assert as_points(layer(points, crs), "points", place).tolist() == [[102_000.1, -3000.3]]


def test_a_layer_with_a_crs_on_a_raster_without_is_refused() -> None:
    for raster in (friction(None), np.ones(SHAPE)):
        with pytest.raises(og.InputError, match=r"CRS is .*Conus.*raster has none.*write_crs"):
            og.cost_distance(raster, layer(AT, CONUS))
    assert og.cost_distance(friction(None), layer(AT, None)).attrs["reached_cells"] == 48


def test_points_without_a_place_in_the_crs_are_refused() -> None:
    poles = layer([(0.0, 90.0), (np.inf, 0.0)], "EPSG:4326")
    with pytest.raises(og.InputError, match=r"geometry 1 .*finite"):
        og.cost_distance(friction(), poles)
    with pytest.raises(og.InputError, match=r"geometry 0 .*no place in the raster's"):
        og.cost_distance(friction("EPSG:3395"), layer([(0.0, 90.5)], "EPSG:4326"))


@pytest.mark.parametrize("crs", [CONUS, "EPSG:4326", "EPSG:32610"])
def test_a_raster_of_sources_in_another_crs_is_refused(crs: str) -> None:
    labels = friction(None).astype(np.int32).rio.write_crs(crs)
    with pytest.raises(og.InputError, match=r"sources: its CRS is .*reproject_match"):
        og.cost_distance(friction(), labels)
    with pytest.raises(og.InputError, match=r"friction: its CRS is .*reproject_match"):
        og.walking_time(friction(), AT, friction=friction(crs))


@pytest.mark.parametrize("by", [0.1, 3.0, 0.02])
def test_the_refusal_of_another_grid_shows_the_digits_that_differ(by: float) -> None:
    axes = {"y": 5_000_000 - 10.0 * np.arange(6), "x": 600_005 + 10.0 * np.arange(8)}
    raster = xr.DataArray(np.ones(SHAPE), axes, ("y", "x"))
    other = raster.assign_coords(x=raster.x + by)
    with pytest.raises(og.InputError) as refused:
        og.walking_time(raster, [(600_005.0, 5_000_000.0)], friction=other)
    own, first = re.findall(r"\d{6}(?:\.\d+)?", str(refused.value))
    assert (float(own), float(first)) == (600_005 + by, 600_005)


def test_the_refusal_of_another_crs_of_the_same_name_shows_where_they_differ() -> None:
    one, other = (CRS(f"+proj=tmerc +lon_0={lon} +datum=WGS84").to_wkt() for lon in (9, 9.5))
    labels = friction(other).astype(np.int32)
    with pytest.raises(og.InputError, match=r"its CRS is unknown .*9\.5.*unknown .*9[^.]"):
        og.cost_distance(friction(one), labels)


@pytest.mark.filterwarnings("ignore:.*all cells are sources")
def test_a_raster_in_the_same_crs_written_otherwise_is_taken() -> None:
    text = CRS(ALBERS).to_wkt("WKT1_GDAL")
    labels = friction(None).astype(np.int32)
    for raster in (labels, labels.rio.write_crs(text)):
        assert og.cost_distance(friction(), raster).attrs["reached_cells"] == 48


NO_POINTS: dict[str, tuple[Any, str]] = {
    "areas": (Series([Point(0, 0), Polygon([(0, 0), (1, 0), (1, 1)])], None), "geometry 1 is a Poly"
              ".*representative_point"),
    "several points each": (Series([MultiPoint([(0, 0), (1, 1)])], None), "geometry 0 is a Multi"
                            ".*explode"),
    "areas in a list": ([Polygon([(0, 0), (1, 0), (1, 1)])], "geometry 0 is a Polygon"),
    "one area": (Polygon([(0, 0), (1, 0), (1, 1)]), "geometry 0 is a Polygon"),
    "a missing geometry": (Series([Point(0, 0), None], None), "geometry 1 is missing"),
    "complex numbers": (np.array([(1, 2 + 3j)]), "complex128; give real numbers"),
    "complex numbers in a list": ([(1, 2j)], "complex128; give real numbers"),
    "words": ([("a", "b")], "give real numbers"),
    "points of unlike length": ([(1, 2), (3,)], "give numbers"),
    "one empty point": (Point(), "geometry 0 is empty"),
    "an empty point in a list": ([Point(1, 1), Point()], "geometry 1 is empty"),
    "an object without y": ([SimpleNamespace(x=1, y=2), SimpleNamespace(x=1)], "give points, each"),
    "no geometry among geometries": ([Point(1, 1), "x"], "item 1, 'x', is not a geometry"),
    "a raster's path": ("dem.tif", "is a path, and not of a vector file; give points"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_POINTS)
def test_no_points(case: str) -> None:
    given, says = NO_POINTS[case]
    with pytest.raises(og.InputError, match=f"points: .*{says}"):
        og.pass_elevation(np.ones(SHAPE), given)


def test_a_point_may_be_a_multipoint_of_one() -> None:
    place = georeference_of(friction(None))
    one = MultiPoint([(102_000, -3000)])
    for given in (one, [one], Series([one], None)):
        assert as_points(given, "points", place).tolist() == [[102_000, -3000]]


def test_a_vector_file_is_no_raster_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "cores.shp"
    path.write_bytes(b"\0\0\x27\x0a")
    with pytest.raises(og.InputError, match=r"vector file.*og.rasterize") as caught:
        og.cost_distance(path, AT)
    assert "Convert it to GeoTIFF" not in str(caught.value)


SNAPS = [1.5, "2", -1, None, np.nan]


@pytest.mark.parametrize("snap", SNAPS, ids=repr)
def test_snap_is_not_cut(snap: Any) -> None:
    back = xr.Dataset({name: (("y", "x"), np.zeros(SHAPE, np.uint8))
                       for name in ("cost", "back_direction")})  # fmt: skip
    for ask in (
        lambda: og.cost_distance(np.ones(SHAPE), [(0, 0)], snap=snap),
        lambda: og.hop_distance(np.ones(SHAPE), [(0, 0)], snap=snap),
        lambda: og.is_connected(np.ones(SHAPE), (0, 0), (1, 1), snap=snap),
        lambda: og.least_cost_path(back, [(0, 0)], snap=snap),
    ):
        with pytest.raises(og.InputError, match=r"snap: .*whole number of cells"):
            ask()


def test_a_source_of_hops_on_a_barrier_does_not_lie_on_nodata() -> None:
    with pytest.raises(og.InputError, match="lies on cells that are not passable; move it"):
        og.hop_distance(np.zeros(SHAPE), [(0, 0)])


DEGREES = Georeference.from_geotransform((-84.5, 0.25, 0.0, 36.75, 0.0, -0.125), (4, 6))


@pytest.mark.parametrize(
    ("point", "place", "shape", "says"),
    [
        # the edges of the outermost cells, not their centres
        ((0, 0), DEGREES, (4, 6), "span x = -84.5 to -83 and y = 36.25 to 36.75; are they in its"),
        ((9, 9), Georeference(), (4, 6), r"span x = -0.5 to 5.5 and y = -0.5 to 3.5; are they in"),
        ((0, 9), Georeference(), (1, 6), r"span x = -0.5 to 5.5 and y = -0.5 to 0.5; are they in"),
        # latitude, longitude
        ((36.5, -84), DEGREES, (4, 6), "as \\(y, x\\) they would be inside: give x first"),
        ((36.2, -84), DEGREES, (4, 6), "are they in its coordinate system"),
        ((5, 3), Georeference(), (6, 5), "as \\(y, x\\) they would be inside: give x first"),
    ],
)
def test_points_outside_are_told_where_the_cells_are(
    point: tuple[float, float], place: Georeference, shape: tuple[int, int], says: str
) -> None:
    with pytest.raises(og.InputError, match=f"lies outside the grid.*{says}"):
        cells_of(np.array([point], float), place, shape, "points")


def test_a_hint_is_given_only_if_all_points_would_be_inside() -> None:
    points = np.array([[-84.0, 36.5], [36.5, -84.0], [0.0, 0.0]])
    with pytest.raises(og.InputError, match=r"point 1 .*point 2 .*are they in its coordinate sys"):
        cells_of(points, DEGREES, (4, 6), "points")
    with pytest.raises(og.InputError, match=r"point 1 .*as .y, x. they would be inside"):
        cells_of(points[:2], DEGREES, (4, 6), "points")


def distances_from(raster: xr.DataArray) -> xr.Dataset:
    middle = [(float(raster[raster.dims[1]][0]), float(raster[raster.dims[0]][0]))]
    return og.cost_distance(raster, middle, outputs=("cost", "back_direction"))


ON_A_RASTER: dict[str, Callable[[xr.DataArray, Any, Path], Any]] = {
    "cost_distance": lambda raster, at, _: og.cost_distance(raster, at)["cost"],
    "hop_distance": lambda raster, at, _: og.hop_distance(raster, at)["hops"],
    "walking_time": lambda raster, at, _: og.walking_time(raster, at)["time"],
    "source_cost": lambda raster, at, _: og.cost_distance(
        raster, at, source_cost={"multiplier": 2}
    )["cost"],
    "least_cost_path": lambda raster, at, _: og.least_cost_path(distances_from(raster), at),
    "is_connected": lambda raster, at, _: og.is_connected(raster, at, at).hops,
    "DistanceIndex": lambda raster, at, folder: og.DistanceIndex.build(
        raster, folder / "index.zarr", block=4, levels=0, overwrite=True
    ).distance_matrix(at),
    "fill_depressions": lambda raster, at, _: og.fill_depressions(raster, outlets=at),
    "flood_level": lambda raster, at, _: og.flood_level(raster, at),
    "watersheds": lambda raster, at, _: og.watersheds(og.flow_direction(raster), at),
    "rasterize": lambda raster, at, _: og.rasterize([Point(*at[0])], raster),
}  # fmt: skip
STRIPS = {
    "one column": ((30, 1), (700_000.0, 4_999_995.0)),
    "one row": ((1, 30), (600_003.5, 4_000_000.0)),
    "one cell": ((1, 1), (600_003.5, 4_900_000.0)),
}


@pytest.mark.parametrize("georeferenced", [True, False], ids=["transform", "coordinates alone"])
@pytest.mark.parametrize("strip", STRIPS)
@pytest.mark.parametrize("operation", ON_A_RASTER)
def test_a_point_far_off_a_single_row_or_column_is_outside(
    operation: str, strip: str, georeferenced: bool, tmp_path: Path
) -> None:
    shape, far = STRIPS[strip]
    place = Georeference.from_geotransform((600_000.0, 7.0, 0.0, 5_000_000.0, 0.0, -10.0), shape)
    raster = xr.DataArray(np.ones(shape), place.coords(), ("y", "x"))
    if not georeferenced and operation != "rasterize":  # which refuses it
        raster = raster.drop_vars("spatial_ref")
    ON_A_RASTER[operation](raster, [(600_003.5, 4_999_995.0)], tmp_path)
    with pytest.raises(og.InputError, match="outside the grid"):
        ON_A_RASTER[operation](raster, [far], tmp_path)


def test_the_cell_of_a_single_column_ends_where_its_transform_says() -> None:
    place = Georeference.from_geotransform((600_000.0, 7.0, 0.0, 5_000_000.0, 0.0, -10.0), (30, 1))
    cells_of(np.array([(600_000.0, 4_999_995.0), (600_007.0, 4_999_995.0)]), place, (30, 1), "p")
    with pytest.raises(og.InputError, match="span x = 600000 to 600007 and"):
        cells_of(np.array([(600_007.1, 4_999_995.0)]), place, (30, 1), "p")


def globe(first: float, crs: str | None = "EPSG:4326") -> xr.DataArray:
    axes = {"lat": 15.0 - 10 * np.arange(4), "lon": first + 10 * np.arange(36)}
    raster = xr.DataArray(np.ones((4, 36)), axes, ("lat", "lon"))
    return raster if crs is None else raster.rio.write_crs(crs)


def as_values(result: Any) -> str:
    return repr([path.cells.tolist() for path in result] if isinstance(result, list)
                else np.asarray(getattr(result, "values", result)).tolist())  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*goes around the globe")
@pytest.mark.parametrize("operation", ON_A_RASTER)
@pytest.mark.parametrize(("first", "given", "turned"), [(5, -65, 295), (-175, 295, -65)])
def test_longitudes_are_turned_to_those_of_the_grid(
    operation: str, first: float, given: float, turned: float, tmp_path: Path
) -> None:
    results = [
        as_values(ON_A_RASTER[operation](globe(first), [(x, 5.0)], tmp_path))
        for x in (given, turned)
    ]
    assert results[0] == results[1]


@pytest.mark.filterwarnings("ignore:.*goes around the globe")
def test_longitudes_of_a_grid_without_a_crs_are_known_by_name() -> None:
    assert og.is_connected(globe(5, None), [(-65.0, 5.0)], [(295.0, 5.0)]).hops == 0


def test_longitudes_are_turned_in_degrees_alone() -> None:
    raster = globe(5).drop_vars("spatial_ref").rename(lat="y", lon="x").rio.write_crs(ALBERS)
    with pytest.raises(og.InputError, match="outside the grid"):
        og.cost_distance(raster, [(-65.0, 5.0)])


@pytest.mark.parametrize(
    "shape",
    [box(-20, -20, 20, 20), LineString([(-20, 5), (20, 5)]), MultiPoint([(-15, 5), (15, 5)])],
    ids=["an area", "a line", "points"],
)
def test_geometries_across_the_edge_of_a_globe_are_burnt_on_both_sides(shape: Any) -> None:
    burnt = (og.rasterize([shape], globe(5)) == 0).roll(lon=18).values
    assert (burnt == (og.rasterize([shape], globe(-175)) == 0).values).all()
    assert burnt.any()
