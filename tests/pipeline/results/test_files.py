"""Results go into the files that extensions name, and read back as they are in memory."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rasterio
import rioxarray
import shapely
import xarray as xr
from pyproj import Transformer
from scipy import sparse

import orograph as og

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lie below the stream"),
    pytest.mark.filterwarnings("ignore:.*links have no line"),
]

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: orograph[vector]")

START = [(500_040, 4_999_920)]
POINTS = [(500_040, 4_999_920), (500_250, 4_999_700), (500_395, 4_999_985)]
OUTPUTS = ("cost", "back_direction", "allocation")
SUFFIXES = ("gpkg", "geojson", "fgb", "parquet", "csv")


def heights(crs: str | None = "EPSG:32633") -> xr.DataArray:
    cells = np.random.default_rng(7).integers(1, 60, (37, 41)).astype(np.float64)
    cells[:, 38] = np.nan  # what lies beyond cannot be reached
    axes = {"y": 5_000_000 - 10.0 * np.arange(37), "x": 500_000 + 10.0 * np.arange(41)}
    raster = xr.DataArray(cells, axes, ("y", "x"), "elevation")
    return raster if crs is None else raster.rio.write_crs(crs)


TABLES: dict[str, tuple[Callable[..., xr.Dataset], tuple[str, ...], str]] = {
    "peaks": (lambda **o: og.peaks(heights(), **o), ("peak",), ""),
    "depressions": (lambda **o: og.depressions(heights(), **o), ("depression",), "pit_"),
    "passes": (
        lambda **o: og.pass_elevation(heights(), POINTS[:2], POINTS, **o),
        ("point", "target"),
        "pass_",
    ),
}


def read(path: Path) -> Any:
    """Read a table back by GeoPandas or pandas."""
    if path.suffix == ".csv":
        return pd.read_csv(path)
    return (geopandas.read_parquet if path.suffix == ".parquet" else geopandas.read_file)(path)


def in_utm(found: Any, path: Path) -> Any:
    """Return a layer that was read, GeoJSON from degrees within a tenth of a millimetre."""
    if path.suffix != ".geojson":
        return found
    assert found.crs == "EPSG:4326"
    moved = found.to_crs("EPSG:32633")
    return moved.set_geometry(shapely.set_precision(moved.geometry.values, 0.01))


def in_degrees(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its pairs of coordinates in degrees, as in GeoJSON."""
    to_degrees = Transformer.from_crs("EPSG:32633", "EPSG:4326", always_xy=True).transform
    moved = table.copy()
    for name in (name for name in table if name == "x" or name.endswith("_x")):
        pair = [name, f"{name[:-1]}y"]
        known = np.isfinite(table[pair]).all(axis=1)
        places = to_degrees(*table.loc[known, pair].to_numpy().T)
        moved.loc[known, pair] = np.stack(places, axis=1)
    return moved


def expected_of(result: xr.Dataset, dims: tuple[str, ...]) -> pd.DataFrame:
    """The table as xarray itself makes one."""
    numbered = result.assign_coords({dim: np.arange(result.sizes[dim]) for dim in dims})
    frame: pd.DataFrame = numbered.reset_coords().to_dataframe(dim_order=list(dims)).reset_index()
    return frame


@pytest.mark.diagonal
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_reads_back_as_it_is_in_memory(name: str, suffix: str, tmp_path: Path) -> None:
    make, dims, prefix = TABLES[name]
    result, out = make(), tmp_path / f"found.{suffix}"
    written = make(out=out, tile=8)
    assert written.identical(result)
    assert os.listdir(tmp_path) == [out.name]
    again = tmp_path / f"again.{suffix}"
    assert og.to_file(result, again) == again
    for path in (out, again):
        found, expected = read(path), expected_of(result, dims)
        assert list(found.columns[: len(dims)]) == list(dims)
        if suffix == "geojson":
            expected = in_degrees(expected)
        for column in expected:
            values = expected[column].to_numpy()
            if suffix == "geojson":  # which has no infinity
                values = np.where(np.isinf(values), np.nan, values)
            assert np.array_equal(found[column], values, equal_nan=True), column
        expected = expected_of(result, dims)
        places = np.stack([expected[f"{prefix}x"], expected[f"{prefix}y"]], axis=1)
        if suffix == "csv":
            assert np.array_equal(found[["x", "y"]], places, equal_nan=True)
            continue
        found = in_utm(found, path)
        assert found.crs == "EPSG:32633"
        known = np.isfinite(places).all(axis=1)
        assert np.array_equal(found.geometry.notna(), known)
        assert np.array_equal(shapely.get_coordinates(found.geometry[known]), places[known])
    frame = result.orograph.to_geodataframe()
    assert frame.equals(og.to_geodataframe(result))
    assert np.array_equal(frame[list(expected)], expected, equal_nan=True)
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        make(out=out)
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        og.to_file(result, out)
    assert make(out=out, overwrite=True).identical(result)


