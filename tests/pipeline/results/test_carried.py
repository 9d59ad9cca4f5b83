"""What results carry, by every way out of every operation: place, units, order of variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rioxarray
import shapely
import xarray as xr
from verbs import call

import orograph as og
from orograph.cli.main import main
from orograph.operations.operation import public_operations
from orograph.results.opening import open_result
from orograph.tiles.raster.raster import open_raster

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*lie below the stream"),
    pytest.mark.filterwarnings("ignore:.*links have no line"),
]

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

Make = Callable[..., Any]
SIDE, TOP, LEFT = 10.0, 5_000_000.0, 600_000.0
START, END = (LEFT, TOP), (LEFT + 7 * SIDE, TOP - 4 * SIDE)


def raster(cells: Any, **attrs: str) -> xr.DataArray:
    axes = {"y": TOP - SIDE * np.arange(12), "x": LEFT + SIDE * np.arange(14)}
    return xr.DataArray(cells, axes, ("y", "x"), attrs=attrs).rio.write_crs("EPSG:32632")


RNG = np.random.default_rng(9)
HEIGHTS = raster(RNG.integers(1, 9, (12, 14)).astype(float), units="m")
FLOW = og.flow_direction(HEIGHTS)
COUNT = og.flow_accumulation(FLOW)["accumulation"]
COSTS = [og.cost_distance(HEIGHTS, [end]) for end in (START, END)]
LEGEND = 30
"""Characters that fit the legend of a picture."""

OPERATIONS: dict[str, Make] = {
    "minimum_spanning_forest": lambda **o: call(og.minimum_spanning_forest, HEIGHTS, **o),
    "cost_distance": lambda **o: call(og.cost_distance, HEIGHTS, [START], **o),
    "cost_distance, all outputs": lambda **o: call(
        og.cost_distance, HEIGHTS, [START], outputs=("cost", "back_direction", "allocation"), **o
    ),
    "cost_distance, eikonal": lambda **o: call(
        og.cost_distance, HEIGHTS, [START], cost="eikonal", **o
    ),
    "walking_time": lambda **o: call(og.walking_time, HEIGHTS, [START], **o),
    "hop_distance": lambda **o: call(og.hop_distance, HEIGHTS, [START], **o),
    "connected_components": lambda **o: call(
        og.connected_components, HEIGHTS > 4, outputs=("labels", "component_size"), **o
    ),
    "fill_depressions": lambda **o: call(
        og.fill_depressions, HEIGHTS, outputs=("filled", "depth", "depression"), **o
    ),
    "flood_level": lambda **o: call(og.flood_level, HEIGHTS, [START], **o),
    "breach_depressions": lambda **o: call(og.breach_depressions, HEIGHTS, **o),
    "flow_direction": lambda **o: call(og.flow_direction, HEIGHTS, **o),
    "flow_direction, grass": lambda **o: call(og.flow_direction, HEIGHTS, codes="grass", **o),
    "flow_direction, dinf": lambda **o: call(og.flow_direction, HEIGHTS, method="dinf", **o),
    "flow_accumulation": lambda **o: call(og.flow_accumulation, FLOW, **o),
    "flow_accumulation, area": lambda **o: call(og.flow_accumulation, FLOW, weights="area", **o),
    "flow_accumulation, mfd": lambda **o: call(og.flow_accumulation, HEIGHTS, method="mfd", **o),
    "flow_distance": lambda **o: call(og.flow_distance, FLOW, COUNT > 4, **o),
    "downstream": lambda **o: call(og.downstream, FLOW, HEIGHTS, COUNT > 4, **o),
    "catchments": lambda **o: call(
        og.catchments, HEIGHTS, [START, END], population=HEIGHTS, capacity=90, **o
    ),
    "site": lambda **o: call(
        og.site, HEIGHTS, [START, END], population=HEIGHTS, within=40, count=2, **o
    ),
    "floating_catchments": lambda **o: call(
        og.floating_catchments, HEIGHTS, [START, END], population=HEIGHTS, within=40, **o
    ),
    "upstream": lambda **o: call(og.upstream, FLOW, HEIGHTS, weights="area", **o),
    "upstream_length": lambda **o: call(og.upstream_length, FLOW, **o),
    "height_above_drainage": lambda **o: call(
        og.height_above_drainage, HEIGHTS, FLOW, COUNT > 4, **o
    ),
    "drainage_network": lambda **o: call(og.drainage_network, HEIGHTS, 4, **o),
    "streams": lambda **o: call(og.streams, FLOW, COUNT, 4, elevation=HEIGHTS, **o),
    "watersheds": lambda **o: call(og.watersheds, FLOW, [END], **o),
    "depressions": lambda **o: call(og.depressions, HEIGHTS, labels=True, **o),
    "linkages": lambda **o: call(og.linkages, HEIGHTS, [START, END], threshold=9, **o),
}
NO_RASTERS = {
    "all_pairs", "isochrones", "pass_elevation", "peaks", "polygonize", "region_network",
    "shortest_paths", "is_connected", "zonal",
}  # fmt: skip
FUNCTIONS: dict[str, Callable[[Path], xr.DataArray | xr.Dataset]] = {
    "corridor": lambda folder: og.corridor(*COSTS),
    "corridor of three": lambda folder: og.corridor([*COSTS, COSTS[0]], normalize=True),
    "corridor of stores": lambda folder: og.corridor(
        *(og.cost_distance(HEIGHTS, [end], out=folder / f"{end}.zarr") for end in (START, END))
    ),
    "path_mask": lambda folder: og.path_mask([], like=COSTS[0]),
    "rasterize": lambda folder: og.rasterize([shapely.Point(START)], HEIGHTS),
    "ingest": lambda folder: og.ingest(HEIGHTS, folder / "dem.zarr"),
    "convert_units": lambda folder: og.convert_units(og.walking_time(HEIGHTS, [START]), "h"),
    "query of an index": lambda folder: og.DistanceIndex.build(
        HEIGHTS, folder / "index.zarr", block=4
    ).query([START]),
}


def rasters_of(result: xr.Dataset) -> list[xr.DataArray]:
    return [array for array in result.data_vars.values() if array.dims == ("y", "x")]


def check_place(array: xr.DataArray, *, part: tuple[slice, slice] = np.s_[:, :]) -> None:
    whole = HEIGHTS[part]
    assert array.rio.crs == "EPSG:32632", array.name
    assert array.rio.transform() == whole.rio.transform(recalc=True), array.name
    assert array["x"].equals(whole["x"]), array.name
    assert array["y"].equals(whole["y"]), array.name
    stated = array.encoding | array.attrs  # where xarray leaves it without decode_coords="all"
    assert stated["grid_mapping"] == "spatial_ref", array.name


def written_by_hand(suffix: str) -> Callable[[Make, Path], xr.Dataset]:
    def write(make: Make, folder: Path) -> xr.Dataset:
        result = make()
        arrays = {}
        for array in rasters_of(result) if suffix != ".nc" else [None]:
            path = folder / f"{'all' if array is None else array.name}{suffix}"
            og.to_file(result if array is None else array, path)
            if array is None:
                return xr.open_dataset(path, decode_coords="all", mask_and_scale=False)
            if suffix == ".tif":
                read: Any = rioxarray.open_rasterio(path)
                arrays[array.name] = read.squeeze("band", drop=True)
                arrays[array.name].encoding.setdefault("grid_mapping", "spatial_ref")
            else:
                arrays[array.name] = og.open(path)[array.name]
        return result.assign(arrays)

    return write


def lazily(make: Make, folder: Path) -> xr.Dataset:
    try:
        return make(verb="lazy").compute()  # type: ignore[no-any-return]
    except og.InputError:  # it has a table
        return make(verb="lazy", out=folder / "lazy.zarr").compute()  # type: ignore[no-any-return]


WAYS: dict[str, Callable[[Make, Path], xr.Dataset]] = {
    "in memory": lambda make, folder: make(),
    "lazily": lazily,
    "store": lambda make, folder: make(out=folder / "r.zarr"),
    "store, by xarray": lambda make, folder: xr.open_zarr(
        make(out=folder / "r.zarr").encoding["source"], mask_and_scale=False
    ),
    "store in object storage": lambda make, folder: make(out=f"memory://{folder.parent.name}.zarr"),
    "NetCDF": lambda make, folder: make(out=folder / "r.nc"),
    "to_file, NetCDF": written_by_hand(".nc"),
    "to_file, GeoTIFF": written_by_hand(".tif"),
    "to_file, Zarr": written_by_hand(".zarr"),
}


def test_every_operation_with_rasters_is_here() -> None:
    assert {name.partition(",")[0] for name in OPERATIONS} | NO_RASTERS == set(public_operations())


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.usefixtures("object_memory")
def test_every_way_out_keeps_place_units_and_order(name: str, tmp_path: Path) -> None:
    expected = OPERATIONS[name]()
    assert rasters_of(expected)
    names = [array.attrs.get("long_name", "") for array in rasters_of(expected)]
    assert max(map(len, names)) <= LEGEND
    for way, take in WAYS.items():
        (folder := tmp_path / way).mkdir()
        found = take(OPERATIONS[name], folder)
        assert list(found.data_vars) == list(expected.data_vars), way
        for array in rasters_of(found):
            check_place(array)
            same = expected[array.name]
            assert array.dtype == same.dtype, (way, array.name)
            assert np.array_equal(array, same, equal_nan=same.dtype.kind == "f"), way
            for key in ("units", "long_name"):
                assert array.attrs.get(key) == same.attrs.get(key), (way, array.name, key)
        if "file" not in way:
            for column in expected.data_vars.values():
                units = found[column.name].attrs.get("units")
                assert units == column.attrs.get("units"), (way, column.name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_keep_the_place(name: str, tmp_path: Path) -> None:
    found = FUNCTIONS[name](tmp_path)
    arrays = [found] if isinstance(found, xr.DataArray) else rasters_of(found)
    assert arrays
    for array in arrays:
        check_place(array)
        og.to_geotiff(array, tmp_path / "out.tif", overwrite=True)
        with rioxarray.open_rasterio(tmp_path / "out.tif") as read:  # type: ignore[union-attr]
            assert read.rio.crs == "EPSG:32632"


def test_a_window_of_an_index_has_a_place_of_its_own(tmp_path: Path) -> None:
    index = og.DistanceIndex.build(HEIGHTS, tmp_path / "index.zarr", block=4)
    found = index.query([START], (3, 5, 4, 6))
    check_place(found["cost"], part=np.s_[3:7, 5:11])


def test_results_in_units_of_the_elevation_say_so() -> None:
    outputs = ("filled", "depth", "depression")
    found = og.fill_depressions(HEIGHTS, outputs=outputs)
    assert [found[name].attrs.get("units") for name in outputs] == ["m", "m", None]
    assert og.flood_level(HEIGHTS, [START])["level"].attrs["units"] == "m"
    assert og.breach_depressions(HEIGHTS)["breached"].attrs["units"] == "m"
    above = og.height_above_drainage(HEIGHTS, FLOW, COUNT > 4)
    assert above["height"].attrs["units"] == "m"
    assert og.streams(FLOW, COUNT, 4, elevation=HEIGHTS)["drop"].attrs["units"] == "m"
    assert og.peaks(HEIGHTS)["prominence"].attrs["units"] == "m"
    assert og.pass_elevation(HEIGHTS, [START, END])["elevation"].attrs["units"] == "m"
    assert og.depressions(HEIGHTS)["spill_elevation"].attrs["units"] == "m"
    unknown = HEIGHTS.drop_attrs(deep=False)
    assert "units" not in og.fill_depressions(unknown)["filled"].attrs


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes without those for which a file has places of its own, lists as lists."""
    apart = {"_FillValue", "nodata", "AREA_OR_POINT", "grid_mapping", "Conventions"}
    return {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in attributes.items()
        if key not in apart
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_geotiffs_keep_names_and_attributes(name: str, tmp_path: Path) -> None:
    result = OPERATIONS[name]()
    rasters = rasters_of(result)
    for array in rasters:
        path, again = tmp_path / f"{array.name}.tif", tmp_path / f"{array.name} again.tif"
        og.to_file(result, path, variable=str(array.name))
        if len(rasters) == 1:
            OPERATIONS[name](out=path, overwrite=True)
        found = open_raster(path)
        assert found.name == array.name
        assert plain(found.attrs) == plain(array.attrs)
        opened = open_result(path, name)
        assert list(opened) == [array.name]
        assert plain(opened.attrs) == plain(result.attrs)
        check_place(opened[array.name])
        read: Any = rioxarray.open_rasterio(path)
        assert read.name == array.name
        assert read.attrs["long_name"] == array.attrs["long_name"]
        assert read.attrs.get("units") == array.attrs.get("units")
        assert plain(open_result(read, name).attrs).items() >= plain(result.attrs).items()
        read.rio.to_raster(again)  # rioxarray writes tags of the file, and no name
        assert open_raster(again).attrs.items() >= plain(array.attrs).items()
        with rasterio.open(path) as file:
            values = array.attrs.get("flag_values")
            if values is None or array.dtype != np.uint8:
                assert file.colorinterp[0].name == "gray"
                continue
            colours = file.colormap(1)
        drawn = {value: colour for value, colour in colours.items() if any(colour[:3])}
        assert drawn.keys() == set(values)
        assert len(set(drawn.values())) == len(values)
        assert {*np.unique(array).tolist()} - {array.attrs["_FillValue"]} <= drawn.keys()


FROM_FILES: dict[str, Callable[[str], Any]] = {
    "path": lambda path: path,
    "rioxarray": lambda path: read_by_rioxarray(path),
    "written by rioxarray": lambda path: rewrite(path),
    "masked": lambda path: read_by_rioxarray(path, masked=True),
}


def read_by_rioxarray(path: str, **options: Any) -> Any:
    read: Any = rioxarray.open_rasterio(path, **options)
    return read.squeeze("band")


def rewrite(path: str) -> str:
    again = str(Path(path).with_name("by_rioxarray.tif"))
    read_by_rioxarray(path).rio.to_raster(again)
    return again


@pytest.mark.diagonal
@pytest.mark.parametrize("way", [way for way in FROM_FILES if way != "masked"])
@pytest.mark.parametrize("encoding", ["taudem", "esri", "grass", "ldd"])
def test_directions_from_a_geotiff_know_their_encoding(
    encoding: str, way: str, tmp_path: Path
) -> None:
    flow = og.flow_direction(HEIGHTS, codes=encoding, out=tmp_path / "fdir.tif")
    given = FROM_FILES[way](str(tmp_path / "fdir.tif"))
    count = og.flow_accumulation(given, out=tmp_path / "acc.tif")["accumulation"]
    assert np.array_equal(count, COUNT)
    assert np.array_equal(
        og.watersheds(given, [END])["watershed"], og.watersheds(flow, [END])["watershed"]
    )
    found = og.streams(given, tmp_path / "acc.tif", 4)
    assert np.array_equal(found["link"], og.streams(FLOW, COUNT, 4)["link"])
    with pytest.raises(og.InputError, match="holds directions"):
        og.flow_accumulation(given, method="mfd")


@pytest.mark.parametrize("way", FROM_FILES)
def test_costs_units_and_names_from_geotiffs(way: str, tmp_path: Path) -> None:
    frame = geopandas.GeoDataFrame(
        {"place": ["Au", "Egg"]}, geometry=shapely.points([START, END]), crs="EPSG:32632"
    )
    outputs = ("cost", "back_direction", "allocation")
    result = og.cost_distance(HEIGHTS, frame, label="place", outputs=outputs)
    files = []
    for name in outputs:
        og.to_file(result, tmp_path / f"{name}.tif", variable=name)
        if way == "written by rioxarray":
            (tmp_path / name).mkdir()
            read: Any = rioxarray.open_rasterio(tmp_path / f"{name}.tif")
            read[0].rio.to_raster(tmp_path / name / f"{name}.tif")
            files.append(str(tmp_path / name / f"{name}.tif"))
        else:
            files.append(FROM_FILES[way](str(tmp_path / f"{name}.tif")))
    paths = og.least_cost_path(files, [(LEFT + 90, TOP - 70)])
    assert paths == og.least_cost_path(result, [(LEFT + 90, TOP - 70)])
    assert paths[0].source in {"Au", "Egg"}
    if way != "masked":
        names = og.polygonize(files[2]).columns["name"].tolist()
        assert names == ["Au", "Egg"]
    other = og.cost_distance(HEIGHTS, [END])
    assert np.array_equal(og.corridor(files[0], other), og.corridor(result, other))
    walk = og.walking_time(HEIGHTS, [START], out=tmp_path / "walk.tif")
    seconds = FROM_FILES[way](str(tmp_path / "walk.tif"))
    bands = og.isochrones(seconds, [0.01, 0.02], unit="h")
    assert bands.to_geodataframe().equals(
        og.isochrones(walk["time"], [0.01, 0.02], unit="h").to_geodataframe()
    )


@pytest.mark.parametrize("way", FROM_FILES)
def test_edges_from_a_geotiff_are_lines(way: str, tmp_path: Path) -> None:
    heights = HEIGHTS.where(HEIGHTS < 8)
    forest = og.minimum_spanning_forest(heights, out=tmp_path / "edges.tif")
    given = FROM_FILES[way](str(tmp_path / "edges.tif"))
    lines, expected = og.forest_lines(given), og.forest_lines(forest)
    assert lines.to_geodataframe().equals(expected.to_geodataframe())
    with pytest.raises(og.InputError, match=r"its edges are float64; give"):
        og.forest_lines(heights)
    marked = heights.where(heights != 1, 0.5).assign_attrs(forest["edges"].attrs)
    with pytest.raises(og.InputError, match=r"its edges are float64, from 0 to 7; give"):
        og.forest_lines(marked)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([[0.0, 1.5]], "labels are float64, and 1.5 is not a whole number"),
        ([[0.0, 3.0]], "labels are 0 to 3 here, but it has 2 components"),
        ([[-1, 1]], "labels are -1 to 1 here, but it has 2 components"),
    ],
)
def test_cells_that_are_not_labels_are_not_counted(labels: Any, says: str) -> None:
    other = xr.DataArray(labels, dims=("y", "x"), name="labels", attrs={"component_count": 2})
    with pytest.raises(og.InputError, match=f"^result: its {says}"):
        og.component_table(other)


