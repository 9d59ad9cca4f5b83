"""The guides work with a GeoTIFF between their steps, in Python and in the shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from programs import run_program
from test_docs import COMMAND, ROOT, code_of, shows_python
from through_files import WAYS, check_same

import orograph as og
from orograph.cli.main import main
from orograph.results.opening import open_result

geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed: orograph[vector]")
pytest.importorskip("pyogrio", reason="pyogrio is not installed: orograph[vector]")

GUIDES = {
    page.stem: page
    for page in sorted((ROOT / "docs/guides").glob("*.md"))
    if page.name != "index.md" and shows_python(page)
}
WITHOUT_RASTERS = {
    "clusters": "arrays of NumPy and stores",
    "coming_from": "arrays of NumPy",
    "gpus": "for a GPU",
    "graphs": "graphs other than grids",
    "limits": "arrays of NumPy",
    "operating": "plans, and arrays of NumPy",
}
"""Guides whose steps hand no raster of xarray to one another."""
QUICK = {"flow": 4, "paths": 4}
"""Guides of the default suite, and of how many rows and columns of the terrain they have one."""
WHOLE = {"indices", "roads"}
"""Guides that ask for cells by number, or for what a coarser terrain does not have."""


def run_guide(name: str, folder: Path, every: int, *ways: str) -> dict[str, int]:
    """Run a guide's code, each call a second time with its rasters in files.

    Return how many calls of each function had a raster in a file.
    """
    lines = code_of(GUIDES[name]).split("\n")
    assert not lines[0], "the title of the page is in its first line"
    lines[0] = (
        "import through_files, warnings; from pathlib import Path; "
        "warnings.filterwarnings('ignore', module='rasterio'); "
        f"through_files.use_exact_terrain({every}); "
        f"files = through_files.install(Path('files'), *{ways!r})"
    )
    lines.append("through_files.report(files)")
    said = run_program("\n".join(lines), GUIDES[name], folder)
    passed: dict[str, int] = json.loads(said.splitlines()[-1])
    return passed


@pytest.mark.parametrize("name", QUICK)
def test_a_guide_gives_the_same_through_geotiffs(name: str, tmp_path: Path) -> None:
    assert run_guide(name, tmp_path, QUICK[name])


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name in GUIDES if name not in WITHOUT_RASTERS])
def test_every_guide_gives_the_same_through_geotiffs(name: str, way: str, tmp_path: Path) -> None:
    assert run_guide(name, tmp_path, 1 if name in WHOLE else 2, way)


IN_FILES = {
    "first": ["walk"],
    "rasters": ["seconds"],
    "flow": ["flow", "count", "basins"],
    "distances": ["cost"],
    "vectors": ["cost"],
    "components": ["labels"],
    "roads": ["time"],
}
"""Rasters that a command of a guide writes, by guide: as a store and as a GeoTIFF."""
BEFORE = {"vectors": ["cost friction.tif cost.zarr --point -84.17 36.305"]}
"""Commands before those of a guide, which has made the store in Python."""
ELSEWHERE = {"town.osm.pbf", "friction.zarr", "roads.gr"}
"""Files that the folder does not have, and other commands of the guides would need."""
STORES = {
    "streams": "rasters with a table",
    "network": "rasters with a table",
    "linkages": "rasters with a table",
    "relief": "several rasters",
    "way": "several rasters",
    "roads": "a graph",
    "dem": "made by ingest, which only makes stores",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands of the guides read."""
    from through_files import use_exact_terrain

    folder = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        from orograph.cli import demo

        patch.setattr(demo, "jacksboro_fault", demo.jacksboro_fault)
        use_exact_terrain(4)
        elevation = demo.jacksboro_fault()
    friction = demo.steepness(elevation)
    for name in ("dem", "elevation"):
        og.to_geotiff(elevation, folder / f"{name}.tif")
    og.to_geotiff(friction, folder / "friction.tif")
    og.to_geotiff(elevation > 550, folder / "mask.tif")
    places = geopandas.points_from_xy([-84.17, -84.34], [36.305, 36.20])
    villages = geopandas.GeoDataFrame({"village": ["Elm", "Oak"]}, geometry=places, crs="EPSG:4326")
    villages.to_file(folder / "villages.gpkg")
    line = geopandas.GeoSeries.from_wkt(["LINESTRING (-84.33 36.27, -84.2 36.31, -84.1 36.4)"])
    roads = geopandas.GeoDataFrame({"highway": ["primary"]}, geometry=line, crs="EPSG:4326")
    roads.to_file(folder / "lines.gpkg")
    (folder / "factor.txt").write_text("-35 1.5\n0 1\n60 6\n")
    return folder