def test_infinite_prominence_is_kept_where_a_format_has_it(tmp_path: Path) -> None:
    highest = np.isinf(og.peaks(heights())["prominence"].values)
    assert highest.sum() == 2
    for suffix in SUFFIXES:
        og.peaks(heights(), out=tmp_path / f"peaks.{suffix}")
        found = read(tmp_path / f"peaks.{suffix}")["prominence"]
        assert np.array_equal(found.isna() if suffix == "geojson" else np.isinf(found), highest)


def test_paths_over_passes_are_lines(tmp_path: Path) -> None:
    given = {"paths": True, "out": tmp_path / "passes.gpkg"}
    result = og.pass_elevation(heights(), POINTS[:2], POINTS, **given)
    found = read(tmp_path / "passes.gpkg")
    sizes = result["path_cells"].values.ravel()
    assert (sizes == 0).any()
    assert (sizes == 1).any()
    assert (sizes > 2).any()
    stops = np.cumsum(sizes)
    vertices = np.stack([result["path_x"].values, result["path_y"].values], axis=1)
    for line, start, stop in zip(found.geometry, stops - sizes, stops, strict=True):
        if start == stop:
            assert line is None
        else:
            assert np.array_equal(shapely.get_coordinates(line), vertices[start:stop])


def test_components_have_centroids(tmp_path: Path) -> None:
    classes = (heights() > 30).astype(np.uint8)
    table = og.component_table(og.connected_components(classes), classes)
    frame = og.to_geodataframe(table)
    assert frame.crs == "EPSG:32633"
    assert frame.attrs["units"] == {"area": "m²"}
    assert np.array_equal(frame.geometry.x, table["x"])
    assert np.array_equal(frame.geometry.y, table["y"])
    for suffix in SUFFIXES:
        path = og.to_file(table, tmp_path / f"components.{suffix}")
        found = read(path).set_index("label")
        expected = in_degrees(table) if suffix == "geojson" else table
        assert np.array_equal(found[table.columns], expected)
        assert np.array_equal(found.index, table.index)
    assert read(tmp_path / "components.parquet").attrs["units"] == {"area": "m²"}
    assert (
        og.to_geodataframe(og.component_table(og.connected_components(classes.values))).crs is None
    )


@pytest.mark.parametrize("tile", [8, 64])
def test_rasters_go_into_one_netcdf_file(tile: int, tmp_path: Path) -> None:
    expected = og.cost_distance(heights(), START, outputs=OUTPUTS)
    out = tmp_path / "cost.nc"
    found = og.cost_distance(heights(), START, outputs=OUTPUTS, out=out, tile=tile)
    assert found["cost"].chunks is not None
    assert found.load().identical(expected)
    assert [path.name for path in tmp_path.iterdir()] == ["cost.nc"]
    with xr.open_dataset(out, decode_coords="all") as read_back:
        assert read_back.rio.crs == "EPSG:32633"
        assert np.array_equal(read_back["cost"], expected["cost"], equal_nan=True)
        labels = expected["allocation"]
        assert np.array_equal(read_back["allocation"], labels.where(labels >= 0), equal_nan=True)
        assert read_back.attrs["reached_cells"] == expected.attrs["reached_cells"]
    with rioxarray.open_rasterio(f"netcdf:{out}:cost") as by_gdal:
        assert by_gdal.rio.transform() == heights().rio.transform()
        assert by_gdal.rio.crs == "EPSG:32633"
    with pytest.raises(og.StoreExistsError, match="overwrite=True"):
        og.cost_distance(heights(), START, outputs=OUTPUTS, out=out)
    again = og.to_file(expected, tmp_path / "again.nc")
    with xr.open_dataset(again, decode_coords="all", mask_and_scale=False) as read_back:
        assert read_back.equals(expected)
        assert read_back.rio.crs == "EPSG:32633"