@pytest.mark.parametrize("way", ["path", "rioxarray", "masked"])
def test_components_from_a_geotiff_have_their_table(way: str, tmp_path: Path) -> None:
    classes = HEIGHTS.where(HEIGHTS > 4)
    land = og.connected_components(classes, out=tmp_path / "labels.tif")
    given = FROM_FILES[way](str(tmp_path / "labels.tif"))
    assert og.component_table(given, classes).equals(og.component_table(land, classes))


def test_what_rioxarray_has_written_is_called_as_its_file(tmp_path: Path) -> None:
    """It writes no names; and in memory nothing tells them."""
    outputs = ("cost", "back_direction")
    result = og.cost_distance(HEIGHTS, [START], outputs=outputs)
    for name in outputs:
        (result[name].assign_attrs(result.attrs)).rio.to_raster(tmp_path / f"{name}.tif")
    files = [read_by_rioxarray(str(tmp_path / f"{name}.tif")) for name in outputs]
    assert [file.name for file in files] == [None, None]
    assert og.least_cost_path(files, [END]) == og.least_cost_path(result, [END])
    assert np.array_equal(og.corridor(files[0], COSTS[1]), og.corridor(result, COSTS[1]))
    with pytest.raises(og.InputError, match=r"a: a DataArray without a name.*rename\('cost'\)"):
        og.corridor(result["cost"].rename(None), COSTS[1])


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("way", [way for way in FROM_FILES if way != "masked"])
def test_files_without_a_georeference_are_measured_in_cells(way: str, tmp_path: Path) -> None:
    """Their first row is in the north, as that of an array, also where rioxarray counts it 0.5."""
    heights = HEIGHTS.values
    flow = og.flow_direction(heights, out=tmp_path / "direction.tif")
    assert not flow.coords
    given = FROM_FILES[way](str(tmp_path / "direction.tif"))
    count = og.flow_accumulation(given)["accumulation"]
    assert np.array_equal(count, og.flow_accumulation(flow)["accumulation"])
    result = og.cost_distance(heights, [(0, 0)], outputs=("cost", "back_direction"))
    files = []
    for name in result:
        og.to_file(result, tmp_path / f"{name}.tif", variable=str(name))
        (tmp_path / str(name)).mkdir()
        read = FROM_FILES["rioxarray"](str(tmp_path / f"{name}.tif"))
        read.rio.to_raster(tmp_path / str(name) / f"{name}.tif")
        path = tmp_path / ("" if way != "written by rioxarray" else str(name)) / f"{name}.tif"
        files.append(FROM_FILES["rioxarray"](str(path)) if way == "rioxarray" else path)
    (expected,) = og.least_cost_path(result, [(9, 7)])
    corner = 0.5 if way == "rioxarray" else 0
    (found,) = og.least_cost_path(files, [(9 + corner, 7 + corner)])
    assert found.cells.tolist() == expected.cells.tolist()
    assert np.array_equal(found.coordinates, expected.coordinates + corner)


