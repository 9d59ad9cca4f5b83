"""The table of components: classes, areas and centroids, on the map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from pyproj import Geod

import orograph as og


def cover(crs: str | None = "EPSG:32633", step: float = 10.0) -> xr.DataArray:
    cells = np.random.default_rng(2).integers(0, 4, (37, 41)).astype(np.int16)
    axes = {"y": 45 - step * np.arange(37), "x": 7 + step * np.arange(41)}
    raster = xr.DataArray(cells, axes, ("y", "x"), "cover")
    return raster if crs is None else raster.rio.write_crs(crs)


def test_each_component_has_its_class_area_and_centroid(tmp_path: Path) -> None:
    classes = cover()
    stored = og.connected_components(classes, connectivity=4, out=tmp_path / "c.zarr", tile=8)
    labels = stored["labels"].values
    table = og.component_table(tmp_path / "c.zarr", classes)
    assert table.index.tolist() == list(range(1, stored.attrs["component_count"] + 1))
    assert table.attrs["area_unit"] == "m²"
    for label in (1, 2, 17, len(table)):
        row, column = np.nonzero(labels == label)
        found = table.loc[label]
        assert found["class"] == classes.values[row[0], column[0]]
        assert found["cells"] == row.size
        assert found["area"] == row.size * 100
        assert found["x"] == pytest.approx(classes.x.values[column].mean())
        assert found["y"] == pytest.approx(classes.y.values[row].mean())
        box = [found[side] for side in ("top", "left", "bottom", "right")]
        assert box == [row.min(), column.min(), row.max() + 1, column.max() + 1]
    whole = og.component_table(og.connected_components(classes, connectivity=4), classes)
    assert np.allclose(whole, table, rtol=1e-12)


def test_areas_on_the_globe_are_those_of_the_ellipsoid() -> None:
    classes = cover("EPSG:4326", 0.5)
    table = og.component_table(og.connected_components(xr.ones_like(classes)))
    lon = [6.75, 6.75 + 41 * 0.5]
    lat = [45.25 - 37 * 0.5, 45.25]
    x, y = np.linspace(*lon, 2001), np.linspace(*lat, 2)
    ring = [*x, *x[::-1]], [*np.full(2001, y[0]), *np.full(2001, y[1])]
    expected = abs(Geod(ellps="WGS84").polygon_area_perimeter(*ring)[0])
    assert table["area"].tolist() == pytest.approx([expected], rel=2e-6)


def test_without_a_crs_areas_say_so() -> None:
    classes = cover(None)
    for raster, unit, area in (
        (classes, "squares of the unit of coordinates", 100.0),
        (classes.values, "cells", 1.0),
    ):
        table = og.component_table(og.connected_components(raster))
        assert table.attrs["area_unit"] == unit
        assert (table["area"] == table["cells"] * area).all()
        assert "class" not in table


def test_components_are_counted_where_no_attribute_says_how_many() -> None:
    result = og.connected_components(cover())
    bare = result.assign_attrs()
    del bare.attrs["component_count"]
    assert og.component_table(bare).equals(og.component_table(result))


def test_what_is_no_table_of_components_is_refused() -> None:
    result = og.connected_components(cover())
    with pytest.raises(og.InputError, match="result: it has no labels; give what "):
        og.component_table(result.rename(labels="numbers"))
    with pytest.raises(og.InputError, match=r"classes: 36 x 41 cells, but"):
        og.component_table(result, cover()[:-1])
