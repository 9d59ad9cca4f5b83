"""What geometries cover: areas as rasterio burns them, lines without a gap."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rasterio.features import rasterize as rasterio_rasterize
from shapely import GeometryCollection, LineString, MultiLineString, MultiPoint, Point, Polygon

import orograph as og
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.layer import LayerRaster
from orograph.tiles.vector.layer import VectorLayer, read_layer

SHAPE = (12, 16)
# the corner of the first cell is (0, 0), rows go down
PLACE = Georeference.from_geotransform((0.0, 1.0, 0.0, 12.0, 0.0, -1.0), SHAPE)
WHOLE = Window(0, 0, *SHAPE)


def raster(geometries: list[shapely.Geometry], all_touched: bool = False) -> LayerRaster:
    layer = read_layer(geometries, "layer")
    assert layer is not None
    return LayerRaster.of_layer(layer, PLACE, SHAPE, "layer", all_touched=all_touched)


# such that no edge goes through the centre of a cell
x = st.floats(-3, 19).map(lambda v: round(v, 3) * 0.998123 + 0.00037)
y = st.floats(-3, 15).map(lambda v: round(v, 3) * 1.001731 + 0.00071)
triangles = st.lists(st.tuples(x, y), min_size=3, max_size=3).map(Polygon)


@settings(max_examples=60, deadline=None)
@given(st.lists(triangles, min_size=1, max_size=3))
def test_areas_are_those_of_rasterio(areas: list[Polygon]) -> None:
    """Away from cell centres, where both may differ."""
    whole = Polygon([(-9, -9), (30, -9), (30, 30), (-9, 30)], [])
    areas = [whole.difference(a) if i % 2 else a for i, a in enumerate(areas)]
    shapes = [(a, i + 1) for i, a in reversed(list(enumerate(areas))) if not a.is_empty]
    expected = rasterio_rasterize(shapes, SHAPE, transform=PLACE.transform, dtype="int32")
    assume(set(range(1, len(areas) + 1)) <= set(np.unique(expected)))  # else one is refused
    assert np.array_equal(raster(areas).read(WHOLE) + 1, expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(triangles, min_size=1, max_size=3), st.booleans(), st.data())
def test_a_window_has_the_cells_of_the_whole(
    areas: list[Polygon], touched: bool, data: st.DataObject
) -> None:
    lines = [shapely.boundary(area) for area in areas if area.area]
    try:
        burnt = raster([*lines, *areas], touched)
    except og.InputError:
        assume(False)
    y, x = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 15))
    window = Window(y, x, data.draw(st.integers(1, 12)), data.draw(st.integers(1, 16))).clip(SHAPE)
    assert np.array_equal(burnt.read(window), burnt.read(WHOLE)[window.slices])


def reaches_east(barrier: np.ndarray, connectivity: int) -> bool:
    friction = np.where(barrier, np.nan, 1.0)
    cost = og.cost_distance(friction, [(0, 0)], connectivity=connectivity)["cost"]
    return bool(np.isfinite(cost[:, -1]).any())


STEEP = st.tuples(st.floats(2, 13), st.floats(2, 13), st.sampled_from([0.0, 0.5, 1.0, 0.3]))


@pytest.mark.parametrize("connectivity", [4, 8, 16])
@settings(max_examples=25, deadline=None)
@given(STEEP)
def test_nothing_slips_through_a_line(connectivity: int, ends: tuple[float, float, float]) -> None:
    top, bottom, share = ends
    if share in (0.0, 0.5, 1.0):  # through corners and along the sides of cells
        top, bottom = np.floor(top) + share, np.floor(bottom) + share
    river = LineString([(top, 12), ((top + bottom) / 2 + share, 6), (bottom, 0)])
    assert not reaches_east(raster([river]).read(WHOLE) == 0, connectivity)


@pytest.mark.parametrize("connectivity", [4, 8, 16])
def test_nothing_slips_through_a_narrow_area(connectivity: int) -> None:
    canal = Polygon([(3.1, 12), (3.2, 12), (12.2, 0), (12.1, 0)])
    assert not reaches_east(raster([canal], all_touched=True).read(WHOLE) == 0, connectivity)
    diagonal = LineString([(2, 12), (14, 0)])
    assert not reaches_east(raster([diagonal]).read(WHOLE) == 0, connectivity)


def test_a_line_takes_what_it_passes_and_no_more() -> None:
    for line in (
        LineString([(1.2, 1.3), (8.7, 10.1), (3.4, 10.2)]),
        LineString([(0, 0), (99, 50)]),
    ):
        burnt = raster([line]).read(WHOLE) == 0
        cells = [
            [shapely.box(c, 11 - r, c + 1, 12 - r).intersects(line) for c in range(16)]
            for r in range(12)
        ]
        assert np.array_equal(burnt, cells)


def test_of_geometries_that_share_a_cell_the_least_label_counts() -> None:
    one, other = Polygon([(0, 4), (6, 4), (6, 9), (0, 9)]), Point(5.5, 6.5)
    collection = GeometryCollection(
        [MultiPoint([(9.5, 1.5)]), MultiLineString([[(10, 0.5), (12.5, 0.5)]]), one]
    )
    layer = VectorLayer(np.array([collection, other], object), {"core": np.array([7, 3.0])}, None)
    burnt = LayerRaster.of_layer(layer, PLACE, SHAPE, "layer", "core")
    cells = burnt.read(WHOLE)
    assert burnt.labels == (3, 7)
    assert cells[5, 5] == 3
    assert cells[5, 4] == cells[10, 9] == cells[11, 12] == 7
    assert np.count_nonzero(cells == 7) == 30 - 1 + 1 + 3


def test_what_lies_outside_or_between_centres_is_refused() -> None:
    sliver = Polygon([(4.1, 4.1), (4.3, 4.1), (4.3, 4.3)])
    with pytest.raises(og.InputError, match=r"geometry 1, a Polygon of .*all_touched=True"):
        raster([Point(1, 1), sliver])
    assert np.count_nonzero(raster([sliver], all_touched=True).read(WHOLE) == 0) == 1
    with pytest.raises(og.InputError, match=r"geometry 0, a LineString of x = 20 to 30.*outside"):
        raster([LineString([(20, 1), (30, 2)])])


def test_the_east_and_south_sides_belong_to_the_grid() -> None:
    edge = LineString([(16, 12), (16, 0), (0, 0)])
    burnt = raster([edge]).read(WHOLE) == 0
    assert burnt[:, -1].all()
    assert burnt[-1].all()
    assert np.count_nonzero(burnt) == 12 + 15
