"""Bands between levels of cost: as contourpy finds them, and the same for any tiling."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import contourpy
import numpy as np
import pytest
import shapely
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyproj import CRS
from terrain_cases import fractal, properties

import orograph as og

Array = np.ndarray
TILES = st.sampled_from([None, 1, 3, 7, 16])


def filled(x: Any, y: Any, z: Any, lower: float, upper: float) -> list[Any]:
    """The polygons of a band of a rectangular grid, by contourpy."""
    generator = contourpy.contour_generator(x, y, z, name="serial", corner_mask=False)
    points, offsets = generator.filled(lower, upper)
    found = []
    for vertices, ends in zip(points, offsets, strict=True):
        rings = [vertices[a:b] for a, b in pairwise(ends)]
        found.append(shapely.make_valid(shapely.Polygon(rings[0], rings[1:])))
    return found


def bands(z: Array, valid: Array, levels: list[float]) -> list[Any]:
    """The bands: squares between four cells by contourpy, quarters of cells one by one."""
    rows, columns = z.shape
    lower = [-1e9, *levels[:-1]]
    found: list[list[Any]] = [[] for _ in levels]
    if min(z.shape) > 1:
        whole = np.ma.array(z, mask=~valid)
        for n, (low, high) in enumerate(zip(lower, levels, strict=True)):
            found[n] += filled(np.arange(columns), np.arange(rows), whole, low, high)
    padded, there = np.pad(z, 1), np.pad(valid, 1)
    for i, j in np.ndindex(rows + 1, columns + 1):
        cells, some = padded[i : i + 2, j : j + 2], there[i : i + 2, j : j + 2]
        if some.all() or not some.any():
            continue
        for v, u in np.argwhere(some).tolist():
            beside = (cells[v][some[v]].mean(), cells[:, u][some[:, u]].mean())
            corner = np.array([[cells[v, u], beside[0]], [beside[1], cells[some].mean()]])
            corner = corner[:: 1 - 2 * v, :: 1 - 2 * u]
            x, y = j - 1 + (u + np.arange(2)) / 2, i - 1 + (v + np.arange(2)) / 2
            for n, (low, high) in enumerate(zip(lower, levels, strict=True)):
                found[n] += filled(x, y, corner, low, high)
    return [shapely.unary_union(polygons) for polygons in found]


def by_band(layer: og.VectorLayer, levels: list[float]) -> list[Any]:
    """The polygons of each band, of which some have none."""
    found = dict(zip(layer.columns["upper"].tolist(), layer.geometry, strict=True))
    return [found.get(level, shapely.MultiPolygon()) for level in levels]


@st.composite
def fields(draw: st.DrawFn) -> tuple[Array, Array]:
    """Costs that are smooth, random or flat here and there, and which cells are reached."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["smooth", "random", "flat"]))
    z = fractal(16)[: shape[0], : shape[1]].astype(float) if kind == "smooth" else rng.random(shape)
    z = 10 * (z - z.min()) / max(np.ptp(z), 1e-9)
    z = np.floor(z / 3) if kind == "flat" else z
    return z, rng.random(shape) >= draw(st.sampled_from([0, 0, 0.2, 0.6]))


@settings(properties, max_examples=100)
@given(fields(), st.lists(st.floats(0.05, 9.95), min_size=1, max_size=4, unique=True), TILES)
def test_bands_are_those_of_contourpy(
    field: tuple[Array, Array], given_levels: list[float], tile: int | None
) -> None:
    z, valid = field
    levels = sorted(round(level, 3) + np.pi / 1e4 for level in given_levels)  # no cell equals one
    costs = np.where(valid, z, np.nan)
    layer = og.isochrones(costs, levels, **({} if tile is None else {"tile": tile}))
    found, expected = by_band(layer, levels), bands(z, valid, levels)
    for own, other in zip(found, expected, strict=True):
        assert own.is_valid
        assert shapely.symmetric_difference(own, other).area <= 1e-9 * max(other.area, 1)
        other = shapely.make_valid(other)
        parts = [p for p in shapely.get_parts(other) if p.area > 1e-9]
        if valid.all():
            assert shapely.get_num_geometries(own) == len(parts)
            holes = sum(shapely.get_num_interior_rings(shapely.get_parts(own)).tolist())
            assert holes == sum(shapely.get_num_interior_rings(parts).tolist())
    whole = og.isochrones(costs, levels)
    assert shapely.to_wkb(layer.geometry).tolist() == shapely.to_wkb(whole.geometry).tolist()


@settings(properties, max_examples=100)
@given(fields(), st.integers(0, 3), TILES, st.sampled_from(["float64", "float32", "int16"]))
def test_a_cell_that_equals_a_level_counts_as_just_above(
    field: tuple[Array, Array], first: int, tile: int | None, dtype: str
) -> None:
    z, valid = np.floor(field[0]), field[1]
    levels = [first, first + 2.0, first + 5, first + 6]
    costs = np.where(valid, z, -1).astype(dtype)
    layer = og.isochrones(costs, levels, nodata=-1, **({} if tile is None else {"tile": tile}))
    found = by_band(layer, levels)
    assert all(band.is_valid for band in found)
    expected = bands(z, valid, [level - 1e-7 for level in levels])
    for own, other in zip(found, expected, strict=True):
        assert shapely.symmetric_difference(own, other).area < 1e-4
    whole = og.isochrones(costs, levels, nodata=-1)
    assert shapely.to_wkb(layer.geometry).tolist() == shapely.to_wkb(whole.geometry).tolist()


