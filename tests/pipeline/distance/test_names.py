"""Names of sources, points and targets are kept, from layers to paths, tables and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr

import orograph as og

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
shapely = pytest.importorskip("shapely", reason="shapely is not installed: orograph[vector]")

OUTPUTS = ("cost", "back_direction", "allocation")
CLINICS = {"clinic": ["Süd", "Ost", "Süd"]}
VILLAGES = {"village": ["Au", "Egg", "Rain", "Wil"]}


def friction() -> xr.DataArray:
    cells = np.random.default_rng(9).integers(1, 9, (20, 30)).astype(np.float64)
    axes = {"y": 5_000_000 - 10.0 * np.arange(20), "x": 500_000 + 10.0 * np.arange(30)}
    return xr.DataArray(cells, axes, ("y", "x")).rio.write_crs("EPSG:32633")


def frame(columns: Any, cells: list[tuple[int, int]]) -> Any:
    """A layer of points in another CRS, in the middle of cells (row, column)."""
    raster = friction()
    places = [(float(raster.x[column]), float(raster.y[row])) for row, column in cells]
    found = geopandas.GeoDataFrame(columns, geometry=shapely.points(places), crs="EPSG:32633")
    return found.to_crs("EPSG:4326")


def flow() -> xr.DataArray:
    return og.flow_direction(friction(), depressions="fill")["direction"]


def clinics() -> Any:
    return frame(CLINICS, [(15, 4), (3, 25), (18, 20)])


def villages() -> Any:
    return frame(VILLAGES, [(0, 0), (2, 28), (10, 14), (19, 29)])


@pytest.mark.parametrize("tile", [8, 64])
def test_names_of_sources_are_listed_where_labels_are_their_numbers(
    tile: int, tmp_path: Path
) -> None:
    out = tmp_path / "cost.zarr"
    found = og.cost_distance(
        friction(), clinics(), label="clinic", outputs=OUTPUTS, tile=tile, out=out
    )
    assert found.attrs["source_names"] == ["Süd", "Ost"]
    numbered = og.cost_distance(friction(), clinics(), outputs=OUTPUTS)
    expected = np.array([0, 1, 0])[numbered["allocation"]]
    assert np.array_equal(found["allocation"], expected)
    assert np.array_equal(found["cost"], numbered["cost"])
    areas = clinics().to_crs("EPSG:32633")
    areas["geometry"] = areas.buffer(25)
    spread = og.cost_distance(friction(), areas, label="clinic", outputs=OUTPUTS)
    assert spread.attrs["source_names"] == ["Süd", "Ost"]
    assert spread["allocation"].values[3, 25] == 1
    assert og.open(out).attrs["source_names"] == ["Süd", "Ost"]


def test_paths_have_the_names_of_both_ends(tmp_path: Path) -> None:
    result = og.cost_distance(friction(), clinics(), label="clinic", outputs=OUTPUTS)
    paths = og.least_cost_path(result, villages(), label="village")
    for path, village in zip(paths, VILLAGES["village"], strict=True):
        assert path.point == village
        ends = zip([(15, 4), (3, 25), (18, 20)], CLINICS["clinic"], strict=True)
        assert path.source == dict(ends)[tuple(path.cells[-1].tolist())]
    og.to_file(paths, tmp_path / "paths.gpkg")
    read = geopandas.read_file(tmp_path / "paths.gpkg")
    assert read["point"].tolist() == VILLAGES["village"]
    assert read["source"].tolist() == [path.source for path in paths]
    assert read.crs == "EPSG:32633"
    plain = og.least_cost_path(result.drop_vars("allocation"), villages())
    assert [(path.point, path.source) for path in plain] == [(None, None)] * 4
    assert all(one == other for one, other in zip(plain, paths, strict=True))
    assert plain.to_geodataframe().columns.tolist() == ["path", "cost", "length", "geometry"]
    numbers = og.cost_distance(friction(), clinics(), outputs=OUTPUTS)
    ends = [path.source for path in og.least_cost_path(numbers, villages())]
    assert [CLINICS["clinic"][end] for end in ends] == read["source"].tolist()


def test_tables_of_an_index_have_names(tmp_path: Path) -> None:
    index = og.DistanceIndex.build(friction(), tmp_path / "index.zarr", block=8)
    numbered = index.distance_matrix(villages(), clinics())
    with pytest.raises(og.InputError, match="label: targets has no column 'village'"):
        index.distance_matrix(villages(), clinics(), label="village")
    named = villages().rename(columns={"village": "name"})
    targets = clinics().rename(columns={"clinic": "name"})
    table = index.distance_matrix(named, targets, label="name")
    assert table["from"].values.tolist() == VILLAGES["village"]
    assert table["to"].values.tolist() == CLINICS["clinic"]
    assert np.array_equal(table, numbered)
    assert table.sel({"from": "Egg", "to": "Ost"}) == numbered[1, 1]
    own = index.distance_matrix(named, label="name")
    assert own["to"].values.tolist() == own["from"].values.tolist() == VILLAGES["village"]
    near = index.nearest(named, 3, targets, label="name")
    assert near["from"].values.tolist() == VILLAGES["village"]
    assert near["target_name"].values.tolist() == [
        [CLINICS["clinic"][number] for number in row] for row in near["target"].values
    ]
    walled = friction()
    walled[:, 8] = np.nan
    parted = og.DistanceIndex.build(walled, tmp_path / "parted.zarr", block=8)
    lost = parted.nearest(named, 3, targets, label="name")
    blank = lost["target"].values == -1
    assert blank.any()
    assert np.array_equal(lost["target_name"].values == "", blank)


def test_names_are_of_layers(tmp_path: Path) -> None:
    result = og.cost_distance(friction(), clinics(), outputs=OUTPUTS)
    with pytest.raises(og.InputError, match="label: 'village'; it is a column of a vector layer"):
        og.least_cost_path(result, [(500_000, 5_000_000)], label="village")
    with pytest.raises(og.InputError, match="label: points has no column 'x'; its columns are vil"):
        og.least_cost_path(result, villages(), label="x")


TAKES_LABEL: dict[str, Callable[[Any, Path], Any]] = {
    "cost_distance": lambda layer, _: og.cost_distance(friction(), layer, label="name"),
    "walking_time": lambda layer, _: og.walking_time(friction(), layer, label="name"),
    "hop_distance": lambda layer, _: og.hop_distance(friction(), layer, label="name"),
    "eikonal": lambda layer, _: og.cost_distance(friction(), layer, label="name", cost="eikonal"),
    "source_cost": lambda layer, _: og.cost_distance(
        friction(), layer, label="name", source_cost={"multiplier": 2}
    ),
    "region_network": lambda layer, _: og.region_network(friction(), layer, label="name"),
    "watersheds": lambda layer, _: og.watersheds(flow(), layer, label="name"),
    "rasterize": lambda layer, _: og.rasterize(layer, friction(), label="name"),
    "least_cost_path": lambda layer, _: og.least_cost_path(
        og.cost_distance(friction(), clinics(), outputs=OUTPUTS), layer, label="name"
    ),
    "distance_matrix": lambda layer, folder: og.DistanceIndex.build(
        friction(), folder / "index.zarr", block=8, overwrite=True
    ).distance_matrix(layer, label="name"),
}  # fmt: skip


@pytest.mark.diagonal
@pytest.mark.parametrize("form", ["frame", "gpkg", "csv"])
@pytest.mark.parametrize("operation", TAKES_LABEL)
def test_all_that_take_labels_take_names(operation: str, form: str, tmp_path: Path) -> None:
    layer = villages().rename(columns={"village": "name"})
    given = layer if form == "frame" else tmp_path / f"points.{form}"
    if form != "frame":
        own = layer.to_crs(friction().rio.crs) if form == "csv" else layer
        og.to_file(og.VectorLayer(np.array(own.geometry), {"name": np.array(own["name"])}, own.crs),
                   given)  # fmt: skip
    found = TAKES_LABEL[operation](given, tmp_path)
    if isinstance(found, xr.Dataset) and "parent" in found:  # watersheds
        assert found["watershed"].attrs["source_names"] == layer["name"].tolist()
    if isinstance(found, xr.Dataset) or operation == "rasterize":
        assert found.attrs["source_names"] == layer["name"].tolist()


@pytest.mark.parametrize("operation", TAKES_LABEL)
@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            ["Au", None, "Egg", None],
            r"name of geometry 1 \(and of 1 more\) is missing .*; fill the column",
        ),
        ([1.0, 2.0, np.nan, 4.0], "name of geometry 2 is missing .nan.; fill the column"),
        ([pd.NA, 1, 2, 3], "name of geometry 0 is missing .<NA>.; fill the column"),
    ],
    ids=["text", "numbers", "pandas"],
)
def test_a_missing_label_is_named_with_its_row(
    operation: str, values: list[Any], says: str, tmp_path: Path
) -> None:
    layer = villages().assign(name=values)
    with pytest.raises(og.InputError, match=f"label: {says}"):
        TAKES_LABEL[operation](layer, tmp_path)


def test_labels_are_all_text_or_all_numbers() -> None:
    layer = villages().assign(name=["Au", "Egg", 3, "Elm"])
    with pytest.raises(og.InputError, match="name of geometry 2 is 3, others are text; make all"):
        og.watersheds(flow(), layer, label="name")


def test_polygons_of_named_watersheds_have_their_names(tmp_path: Path) -> None:
    layer = villages().rename(columns={"village": "name"})
    out = tmp_path / "sheds.zarr"
    for sheds in (og.watersheds(flow(), layer, label="name"),
                  og.watersheds(flow(), layer, label="name", out=out)):  # fmt: skip
        areas = og.polygonize(sheds)
        assert areas.columns["name"].tolist() == layer["name"].tolist()