@pytest.mark.parametrize("ending", [".tif", ".nc"])
def test_results_are_read_from_files(ending: str, tmp_path: Path) -> None:
    walk = og.walking_time(HEIGHTS, [START], out=tmp_path / f"walk{ending}")
    hours = og.convert_units(tmp_path / f"walk{ending}", "h")["time"]
    assert hours.attrs["units"] == "h"
    assert np.array_equal(hours, og.convert_units(walk, "h")["time"])
    land = og.connected_components(HEIGHTS > 4, out=tmp_path / f"land{ending}")
    table = og.component_table(tmp_path / f"land{ending}", HEIGHTS > 4)
    assert table.equals(og.component_table(land, HEIGHTS > 4))
    assert table.equals(og.component_table(og.connected_components(HEIGHTS > 4), HEIGHTS > 4))
    forest = og.minimum_spanning_forest(HEIGHTS, out=tmp_path / f"forest{ending}")
    lines = og.forest_lines(tmp_path / f"forest{ending}")
    assert len(lines) == forest.attrs["edge_count"]
    if ending == ".nc":
        network = og.streams(FLOW, COUNT, 4, out=tmp_path / "streams.nc")
        lines = og.stream_lines(tmp_path / "streams.nc")
        assert len(lines) == len(og.stream_lines(network))
        peaks = og.peaks(HEIGHTS)
        og.to_file(peaks, tmp_path / "peaks.nc")
        assert len(og.to_geodataframe(tmp_path / "peaks.nc")) == peaks.sizes["peak"]