def test_rasters_with_a_table_go_into_one_netcdf_file(tmp_path: Path) -> None:
    expected = og.depressions(heights(), labels=True)
    found = og.depressions(heights(), labels=True, out=tmp_path / "found.nc", tile=8)
    assert found.load().identical(expected)


def test_rasters_are_written_by_extension(tmp_path: Path) -> None:
    cost = og.cost_distance(heights(), START)["cost"]
    cost.orograph.to_file(tmp_path / "cost.tif")
    with rasterio.open(tmp_path / "cost.tif") as written:
        assert np.array_equal(written.read(1), cost, equal_nan=True)
        assert written.crs == "EPSG:32633"
    og.to_file(tmp_path / "cost.tif", tmp_path / "cost.zarr")
    stored = og.open(tmp_path / "cost.zarr")
    (name,) = stored.data_vars
    assert np.array_equal(stored[name], cost, equal_nan=True)
    named = {"variable": str(name)}
    for path in (
        og.to_file(tmp_path / "cost.tif", tmp_path / "one.nc"),
        og.to_file(stored, tmp_path / "two.nc", **named),
        og.to_file(tmp_path / "cost.zarr", tmp_path / "three.nc"),
    ):
        with xr.open_dataset(path, decode_coords="all") as found:
            assert np.array_equal(found[name], cost, equal_nan=True)
            assert found.rio.crs == "EPSG:32633"
    og.to_file(heights(None).values, tmp_path / "cells.nc")
    with xr.open_dataset(tmp_path / "cells.nc") as found:
        assert np.array_equal(found["elevation"], heights().values, equal_nan=True)


@pytest.mark.parametrize("suffix", ["gpkg", "geojson", "fgb", "shp", "parquet", "csv"])
def test_areas_read_back(suffix: str, tmp_path: Path) -> None:
    areas = og.polygonize((heights() > 30).astype(np.uint8), parts=True)
    path = og.to_file(areas, tmp_path / f"areas.{suffix}")
    found = read(path)
    assert found["label"].tolist() == areas.columns["label"].tolist()
    if suffix == "csv":
        assert (shapely.from_wkt(found["geometry"]) == areas.geometry).all()
    else:
        found = in_utm(found, path)
        assert found.crs == "EPSG:32633"
        assert shapely.equals(found.geometry.values, areas.geometry).all()
    if suffix not in ("csv", "shp"):  # and back in
        again = og.rasterize(path, heights(), label="label")
        assert np.array_equal(again, (heights() > 30).astype(np.int64))