def test_all_bands_together_are_the_cells_that_are_reached() -> None:
    z = fractal(70)
    z[20:30, 40:50] = np.nan
    levels = np.linspace(np.nanmin(z), np.nanmax(z) + 1, 6).tolist()
    layer = og.isochrones(z, levels, tile=16)
    reached = og.polygonize(np.isfinite(z).astype("u1"), nodata=0).geometry[0]
    assert sum(band.area for band in layer.geometry) == pytest.approx(reached.area, rel=1e-12)
    assert shapely.coverage_union_all(layer.geometry).area == pytest.approx(reached.area)
    union = shapely.unary_union(layer.geometry)
    assert shapely.symmetric_difference(union, reached).area < 1e-9


@settings(properties, max_examples=40)
@given(fields(), TILES)
def test_lines_are_the_borders_between_bands(field: tuple[Array, Array], tile: int | None) -> None:
    z, valid = field
    costs, levels = np.where(valid, z, np.nan), [2.345, 5.4321]
    layer = og.isochrones(costs, levels, polygons=False, **({} if tile is None else {"tile": tile}))
    lines = dict(zip(layer.columns["level"].tolist(), layer.geometry, strict=True))
    found = by_band(og.isochrones(costs, [*levels, 1e9]), [*levels, 1e9])
    for level, below, above in zip(levels, found[:-1], found[1:], strict=True):
        shared = shapely.intersection(below.boundary, above.boundary)
        expected = lines.get(level, shapely.MultiLineString())
        assert expected.length == pytest.approx(shared.length, abs=1e-9)
    whole = og.isochrones(costs, levels, polygons=False)
    assert shapely.to_wkb(layer.geometry).tolist() == shapely.to_wkb(whole.geometry).tolist()


def test_bands_lie_where_the_raster_does(tmp_path: Path) -> None:
    z = fractal(40).astype(float)
    coords = {"y": 5000 - 30.0 * np.arange(40), "x": 700 + 20.0 * np.arange(40)}
    raster = xr.DataArray(z, coords, ("y", "x"))
    raster.coords["spatial_ref"] = ((), 0, {"crs_wkt": CRS.from_epsg(32633).to_wkt()})
    raster.attrs["grid_mapping"] = "spatial_ref"
    levels = np.quantile(z, [0.2, 0.5, 0.8]).tolist()
    for given_raster in (raster, raster[::-1], raster[:, ::-1], raster[::-1, ::-1]):
        layer = og.isochrones(given_raster, levels)
        assert CRS.from_user_input(layer.crs).to_epsg() == 32633
        plain = og.isochrones(z, levels)
        for own, other in zip(layer.geometry, plain.geometry, strict=True):
            moved = shapely.transform(other, lambda p: p * [20, -30] + [700, 5000])
            assert shapely.symmetric_difference(own, moved).area < 1e-9 * own.area
            for part in shapely.get_parts(own):
                assert part.exterior.is_ccw
                assert not any(hole.is_ccw for hole in part.interiors)
    og.ingest(raster, tmp_path / "z.zarr", tile=16)
    stored = og.isochrones(tmp_path / "z.zarr", levels)
    layer = og.isochrones(raster, levels)
    assert shapely.to_wkb(stored.geometry).tolist() == shapely.to_wkb(layer.geometry).tolist()


def test_parts_are_the_polygons_of_bands() -> None:
    z = np.random.default_rng(0).random((30, 30))
    whole, parts = (og.isochrones(z, [0.3, 0.6], parts=p) for p in (False, True))
    assert whole.columns["lower"].tolist() == [0, 0.3]
    assert len(parts) == shapely.get_num_geometries(whole.geometry).sum()
    assert {g.geom_type for g in parts.geometry} == {"Polygon"}
    lines = og.isochrones(z, [0.3, 0.6], polygons=False, parts=True)
    assert {g.geom_type for g in lines.geometry} == {"LineString"}


def test_costs_of_walking_have_bands_on_a_cluster() -> None:
    cost = og.cost_distance(1 + fractal(60) % 1, [(10, 10)])["cost"]
    levels = [5, 10.5, 30]
    expected = og.isochrones(cost, levels)
    with og.cluster(2, dashboard_address=None) as client:
        found = og.isochrones(cost, levels, tile=16, client=client)
    assert shapely.to_wkb(found.geometry).tolist() == shapely.to_wkb(expected.geometry).tolist()


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ([], "levels: there are 0"),
        ([1, 1], "levels: 1 comes after 1"),
        ([2, 1], "levels: 1 comes after 2"),
        ([1, np.nan], "levels: nan"),
        (["a"], "levels: 'a'"),
        (5, "levels: 5; give a list"),
        ("5", "levels: '5'; give a list"),
        (range(300), "levels: there are 300"),
    ],
)
def test_levels_that_do_not_increase_are_refused(levels: Any, says: str) -> None:
    with pytest.raises(og.InputError, match=says):
        og.isochrones(np.ones((3, 3)), levels)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "uint64", "bool", "float32"])
def test_levels_beyond_a_dtype_are_reached_by_none(dtype: str) -> None:
    z = np.array([[0, 1], [1, 1]], dtype)
    layer = og.isochrones(z, [-5.5, 0.5, 1e30, 1e40])
    assert layer.columns["upper"].tolist() == [0.5, 1e30]
    assert layer.columns["lower"].tolist() == [-5.5, 0.5]
    assert sum(band.area for band in layer.geometry) == pytest.approx(4)