def run_commands(name: str, ending: str, inputs: Path, folder: Path) -> list[str]:
    """Run the commands of a guide in a folder, its rasters in files of an ending; return them."""
    folder.mkdir()
    for path in inputs.iterdir():
        (folder / path.name).symlink_to(path)
    text = GUIDES[name].read_text(encoding="utf-8")
    lines = ["".join(groups) for groups in COMMAND.findall(text)]
    done = []
    for line in [*BEFORE.get(name, []), *lines]:
        words = shlex.split(line, comments=True)
        if len(words) < 2 or "|" in words or ELSEWHERE & {*words}:
            continue
        stems = {f"{stem}{other}" for stem in IN_FILES[name] for other in (".tif", ".zarr")}
        words = [str(Path(word).with_suffix(ending)) if word in stems else word for word in words]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert main(words) == 0, words
        done += words
    return done


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in {"first", "flow"} else pytest.mark.long)
        for name in IN_FILES
    ],
)
def test_the_commands_of_a_guide_give_the_same_through_geotiffs(
    name: str, inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stored, filed = (
        run_commands(name, ending, inputs, tmp_path / ending[1:]) for ending in (".zarr", ".tif")
    )
    for stem in IN_FILES[name]:
        assert f"{stem}.zarr" in stored
        expected = open_result(tmp_path / f"zarr/{stem}.zarr", name)
        found = open_result(tmp_path / f"tif/{stem}.tif", name)
        (raster,) = found
        check_same(found[raster], expected[raster], masked=False)
    left = {word for word in filed if word.endswith(".zarr")}
    assert {Path(word).stem for word in left} <= STORES.keys()
    for layer in {word for word in filed if word.endswith(".gpkg")}:
        one, other = (geopandas.read_file(tmp_path / part / layer) for part in ("zarr", "tif"))
        assert one.equals(other), layer


def dem() -> xr.DataArray:
    cells = np.random.default_rng(4).integers(1, 9, (12, 14)).astype(float)
    axes = {"y": 5_000_000 - 10.0 * np.arange(12), "x": 600_000 + 10.0 * np.arange(14)}
    raster: xr.DataArray = xr.DataArray(cells, axes, ("y", "x"), "dem").rio.write_crs("EPSG:32632")
    return raster


def network(**options: Any) -> xr.Dataset:
    """A stream network, of whose links some have no line."""
    flow = og.flow_direction(dem())
    return og.streams(flow, og.flow_accumulation(flow), 4, **options)


def linked() -> list[xr.DataArray]:
    """The rasters of a result whose paths use links, the ends of which are a table."""
    ends = {"source": [0], "target": [13], "weight": [0.5]}
    import pandas as pd

    links = og.read_graph(pd.DataFrame(ends), directed=False)
    outputs = ("cost", "back_direction")
    result = og.cost_distance(dem(), [(600_000, 5_000_000)], links=links, outputs=outputs)
    for name in outputs:
        og.to_file(result, f"{name}.tif", variable=name)
    return og.least_cost_path([f"{name}.tif" for name in outputs], [(600_130, 5_000_000)])


def written(result: Any) -> Any:
    og.to_file(result, "a.tif")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "streams, rasters with a table": (lambda: network(out="a.tif"), "holds one raster, but there"),
    "streams, later": (lambda: written(network()), "has 2 rasters"),
    "links of streams without their table": (
        lambda: (og.to_file(network(), "a.tif", variable="link"), og.stream_lines("a.tif")),
        "no table of links; give all that streams has returned, or the path of its .zarr or .nc",
    ),
    "paths that use links": (
        linked,
        "the path of its .zarr or .nc, as a GeoTIFF holds no table of links",
    ),
    "a table of peaks": (lambda: og.peaks(dem(), out="a.tif"), "a table goes into .gpkg"),
    "a table of peaks, later": (lambda: written(og.peaks(dem())), "name it .gpkg"),
    "two rasters": (
        lambda: og.fill_depressions(dem(), outputs=("filled", "depth"), out="a.tif"),
        "ask for one output, or name it .nc or .zarr",
    ),
    "three dimensions": (
        lambda: written(xr.concat([dem(), dem()], "time").expand_dims("level")),
        "4 dimensions",
    ),
    "an index": (lambda: og.DistanceIndex.build(dem(), "a.tif"), "name it a.zarr"),
    "a store of tiles": (lambda: og.ingest(dem(), "a.tif"), "name it a.zarr"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_geotiff_holds_is_refused_in_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call, message = REFUSED[name]
    with pytest.raises(og.InputError) as refused:
        call()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
