"""Commands named like the functions, whose results have the form that their names end in."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from shapely import LineString, box

import orograph as og
from orograph.cli.main import main
from orograph.run.options import RunSpec
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

START, FAR = (500_000, 5_000_000), (500_290, 4_999_910)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dem() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(1, 9, (10, 30)).astype(float)
    axes = {"y": 5_000_000 - 10.0 * np.arange(10), "x": 500_000 + 10.0 * np.arange(30)}
    raster = xr.DataArray(cells, axes, ("y", "x"), "dem").rio.write_crs("EPSG:32633")
    raster.rio.to_raster("dem.tif")
    return raster


def command(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def cells_of(name: str, variable: str | None = None) -> np.ndarray:
    raster = open_raster(name, variable=variable)
    return raster.read(Window(0, 0, *raster.shape))


def test_paths_and_corridors(dem: xr.DataArray, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("cost", "back_direction")
    one = og.cost_distance(dem, [START], outputs=both, out="one.zarr")
    other = og.cost_distance(dem, [FAR], out="other.zarr")
    command("least_cost_path", "one.zarr", "--point", *FAR, "--out", "paths.gpkg")
    assert "paths.gpkg: 1 paths" in capsys.readouterr().out
    (line,) = geopandas.read_file("paths.gpkg").geometry
    (path,) = og.least_cost_path(one, [FAR])
    assert line.equals(path.geometry)
    Path("points.txt").write_text("500290 4999910\n")
    command("path", "one.zarr", "--points", "points.txt", "--out", "paths.csv")
    rows = list(csv.DictReader(Path("paths.csv").read_text().splitlines()))
    assert [int(row["row"]) for row in rows] == path.cells[:, 0].tolist()
    for out in ("corridor.tif", "corridor.zarr"):
        command("corridor", "one.zarr", "other.zarr", out)
        assert np.array_equal(cells_of(out), og.corridor(one, other))
    command(
        *("corridor", "one.zarr", "other.zarr", "several.zarr"),
        *("--and", "one.zarr", "--normalize", "--threshold", 50),
    )
    expected = og.corridor([one, other, one], normalize=True, threshold=50)
    assert np.array_equal(cells_of("several.zarr"), expected, equal_nan=True)


def test_layers_and_files(dem: xr.DataArray, capsys: pytest.CaptureFixture[str]) -> None:
    road = LineString([(500_001.3, 4_999_998.9), (500_288.1, 4_999_911.7)])
    areas = [box(500_003, 4_999_953, 500_041, 4_999_988), road]
    frame = geopandas.GeoDataFrame({"kind": [7, 3]}, geometry=areas, crs="EPSG:32633")
    frame.to_crs("EPSG:4326").to_file("areas.gpkg")
    command("rasterize", "areas.gpkg", "dem.tif", "areas.tif", "--label", "kind")
    assert np.array_equal(cells_of("areas.tif"), og.rasterize(frame, dem, label="kind"))
    forest = og.minimum_spanning_forest(dem, out="forest.zarr")
    command("forest_lines", "forest.zarr", "edges.gpkg", "--window", 0, 0, 5, 5)
    assert len(geopandas.read_file("edges.gpkg")) == len(og.forest_lines(forest, (0, 0, 5, 5)))
    command("flow_direction", "dem.tif", "flow.zarr")
    command("flow_accumulation", "flow.zarr", "count.zarr")
    command("streams", "flow.zarr", "count.zarr", 9, "streams.zarr")
    command("polygonize", "areas.tif", "again.gpkg")
    assert geopandas.read_file("again.gpkg")["label"].tolist() == [3, 7]
    og.cost_distance(dem, [(500_010, 4_999_980)], out="cost.zarr")
    command("isochrones", "cost.zarr", 100, 200, 300, "bands.gpkg")
    bands = geopandas.read_file("bands.gpkg")
    expected = og.isochrones("cost.zarr", [100, 200, 300]).columns["upper"]
    assert bands["upper"].tolist() == expected.tolist()
    outputs = ("cost", "allocation")
    og.cost_distance(dem, frame, label="kind", outputs=outputs, out="several.zarr")
    command("isochrones", "several.zarr", 100, 200, "several.gpkg")
    of_costs = og.isochrones(og.open("several.zarr")["cost"], [100, 200])
    assert geopandas.read_file("several.gpkg").area.tolist() == [
        area.area for area in of_costs.geometry
    ]
    command("polygonize", "several.zarr", "several.geojson")
    assert geopandas.read_file("several.geojson")["label"].tolist() == [3, 7]
    command("isochrones", "several.zarr", 5, "zones.gpkg", "--variable", "allocation")
    assert geopandas.read_file("zones.gpkg")["upper"].tolist() == [5]
    command("isochrones", "cost.zarr", 100, "lines.geojson", "--no-polygons", "--parts")
    assert "level" in geopandas.read_file("lines.geojson")
    command(
        "region_network", "dem.tif", "--regions", "areas.gpkg", "network.gpkg", "--label", "kind"
    )
    network = geopandas.read_file("network.gpkg")
    assert network[["from", "to"]].to_numpy().tolist() == [[3, 7]]
    assert network["cost"][0] == og.region_network(dem, frame, label="kind").columns["cost"][0]
    with pytest.warns(RuntimeWarning, match="4 of 11 links have no line"):
        command("stream_lines", "streams.zarr", "streams.gpkg")
    with pytest.warns(RuntimeWarning, match="4 of 11 links have no line"):
        lines = og.stream_lines("streams.zarr")
    assert len(geopandas.read_file("streams.gpkg")) == len(lines) > 0
    command("to_geotiff", "forest.zarr", "edges.tif")
    assert np.array_equal(cells_of("edges.tif"), forest["edges"])


def test_roads(dem: xr.DataArray) -> None:
    lines = [LineString([(500_001.3, 4_999_998.9), (500_288.1, 4_999_911.7)])]
    frame = geopandas.GeoDataFrame({"highway": ["track"]}, geometry=lines, crs="EPSG:32633")
    frame.to_file("roads.gpkg")
    for name, words, given in (
        ("a", ("--speed", 30), {"speed": 30}),
        ("b", ("--speed", "track=15", "path=none", "--unit", "min"), {"speed": {"track": 15},
         "unit": "min"}),
        ("c", ("--cost", "length", "--oneway", "yes", "--access", "ends"),
         {"cost": "length", "oneway": True, "access": "ends"}),
    ):  # fmt: skip
        command("roads", "roads.gpkg", "dem.tif", f"{name}.zarr", *words)
        links, expected = og.read_graph(f"{name}.zarr"), og.roads(frame, like=dem, **given)
        assert links.directed == expected.directed
        np.testing.assert_array_equal(links.rows.weight, expected.rows.weight)
    command("cost", "dem.tif", "near.zarr", "--links", "a.zarr", "--point", 500_015, 4_999_985)
    assert og.open("near.zarr").attrs["links"] > 0


def test_tables_of_graphs() -> None:
    lengths = np.array([[0, 2, 0], [0, 0, 3], [1, 0, 0.0]])
    np.save("graph.npy", lengths)
    expected = og.all_pairs(lengths)["distance"].values
    command("all_pairs", "graph.npy", "table.csv")
    table = np.loadtxt("table.csv", delimiter=",", skiprows=1)
    assert np.array_equal(table[:, 1:], expected)
    command("all_pairs", "graph.npy", "table.zarr", "--predecessors")
    assert np.array_equal(og.open("table.zarr")["distance"], expected)


def test_hops_from_a_vector_file(dem: xr.DataArray) -> None:
    frame = geopandas.GeoSeries([box(500_000, 4_999_950, 500_040, 4_999_990)], crs="EPSG:32633")
    frame.to_file("area.gpkg")
    command("hop_distance", "dem.tif", "hops.tif", "--sources", "area.gpkg", "--workers", 1,
            "--connectivity", 4)  # fmt: skip
    assert np.array_equal(cells_of("hops.tif"), og.hop_distance(dem, frame, connectivity=4)["hops"])


def test_components_with_a_table(dem: xr.DataArray) -> None:
    command("connected_components", "dem.tif", "labels.zarr", "--table", "t.csv", "--workers", 1)
    rows = list(csv.DictReader(Path("t.csv").read_text().splitlines()))
    table = og.component_table(og.connected_components(dem), dem)
    assert [float(row["class"]) for row in rows] == table["class"].tolist()
    assert [float(row["area"]) for row in rows] == table["area"].tolist()


def test_kernels_are_compiled_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    command("compile", "connected_components", "hop_distance", "--dtype", "uint8")
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["connected_components", "hop_distance"]
    assert main(["compile", "everything"]) != 0


BAD: dict[str, tuple[tuple[object, ...], str]] = {
    "an ending that is none": (("path", "one.zarr", "--point", 1, 2, "--out", "p.xyz"), "p.xyz"),
    "no such points": (("path", "one.zarr", "--points", "none.txt"), "none.txt is not a file"),
    "no such graph": (("all_pairs", "none.npy", "t.csv"), "none.npy is not a file"),
    "a graph of no kind": (("all_pairs", "graph.txt", "t.csv"), "ends in none of"),
    "several rasters in a file": (
        ("cost", "dem.tif", "c.tif", "--point", *START, "--outputs", "cost", "back_direction"),
        "which holds one raster, but there are 2",
    ),
    "a layer that is none": (
        ("rasterize", "dem.tif", "dem.tif", "o.tif"),
        "layer: 'dem.tif'; give",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_command_is_refused_in_a_line(
    case: str, dem: xr.DataArray, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, says = BAD[case]
    assert main([str(argument) for argument in arguments]) != 0
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("is_connected", "dem.tif", "--from", *START, "--to", *FAR),
        ("index", "build", "dem.tif", "index.zarr", "--block", 8),
        ("all_pairs", "graph.npy", "lengths.zarr"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_take_the_backend(
    arguments: tuple[object, ...], dem: xr.DataArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("graph.npy", np.ones((4, 4)))
    wanted: list[str | None] = []

    def note(options: RunSpec) -> None:
        wanted.append(options.backend)
        raise og.BackendError("no GPU")

    monkeypatch.setattr(RunSpec, "__post_init__", note)
    texts = [str(argument) for argument in (*arguments, "--backend", "cuda")]
    assert main(texts) == 1
    assert wanted == ["cuda"]


def test_points_may_be_in_files(dem: xr.DataArray, capsys: pytest.CaptureFixture[str]) -> None:
    np.savetxt("ends.txt", [START, FAR])
    np.savetxt("start.csv", [START], delimiter=",")
    said = []
    for ends in (("--points", "ends.txt"), ("--point", *START, "--point", *FAR)):
        command("passes", "dem.tif", *ends)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].startswith("0 1: ")
    command("reach", "dem.tif", "--from-file", "start.csv", "--to", *FAR, "--no-hops")
    assert capsys.readouterr().out == "pair 0: connected\n"


def test_a_raster_that_wraps_is_cut_at_its_edges_by_a_switch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = og.cost_distance(np.ones((5, 9)), [(0, 2)], wrap=True)
    friction, out = str(tmp_path / "friction.tif"), str(tmp_path / "out.zarr")
    og.to_file(costs.assign(cost=costs["cost"] + 1), friction)
    command = ["cost_distance", friction, out, "--cost", "eikonal", "--point", "0", "2"]
    assert main(command)
    assert "pass --no-wrap" in capsys.readouterr().err
    assert not main([*command, "--no-wrap"])
    assert "reached_cells: 45" in capsys.readouterr().out