LAYERS: dict[str, Callable[..., og.VectorLayer]] = {
    "polygonize": lambda **o: og.polygonize((heights().fillna(0) // 20).astype(int), **o),
    "isochrones": lambda **o: og.isochrones(heights(), [20.0, 40.0], **o),
    "region_network": lambda **o: og.region_network(heights(), POINTS[:2], **o),
}


FLOW = og.flow_direction(heights())
COUNT = og.flow_accumulation(FLOW)["accumulation"]


def network(**options: Any) -> xr.Dataset:
    return og.streams(FLOW, COUNT, 20, **options)


@pytest.mark.diagonal
@pytest.mark.parametrize("suffix", [*SUFFIXES, "shp"])
@pytest.mark.parametrize("operation", LAYERS)
def test_layers_go_into_files_and_come_back(operation: str, suffix: str, tmp_path: Path) -> None:
    make, path = LAYERS[operation], tmp_path / f"layer.{suffix}"
    expected = make().to_geodataframe()
    returned = make(out=path, tile=16).to_geodataframe()
    assert returned.equals(expected)
    found = read(path)
    if suffix == "csv":
        geometry = shapely.from_wkt(found["geometry"].to_numpy())
    else:
        found = in_utm(found, path)
        assert found.crs == expected.crs
        geometry = found.geometry.to_numpy()
    within = 0.02 if suffix == "geojson" else 0
    assert (shapely.hausdorff_distance(geometry, expected.geometry.to_numpy()) <= within).all()
    for name in expected.columns.drop("geometry"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)
    assert {p.stem for p in tmp_path.iterdir()} == {"layer"}  # a shapefile is several files
    with pytest.raises(og.StoreExistsError, match="overwrite"):
        make(out=path)
    make(out=path, overwrite=True)
    assert len(read(path)) == len(expected)


def test_streams_are_lines_wherever_a_table_is(tmp_path: Path) -> None:
    found = network(out=tmp_path / "streams.zarr")
    lines = og.stream_lines(found, out=tmp_path / "out.gpkg").to_geodataframe()
    assert len(lines) > 3
    for result in (found, tmp_path / "streams.zarr", network()):
        assert og.to_geodataframe(result).equals(lines)
        og.to_file(result, tmp_path / "file.gpkg", overwrite=True)
        for name in ("out.gpkg", "file.gpkg"):
            again = read(tmp_path / name)
            assert again.geometry.geom_equals(lines.geometry).all()
            assert again["link"].tolist() == lines["link"].tolist()
    assert found.orograph.to_geodataframe().equals(lines)
    og.to_file(found, tmp_path / "links.tif", variable="link")
    og.stream_lines(found, out=tmp_path / "d.gpkg", crs="EPSG:4326")
    assert read(tmp_path / "d.gpkg").crs == "EPSG:4326"
    with pytest.raises(og.StoreExistsError):
        og.stream_lines(found, out=tmp_path / "out.gpkg")
    with pytest.raises(og.InputError, match=r"crs: .* for a vector file that out= writes"):
        og.stream_lines(found, crs="EPSG:4326")


@pytest.mark.parametrize("ending", [".tif", ".nc", ".zarr"])
def test_rasters_of_streams_are_written_without_their_lines(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.results.tables.network_lines", lambda _: pytest.fail("lines"))
    og.to_file(network(), tmp_path / f"link{ending}", variable="link")


WITH_CRS: dict[str, Callable[..., Any]] = {
    **LAYERS,
    **{name: make for name, (make, _, _) in TABLES.items()},
    "stream_lines": lambda **o: og.stream_lines(network(), **o),
    "to_file": lambda out, **o: og.to_file(LAYERS["polygonize"](), out, **o),
    "paths": lambda out, **o: og.least_cost_path(
        og.cost_distance(heights(), START, outputs=OUTPUTS), POINTS[:2]
    ).to_file(out, **o),
}


@pytest.mark.parametrize("name", WITH_CRS)
def test_layers_are_written_in_another_crs(name: str, tmp_path: Path) -> None:
    make = WITH_CRS[name]
    make(out=tmp_path / "own.gpkg")
    own = read(tmp_path / "own.gpkg")
    for crs in ("EPSG:4326", 3035):
        make(out=tmp_path / "x.gpkg", crs=crs, overwrite=True)
        found = read(tmp_path / "x.gpkg")
        assert found.crs == crs
        known = own.geometry.notna()
        far = shapely.hausdorff_distance(found.geometry[known], own.to_crs(crs).geometry[known])
        assert (far < 1e-6).all()
    make(out=tmp_path / "x.geojson", crs="OGC:CRS84")
    with pytest.raises(og.InputError, match=r"crs: ETRS89-.*, but GeoJSON is in longitude"):
        make(out=tmp_path / "y.geojson", crs=3035)
    assert not (tmp_path / "y.geojson").exists()


@pytest.mark.parametrize("name", WITH_CRS)
def test_a_crs_is_refused_where_no_layer_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = WITH_CRS[name]
    for place in (*((None,) if name in (*LAYERS, *TABLES) else ()), "x.zarr", "x.tif", "x.nc"):
        out = None if place is None else tmp_path / place
        with pytest.raises(og.InputError, match=r"crs: |none of the vector formats"):
            make(out=out, crs="EPSG:4326")
    assert not os.listdir(tmp_path)
    without = heights(None)
    monkeypatch.setitem(globals(), "heights", lambda: without)
    if name in LAYERS or name == "to_file":
        with pytest.raises(og.InputError, match="crs: the layer has none itself"):
            make(out=tmp_path / "x.gpkg", crs="EPSG:4326")
    with pytest.raises(og.InputError, match=r"crs: .* reproject a raster first"):
        og.to_file(np.ones((3, 3)), tmp_path / "x.tif", crs="EPSG:4326")


def test_a_layer_without_crs_is_written_as_it_is_with_one_warning(tmp_path: Path) -> None:
    areas = og.polygonize(np.array([[1, 2], [1, 2]]))
    for suffix in ("geojson", "geojsonl"):
        with pytest.warns(UserWarning, match=r"coordinates as they are.* has no CRS") as warned:
            areas.to_file(tmp_path / f"x.{suffix}")
        assert len(warned) == 1
        assert warned[0].filename == __file__
        found = geopandas.read_file(tmp_path / f"x.{suffix}")
        assert shapely.equals(found.geometry.values, areas.geometry).all()
    for suffix in ("gpkg", "fgb", "shp", "parquet", "csv"):  # which tell that there is none
        og.to_file(areas, tmp_path / f"x.{suffix}")


FRAME = geopandas.GeoDataFrame(
    {
        "name": ["a", None, "c"],
        "count": pd.array([1, None, 3], dtype="Int64"),
        "day": pd.to_datetime(["2020-01-01", "2021-02-03", None]),
        "kind": pd.Categorical(["u", "v", "u"]),
        "open": [True, False, True],
        "word": pd.array(["x", "y", None], dtype="string"),
        # as in a table of components
        **{name: [1, 2, 3] for name in ("cells", "area", "x", "y")},
    },
    geometry=[shapely.Point(n, n) for n in range(3)],
    crs="EPSG:4326",
    index=[5, 6, 7],
)


@pytest.mark.parametrize("suffix", ["gpkg", "geojson", "fgb", "parquet"])
def test_frames_are_written_as_their_own_library_does(suffix: str, tmp_path: Path) -> None:
    expected = tmp_path / f"expected.{suffix}"
    frame = FRAME.astype({"kind": str})  # a layer has no categories
    in_order = {"SPATIAL_INDEX": "NO"} if suffix == "fgb" else {}
    frame.to_parquet(expected) if suffix == "parquet" else frame.to_file(expected, **in_order)
    found = read(og.to_file(FRAME, tmp_path / f"found.{suffix}"))
    frame = read(expected).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, frame, check_dtype=False)
    assert og.to_geodataframe(FRAME).geometry.tolist() == FRAME.geometry.tolist()


def test_whatever_is_a_layer_is_written(tmp_path: Path) -> None:
    FRAME.to_file(tmp_path / "frame.gpkg")
    layers = FRAME, FRAME.geometry, tmp_path / "frame.gpkg"
    bare = FRAME.geometry.iloc[0], list(FRAME.geometry), FRAME.__geo_interface__
    for layer in (*layers, *bare):
        found = read(og.to_file(layer, tmp_path / "x.gpkg", overwrite=True))
        assert found.geometry.iloc[0] == FRAME.geometry.iloc[0]
        assert (found.crs is None) == any(layer is other for other in bare)
    with pytest.raises(og.InputError, match=r"none\.gpkg' does not exist"):
        og.to_file("none.gpkg", tmp_path / "y.gpkg")


@pytest.mark.usefixtures("forked_workers")
def test_a_layer_is_written_by_a_cluster_and_later(tmp_path: Path) -> None:
    make = LAYERS["polygonize"]
    expected = make().to_geodataframe()
    with og.cluster(n_workers=2) as client:
        make(out=tmp_path / "run.gpkg", client=client, tile=16)
    labels = (heights().fillna(0) // 20).astype(int)
    task = og.polygonize.lazy(labels, out=tmp_path / "later.gpkg")
    assert not (tmp_path / "later.gpkg").exists()
    task.compute(scheduler="sync")
    for name in ("run.gpkg", "later.gpkg"):
        assert read(tmp_path / name).geometry.geom_equals(expected.geometry).all()


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        (lambda out: og.peaks(heights(), out=out), "x.tif", r"holds one raster.*a table goes into"),
        (lambda out: og.peaks(heights(), out=out), "x.shp", r"ends in \.shp, but what is written"),
        (
            lambda out: og.cost_distance(heights(), START, outputs=OUTPUTS, out=out),
            "x.gpkg",
            r"has rasters, 3 \(cost, back_direction, allocation\); name it \.tif",
        ),
        (lambda out: og.fill_depressions(heights(), out=out), "x.csv", r"name it \.tif"),
        (lambda out: og.depressions(heights(), labels=True, out=out), "x.gpkg", r"\(labels\)"),
        (
            lambda out: og.shortest_paths(
                og.read_graph(sparse.csr_array(np.eye(3, k=1)), directed=True), [0], out=out
            ),
            "x.nc",
            r"this result is written to a Zarr store alone; name it x\.zarr",
        ),
        (lambda out: og.to_file(og.peaks(heights()), out), "x.zarr", "for rasters, but the result"),
        (lambda out: network(out=out), "x.gpkg", r"\(link, order\).*; stream_lines writes the l"),
        (lambda out: og.to_file(heights(), out), "x.gpkg", r"ends in \.gpkg, but what is written"),
        (lambda out: LAYERS["polygonize"](out=out), "x.tif", "none of the vector formats"),
        (lambda out: LAYERS["isochrones"](out=out), "x.zarr", "none of the vector formats"),
        (lambda out: LAYERS["isochrones"](out=out), "x", "none of the vector formats"),
        (
            lambda out: og.to_file(og.polygonize(np.ones((2, 2), int)), out),
            "x.nc",
            "for rasters, but the result is a table or a layer",
        ),
    ],
    ids=[
        *(
            "table into GeoTIFF",
            "table into shapefile",
            "rasters into GeoPackage",
            "raster into CSV",
        ),
        *("raster and table into GeoPackage", "graph into NetCDF", "table into store"),
        *("streams into GeoPackage", "raster in memory into GeoPackage"),
        *("areas into GeoTIFF", "bands into store", "bands into a name without extension"),
        "layer into NetCDF",
    ],
)
def test_what_a_file_cannot_hold_is_refused_before_the_run(
    make: Callable[[Path], object], name: str, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if "to_file" not in make.__code__.co_names:
        monkeypatch.setattr("orograph.run.run.Run.__init__", None)
    with pytest.raises(og.InputError, match=said):
        make(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("missing", "name"),
    [("pyogrio", "peaks.gpkg"), ("pyarrow", "peaks.parquet"), ("shapely", "peaks.csv")],
)
def test_a_library_that_is_missing_is_named_before_the_run(
    missing: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = builtins.__import__

    def without(wanted: str, *given: Any, **named: Any) -> Any:
        if wanted.split(".")[0] == missing:
            raise ImportError(f"no {missing}")
        return installed(wanted, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("orograph.run.run.Run.__init__", None)
    with pytest.raises(og.OrographError, match=rf"{missing}.*orograph\[vector\]"):
        og.peaks(heights(), out=tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_netcdf_needs_one_of_two_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orograph.results.netcdf.find_spec", lambda name: None)
    with pytest.raises(og.OrographError, match=r"netCDF4 or h5netcdf.*orograph\[netcdf\]"):
        og.fill_depressions(heights(), out=tmp_path / "filled.nc")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_whole_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "peaks.gpkg"
    og.peaks(heights(), min_prominence=30, out=out)
    before = out.read_bytes()

    def broken(path: Any, **given: Any) -> None:
        path.write(b"half")
        raise OSError("the writer has failed")

    monkeypatch.setattr("pyogrio.raw.write", broken)
    for write in (
        lambda: og.to_file(og.peaks(heights()), out, overwrite=True),
        lambda: og.peaks(heights(), out=out, overwrite=True),
    ):
        with pytest.raises(OSError, match="the writer has failed"):
            write()
        assert out.read_bytes() == before
    monkeypatch.undo()
    og.peaks(heights(), out=out, resume=True, overwrite=True)
    assert len(read(out)) == og.peaks(heights()).sizes["peak"]
    assert os.listdir(tmp_path) == ["peaks.gpkg"]


def test_what_is_not_a_table_makes_no_frame() -> None:
    with pytest.raises(og.InputError, match=r"og\.polygonize makes areas"):
        og.to_geodataframe(heights())


@pytest.mark.parametrize("suffix", [*SUFFIXES, "nc", "tif"])
def test_a_folder_that_takes_no_files_is_named(suffix: str) -> None:
    """By us, before a library that writes the format says it in its own words."""
    cells = np.array([[5, 2, 9, 4, 7]])
    table = suffix in SUFFIXES
    result: Any = og.peaks(cells) if table else og.cost_distance(cells, [(0, 0)])["cost"]
    with pytest.raises(og.InputError, match=rf"/proc/x\.{suffix}: no file can be created"):
        og.to_file(result, f"/proc/x.{suffix}")