@pytest.mark.parametrize("ending", [".tif", ".nc"])
def test_a_file_that_cannot_be_read_is_refused_as_a_result(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"cost{ending}").write_text("no raster")
    with pytest.raises(
        og.InputError, match=rf"result: .*cost{ending} is not a .* that can be read"
    ):
        og.least_cost_path(str(tmp_path / f"cost{ending}"), [START])


def test_commands_pass_geotiffs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    og.to_geotiff(HEIGHTS, "dem.tif")
    start, end = (list(map(str, at)) for at in (START, END))
    commands = [
        ["flow_direction", "dem.tif", "fdir.tif", "--codes", "esri"],
        ["flow_accumulation", "fdir.tif", "acc.tif"],
        ["streams", "fdir.tif", "acc.tif", "4", "streams.zarr"],
        ["watersheds", "fdir.tif", "sheds.tif", "--outlets", "outlet.txt"],
        ["flow_distance", "fdir.tif", "far.tif"],
        ["downstream", "fdir.tif", "dem.tif", "outlets.tif"],
        ["upstream", "fdir.tif", "dem.tif", "mean.tif"],
        ["upstream_length", "fdir.tif", "length.tif"],
        ["cost_distance", "dem.tif", "a.tif", "--point", *start],
        ["cost_distance", "dem.tif", "b.tif", "--point", *end],
        ["corridor", "a.tif", "b.tif", "corridor.tif"],
        ["cost_distance", "dem.tif", "all.zarr", "--point", *start],
        ["to_file", "all.zarr", "cost.tif", "--variable", "cost"],
        ["to_file", "all.zarr", "back.tif", "--variable", "back_direction"],
        ["path", "cost.tif", "--and", "back.tif", "--point", *end, "--out", "path.gpkg"],
        ["walking_time", "dem.tif", "walk.tif", "--point", *start],
        ["isochrones", "walk.tif", "0.01", "bands.gpkg", "--unit", "h"],
        ["minimum_spanning_forest", "dem.tif", "forest.tif"],
        ["forest_lines", "forest.tif", "lines.gpkg"],
    ]
    (tmp_path / "outlet.txt").write_text(f"{END[0]} {END[1]}\n")
    for command in commands:
        assert main(command) == 0, command
    assert np.array_equal(open_result("acc.tif", "")["accumulation"], COUNT)
    assert np.array_equal(open_result("corridor.tif", "")["corridor"], og.corridor(*COSTS))
    (path,) = geopandas.read_file("path.gpkg").geometry
    both = og.cost_distance(HEIGHTS, [START], outputs=("cost", "back_direction"))
    assert path.equals(og.least_cost_path(both, [END])[0].geometry)


