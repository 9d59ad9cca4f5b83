"""The command line, as a user types it, and the demonstration.

Commands are called in this process, but for two: to start one anew takes seconds.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import rasterio
import xarray as xr
from matplotlib.image import imread
from rasterio.transform import from_origin

import orograph as og
from orograph.cli.main import _watch, main


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def dem(tmp_path: Path) -> Path:
    path = tmp_path / "dem.tif"
    heights = np.random.default_rng(5).integers(1, 60, (40, 50)).astype(np.int16)
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=40,
        width=50,
        count=1,
        dtype="int16",
        crs="EPSG:32633",
        transform=from_origin(500_000, 5_000_000, 30, 30),
    ) as target:
        target.write(heights, 1)
    return path


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "orograph", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def orograph(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command in this process, with what it printed."""
    command = [str(argument) for argument in arguments]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:
        status = main(command)
    return subprocess.CompletedProcess(command, status, out.getvalue(), error.getvalue())


@pytest.mark.parametrize(
    ("command", "operation"),
    [
        ("mst", "minimum_spanning_forest"),
        ("fill", "fill_depressions"),
        ("flood", "flood_level"),
        ("passes", "pass_elevation"),
    ],
)
def test_an_operation_is_planned_by_the_name_of_its_command(
    command: str, operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["plan", command, "--shape", "500", "600"])
    assert capsys.readouterr().out.startswith(f"{operation} of 500 x 600 cells")