@pytest.mark.parametrize("ending", [".tif", ".nc"])
def test_info_describes_a_file(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"cost{ending}"
    og.to_file(COSTS[0], path)
    assert main(["info", str(path)]) == 0
    assert "cost_model:       friction" in capsys.readouterr().out
    path.write_text("no raster")
    assert main(["info", str(path)]) == 2
    assert f"store: {path} is no" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["s3://bucket/x", "gs://bucket/x", "memory://x"])
@pytest.mark.parametrize("ending", [".tif", ".nc", ".csv", ".gpkg", ".geojson"])
def test_files_are_not_written_to_buckets_nor_to_folders_of_their_name(
    address: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(address.replace("//", "/")).parent
    folder.mkdir(parents=True, exist_ok=True)
    out = address + ending
    labels = HEIGHTS.astype(int)
    paths = og.least_cost_path(og.cost_distance(HEIGHTS, [START], cost="eikonal"), [END])
    writers: list[Callable[[], Any]] = [
        lambda: og.peaks(HEIGHTS, out=out),
        lambda: og.peaks.submit(HEIGHTS, out=out),
        lambda: og.to_file(og.peaks(HEIGHTS), out),
    ]
    if ending in {".tif", ".nc"}:
        writers = [
            lambda: og.fill_depressions(HEIGHTS, out=out),
            lambda: og.fill_depressions.lazy(HEIGHTS, out=out),
            lambda: og.to_file(COSTS[0], out),
        ]
    if ending in {".gpkg", ".geojson"}:
        writers += [
            lambda: og.polygonize(labels, out=out),
            lambda: og.polygonize(labels).to_file(out),
            lambda: paths.to_file(out),
        ]
    for write in writers:
        with pytest.raises(og.InputError, match="it is on no file system"):
            write()
    assert not [found for found in tmp_path.rglob("*") if found.is_file()]