@pytest.mark.parametrize(
    ("silence", "progress", "shown"),
    [(3600.0, True, False), (0.0, True, True), (0.0, "auto", False)],
    ids=["short", "long", "in a log"],
)
def test_a_bar_is_for_what_takes_long(
    silence: float,
    progress: bool | str,
    shown: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("orograph.cli.main.SECONDS_OF_SILENCE", silence)
    with og.config.set(progress=progress):
        _watch(og.minimum_spanning_forest.submit(np.ones((4, 4))), "the name")
    said = capsys.readouterr().err
    assert ("the name" in said) is shown
    assert "dashboard" not in said  # threads have none


def test_a_run_may_end_just_after_a_wait_for_it_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, expected = Event(), xr.Dataset({"edges": 3})

    def work() -> xr.Dataset:
        go_on.wait()
        return expected

    run = og.Run(work, lambda: None, Event(), None)
    wait = run.result

    def times_out(timeout: float | None = None) -> xr.Dataset:
        if timeout is None:
            return wait()
        go_on.set()
        wait()
        raise TimeoutError

    monkeypatch.setattr(run, "result", times_out)
    assert _watch(run, "the name") is expected


def test_a_forest_from_the_shell_is_that_of_the_library(dem: Path, tmp_path: Path) -> None:
    ingested = orograph("ingest", dem, "dem.zarr", "--tile", 8)
    assert ingested.returncode == 0, ingested.stderr
    assert "elevation" in ingested.stdout

    planned = orograph("plan", "minimum_spanning_forest", "dem.zarr")
    assert "35 tiles of 8 x 8 cells" in planned.stdout

    made = process("mst", "dem.zarr", "forest.zarr", "--workers", 1)
    assert made.returncode == 0, made.stderr
    assert "dashboard: http" in made.stderr
    expected = og.minimum_spanning_forest(dem)
    assert f"total_weight: {expected.attrs['total_weight']}" in made.stdout
    assert "dashboard: http" in made.stderr
    found = og.open(tmp_path / "forest.zarr")
    assert np.array_equal(found["edges"].values, expected["edges"].values)

    again = orograph("mst", "dem.zarr", "forest.zarr", "--workers", 1)
    assert again.returncode == 2
    assert "pass --overwrite to replace it" in again.stderr
    assert "Traceback" not in again.stderr


def test_costs_paths_and_components_from_the_shell(dem: Path, tmp_path: Path) -> None:
    point = (500_015, 4_999_985)
    made = orograph("cost", dem, "cost.zarr", "--point", *point, "--workers", 1, "--tile", 16)
    assert made.returncode == 0, made.stderr
    assert "reached_cells: 2000" in made.stdout
    expected = og.cost_distance(dem, [point])
    found = og.open(tmp_path / "cost.zarr")
    assert np.array_equal(found["cost"].values, expected["cost"].values)

    traced = orograph("path", "cost.zarr", "--point", 501_485, 4_998_815)
    assert traced.returncode == 0, traced.stderr
    lines = traced.stdout.splitlines()
    assert lines[0].startswith("point 0: cost")
    assert lines[1] == "501485 4998815"
    assert lines[-1] == "500015 4999985"

    labelled = orograph(
        *("components", dem, "labels.zarr", "--workers", 1, "--picture", "labels.png")
    )
    assert labelled.returncode == 0, labelled.stderr
    assert "picture: labels.png" in labelled.stdout
    height, width = imread(tmp_path / "labels.png").shape[:2]
    assert (height, width) == (400, 500)
    count = og.connected_components(dem).attrs["component_count"]
    assert f"component_count: {count}" in labelled.stdout


def test_depressions_from_the_shell(dem: Path, tmp_path: Path) -> None:
    options = ("--outputs", "filled", "depth", "--max-depth", 20, "--workers", 1, "--tile", 16)
    filled = orograph("fill", dem, "filled.zarr", *options)
    assert filled.returncode == 0, filled.stderr
    expected = og.fill_depressions(dem, outputs=["filled", "depth"], max_depth=20)
    found = og.open(tmp_path / "filled.zarr")
    for name in ("filled", "depth"):
        assert np.array_equal(found[name].values, expected[name].values)
    outlet = ("--outlet", 500_015, 4_999_985, "--workers", 1, "--overwrite")
    filled = orograph("fill", dem, "filled.zarr", *outlet)
    assert filled.returncode == 0, filled.stderr
    expected = og.fill_depressions(dem, outlets=(500_015, 4_999_985))
    assert np.array_equal(og.open(tmp_path / "filled.zarr")["filled"].values, expected["filled"])


def test_floods_and_passes_from_the_shell(dem: Path, tmp_path: Path) -> None:
    near, far = (500_015, 4_999_985), (501_485, 4_998_815)
    flooded = orograph("flood", dem, "l.zarr", "--source", *far, "--workers", 1)
    assert flooded.returncode == 0, flooded.stderr
    level = og.flood_level(dem, far)["level"].values
    assert np.array_equal(og.open(tmp_path / "l.zarr")["level"].values, level)
    found = orograph("passes", dem, "--point", *near, "--point", *far)
    assert found.returncode == 0, found.stderr
    at = og.pass_elevation(dem, near, far).squeeze()
    where = f"{float(at['pass_x']):.10g} {float(at['pass_y']):.10g}"
    assert found.stdout == f"0 1: {level[0, 0]} at {where}\n"
    options = ("--out", "passes.zarr", "--paths")
    found = orograph("passes", dem, "--point", *near, "--target", *far, *options)
    assert found.returncode == 0, found.stderr
    assert found.stdout == f"0 0: {level[0, 0]} at {where}\n"
    stored = og.open(tmp_path / "passes.zarr")
    assert stored["path_x"].values[[0, -1]].tolist() == [near[0], far[0]]


def test_peaks_from_the_shell(dem: Path, tmp_path: Path) -> None:
    options = ("--min-prominence", 30, "--workers", 1, "--tile", 16)
    found = orograph("peaks", dem, "peaks.zarr", *options)
    assert found.returncode == 0, found.stderr
    expected = og.peaks(dem, min_prominence=30)
    assert f"peaks: {expected.sizes['peak']}" in found.stdout
    stored = og.open(tmp_path / "peaks.zarr")
    assert np.array_equal(stored["prominence"], expected["prominence"])


def test_the_hierarchy_of_depressions_from_the_shell(dem: Path, tmp_path: Path) -> None:
    options = ("--min-depth", 10, "--min-area", 1800, "--labels", "--workers", 1, "--tile", 16)
    found = orograph("depressions", dem, "d.zarr", *options)
    assert found.returncode == 0, found.stderr
    expected = og.depressions(dem, min_depth=10, min_area=1800)
    assert f"depressions: {expected.sizes['depression']}" in found.stdout
    stored = og.open(tmp_path / "d.zarr")
    assert np.array_equal(stored["volume"], expected["volume"])
    labels = og.depressions(dem, labels=True)["labels"]
    assert np.array_equal(stored["labels"], labels)


def test_whether_points_are_connected_from_the_shell(dem: Path, tmp_path: Path) -> None:
    near, far = (500_015, 4_999_985), (501_485, 4_998_815)
    found = orograph(*("reach", dem, "--from", *near, "--to", *far, "--connectivity", 4))
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == "pair 0: connected, 88 hops"
    assert lines[1] == "500015 4999985"
    assert lines[-1] == "501485 4998815"
    assert len(lines) == 1 + 89

    with rasterio.open(dem) as source:
        heights, profile = source.read(1), source.profile
    heights[:, 20] = 0
    with rasterio.open(tmp_path / "wall.tif", "w", **profile) as target:
        target.write(heights, 1)
    pairs = ("--from", *near, "--to", *far, "--from", *near, "--to", 500_045, 4_999_985)
    parted = orograph("reach", "wall.tif", *pairs, "--no-path")
    assert parted.returncode == 0, parted.stderr
    assert parted.stdout.splitlines() == ["pair 0: not connected", "pair 1: connected, 1 hops"]

    barred = orograph("reach", "wall.tif", "--from", *near, "--to", 500_615, 4_999_985)
    assert barred.returncode == 2
    assert "t: point 0 (x=500615, y=4999985) lies on cells that are not" in barred.stderr
    assert "Traceback" not in barred.stderr


def test_the_demo_ends_with_pictures(tmp_path: Path) -> None:
    ended = orograph("demo", "--folder", tmp_path / "shown")
    assert ended.returncode == 0, ended.stderr
    for said in ("138,632 cells", "138,631 edges", "dashboard: http", "same bits"):
        assert said in ended.stdout
    for name in ("forest.png", "cost.png"):
        assert (tmp_path / "shown" / name).stat().st_size > 100_000


def test_verify_names_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores = [str(tmp_path / name) for name in ("one.zarr", "two.zarr")]
    for store in stores:
        og.ingest(np.eye(9), store, tile=4, shard=4)
    assert main(["verify", *stores]) == 0
    assert capsys.readouterr().out.count("whole; 9 files match") == 2
    shard = tmp_path / "one.zarr/elevation/c/1/2"
    shard.write_bytes(shard.read_bytes()[:-9])
    assert main(["verify", str(tmp_path), *stores]) == 1
    said = capsys.readouterr()
    assert f"{shard}: shard (1, 2) of elevation cannot be read" in said.out
    assert f"{stores[1]}: whole" in said.out
    assert "is not a store of orograph" in said.err
