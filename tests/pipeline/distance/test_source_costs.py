"""Sources of different strengths: as one run for each source, and plain Dijkstra, say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import oracle_distance as oracle
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

import orograph as og
from orograph.cli.main import main
from orograph.distance.strengths.growth import grown

ALL = ("cost", "back_direction", "allocation")
POINTS = [(3, 2), (30, 20), (15, 11), (28, 3)]
START = [3.0, 7.0, 0.0, 12.0]
COST: dict[str, Any] = {
    "multiplier": [1, 0.5, 2, 0.5],
    "rate": [0, 0.01, 0, 0.01],
    "maximum": [math.inf, 300, 40, 300],
}
Array = np.ndarray[Any, Any]


def landscape(seed: int = 6) -> Array:
    """Whole frictions with barriers, but not at the points."""
    rng = np.random.default_rng(seed)
    friction = 2.0 * rng.integers(1, 9, (24, 33))
    friction[rng.random(friction.shape) < 0.15] = np.nan
    for x, y in POINTS:
        friction[y, x] = 4
    return friction


def accumulated(plain: Array, start: float, multiplier: float, rate: float, most: float) -> Array:
    """What has accumulated where a path costs so much, by the mathematics library."""
    found = start + multiplier * plain
    if rate:
        found = (start + 1 / rate) * np.exp(rate * multiplier * plain) - 1 / rate
    return np.where((found <= most) & (plain >= 0), found, np.inf)


def by_dijkstra(friction: Array, connectivity: int = 8) -> list[Array]:
    """The accumulated costs of each source by plain Dijkstra from it alone."""
    steps = oracle.list_steps(friction, connectivity=connectivity)
    fields = []
    for number, (x, y) in enumerate(POINTS):
        plain = oracle.heap_distance(steps, friction.shape, [(y, x, number, 0.0)])
        own = [COST[key][number] for key in ("multiplier", "rate", "maximum")]
        fields.append(accumulated(plain, START[number], *own))
    return fields


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 99),
    tile=st.sampled_from([3, 5, 8, 64]),
    connectivity=st.sampled_from([4, 8, 16]),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test_the_least_over_all_sources(seed: int, tile: int, connectivity: int, dtype: str) -> None:
    friction = landscape(seed)
    how: dict[str, Any] = {"connectivity": connectivity, "dtype": dtype}
    found = og.cost_distance(
        friction, POINTS, source_cost=COST, initial_cost=START, outputs=ALL, tile=tile, **how
    )
    assert found.attrs["source_runs"] == 3
    fields = by_dijkstra(friction, connectivity)
    expected = np.min(fields, axis=0)
    cost, tolerance = found["cost"].values, 1e-12 if dtype == "float64" else 1e-5
    # a cost beside the maximum may lie on either side of it
    clear = np.all([~np.isclose(f, m, 1e-4) for f, m in zip(fields, COST["maximum"])], axis=0)
    np.testing.assert_array_equal(np.isfinite(cost)[clear], np.isfinite(expected)[clear])
    both = np.isfinite(cost) & np.isfinite(expected)
    np.testing.assert_allclose(cost[both], expected[both], rtol=tolerance)
    own = np.take_along_axis(np.array(fields), found["allocation"].values[None].clip(0), 0)[0]
    np.testing.assert_allclose(own[both], expected[both], rtol=10 * tolerance)
    reached, passable = np.isfinite(cost), ~np.isnan(friction)
    assert found.attrs["reached_cells"] == reached.sum()
    assert found.attrs["unreached_cells"] == (passable & ~reached).sum()
    assert np.array_equal(found["allocation"] == -1, ~reached)
    assert np.array_equal(found["back_direction"] == 255, ~reached)
    whole = og.cost_distance(
        friction, POINTS, source_cost=COST, initial_cost=START, outputs=ALL, **how
    )
    assert found.identical(whole)


def test_each_run_is_that_of_its_sources_alone() -> None:
    friction = landscape()
    cost = {**COST, "multiplier": [1, 0.5, 2, 0.25]}
    found = og.cost_distance(friction, POINTS, source_cost=cost, initial_cost=START, outputs=ALL)
    best: dict[str, Array] = {}
    for number, point in enumerate(POINTS):
        own = {key: values[number] for key, values in cost.items()}
        alone = og.cost_distance(
            friction, [point], source_cost=own, initial_cost=START[number], outputs=ALL
        )
        assert alone.attrs["source_runs"] == 1
        part = {name: alone[name].values for name in ALL}
        part["allocation"] = np.where(part["allocation"] == 0, number, -1)
        if not best:
            best = part
            continue
        better = (part["cost"] < best["cost"]) | (np.isnan(best["cost"]) & (part["cost"] >= 0))
        best = {name: np.where(better, part[name], best[name]) for name in ALL}
    for name in ALL:
        np.testing.assert_array_equal(found[name], best[name], name)


@pytest.mark.parametrize(("zeros", "most"), [(0.7, 0), (0.0, 40)])
def test_back_directions_lead_to_a_source(zeros: float, most: int) -> None:
    """Over ground of no cost too, where many sources cost the same."""
    rng = np.random.default_rng(2)
    friction = np.where(rng.random((20, 24)) < zeros, 0.0, rng.uniform(1, 9, (20, 24)))
    points = [(1, 1), (20, 15), (4, 18), (22, 2)]
    cost = {"multiplier": [1, 2, 3, 0.5], "rate": [0, 0, 0.1, 0.2]}
    found = og.cost_distance(friction, points, source_cost=cost, outputs=ALL, tile=5)
    overtaken = 0
    for row, column in np.ndindex(20, 24):
        try:
            (path,) = og.least_cost_path(found, [(column, row)])
        except og.InputError:
            overtaken += 1
        else:
            assert tuple(path.cells[-1].tolist()) == points[path.source][::-1]
    assert most // 10 <= overtaken <= most


def test_a_path_over_ground_that_another_source_wins_is_refused() -> None:
    sources: dict[str, Any] = {
        "sources": [(0, 0), (3, 0)],
        "source_cost": {"multiplier": [1, 5]},
    }
    found = og.cost_distance(np.ones((1, 6)), outputs=ALL, **sources)
    assert found["allocation"].values.tolist() == [[0, 0, 0, 1, 0, 0]]
    (before,) = og.least_cost_path(found, [(2, 0)])
    assert before.cells.tolist() == [[0, 2], [0, 1], [0, 0]]
    with pytest.raises(og.InputError, match="to source 0 crosses row 0, column 3, where source 1"):
        og.least_cost_path(found, [(4, 0)])
    with pytest.raises(og.InputError, match="back_direction and allocation"):
        og.least_cost_path(found.drop_vars("allocation"), [(2, 0)])


@pytest.mark.parametrize("strength", [{"multiplier": 3}, {"rate": 1}])
def test_costs_that_do_not_add_up_make_no_corridor(strength: dict[str, float]) -> None:
    friction = np.ones((1, 7))
    east = og.cost_distance(friction, [(6, 0)])
    west = og.cost_distance(friction, [(0, 0)], source_cost=strength)
    with pytest.raises(og.InputError, match="multipliers or rates"):
        og.corridor(west, east)
    limited = og.cost_distance(friction, [(0, 0)], source_cost={"maximum": 9})
    assert og.corridor(limited, east).values.tolist() == [[6.0] * 7]


def test_smaller_labels_win_ties() -> None:
    found = og.cost_distance(
        np.ones((1, 7)), [(0, 0), (6, 0)], source_cost={"multiplier": [2, 1]}, outputs=ALL
    )
    # at column 2 both cost 4
    assert found["cost"].values.tolist() == [[0, 2, 4, 3, 2, 1, 0]]
    assert found["allocation"].values.tolist() == [[0, 0, 0, 1, 1, 1, 1]]
    assert found["back_direction"].values.tolist() == [[0, 5, 5, 1, 1, 1, 0]]
    assert list(og.cost_distance(np.ones((1, 7)), [(0, 0)], source_cost={"rate": 1})) == ["cost"]


def test_a_rate_is_the_limit_of_interest_step_by_step() -> None:
    rate, length = 0.3, 4.0
    for pieces in (10, 100, 1000):
        cost = 0.0
        for _ in range(pieces):
            cost += length / pieces * (1 + rate * cost)
        found = og.cost_distance(
            np.ones((1, 5)), [(0, 0)], source_cost={"rate": rate}, cell_size=1
        )["cost"].values[0, -1]
        assert 0 < found - cost < 10 / pieces
    assert found == pytest.approx((math.exp(rate * length) - 1) / rate, rel=1e-14)


def test_growth_increases_and_is_exact_enough() -> None:
    x = np.sort(np.random.default_rng(0).uniform(0, 700, 100_000))
    near = np.arange(1, 30) * math.log(2)
    edges = np.sort(np.concatenate([np.nextafter(near, s) for s in (0, 99)] + [near]))
    tiny = np.array([0.0, 5e-324, 1e-300, 1e-17, 1e-9])
    for part in (x, edges, tiny):
        assert (np.diff(grown(part)) >= 0).all()
        np.testing.assert_allclose(grown(part), np.expm1(part), rtol=1e-13, atol=0)
    assert grown(np.array([1e6]))[0] == np.inf


def areas() -> Array:
    sources = np.zeros((24, 33), np.int16)
    for label, (x, y) in zip((4, 1, 9, 2), POINTS, strict=True):
        sources[y : y + 2, x : x + 2] = label
    return sources


BY_LABEL = {"multiplier": {4: 2.0, 9: 0.5}, "maximum": {1: 60.0}}


@pytest.mark.parametrize("how", [{}, {"source_values": [4, 1, 2]}, {"initial_cost": {4: 3, 2: 5}}])
def test_rasters_by_label(how: dict[str, Any]) -> None:
    friction, sources = landscape(), areas()
    found = og.cost_distance(friction, sources, source_cost=BY_LABEL, outputs=ALL, tile=8, **how)
    labels = how.get("source_values", [1, 2, 4, 9])
    fields = []
    for label in labels:
        starts = how.get("initial_cost", {})
        plain = og.cost_distance(friction, sources, source_values=[label])["cost"].values
        own = BY_LABEL["multiplier"].get(label, 1), 0, BY_LABEL["maximum"].get(label, np.inf)
        fields.append(accumulated(plain, starts.get(label, 0), *own))
    expected = np.min(fields, axis=0)
    reached = np.isfinite(expected)
    np.testing.assert_allclose(found["cost"].values[reached], expected[reached], rtol=1e-12)
    assert np.isnan(found["cost"].values[~reached]).all()
    sorted_labels = np.array(sorted(labels))
    by_label = np.array(fields)[np.argsort(labels)]
    own = np.searchsorted(sorted_labels, found["allocation"].values).clip(max=len(labels) - 1)
    won = np.take_along_axis(by_label, own[None], 0)[0]
    np.testing.assert_allclose(won[reached], expected[reached], rtol=1e-12)


def test_no_other_label_may_be_left() -> None:
    """Where all labels of a raster are named, the run of the others reaches nothing."""
    sources = np.zeros((4, 5), np.int8)
    sources[0, 0], sources[3, 4] = 1, 2
    found = og.cost_distance(
        np.ones((4, 5)), sources, source_cost={"multiplier": {1: 2, 2: 3}}, outputs=ALL
    )
    assert found.attrs["source_runs"] == 3
    plain = [
        og.cost_distance(np.ones((4, 5)), sources, source_values=[n])["cost"].values for n in (1, 2)
    ]
    np.testing.assert_array_equal(found["cost"], np.minimum(2 * plain[0], 3 * plain[1]))


def test_integers_have_maxima() -> None:
    friction = landscape()
    how = {"dtype": "int64", "connectivity": 4, "cell_size": 1, "tile": 8}
    most = {"maximum": [30, 8, 100, 2**60]}
    found = og.cost_distance(friction, POINTS, source_cost=most, initial_cost=[0, 9, 0, 1], **how)
    fields = [
        og.cost_distance(friction, [p], initial_cost=s, **how)["cost"].values
        for p, s in zip(POINTS, [0, 9, 0, 1], strict=True)
    ]
    large = [
        np.where((f >= 0) & (f <= m), f, 2**62)
        for f, m in zip(fields, most["maximum"], strict=True)
    ]
    least = np.min(large, axis=0)
    np.testing.assert_array_equal(found["cost"], np.where(least < 2**62, least, -1))


def test_columns_of_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    geopandas = pytest.importorskip("geopandas", reason="GeoPandas is not installed")
    pytest.importorskip("pyogrio", reason="pyogrio is not installed")
    from shapely import Point, box

    place = {"y": -np.arange(24.0), "x": np.arange(33.0)}
    friction = xr.DataArray(landscape(), place, ("y", "x")).rio.write_crs("EPSG:32633")
    columns = {"speed": [1.0, 0.5, 2.0, 0.5], "range": [300.0, 300, 40, 300]}
    cost = {"multiplier": "speed", "maximum": "range"}
    points = geopandas.GeoDataFrame(
        columns, geometry=[Point(x, -y) for x, y in POINTS], crs="EPSG:32633"
    )
    listed = {"multiplier": columns["speed"], "maximum": columns["range"]}
    places = [(x, -y) for x, y in POINTS]
    expected = og.cost_distance(friction, places, source_cost=listed)
    found = og.cost_distance(friction, points, source_cost=cost)
    np.testing.assert_array_equal(found["cost"], expected["cost"])
    assert found.attrs["source_runs"] == 3
    assert og.cost_distance.plan(friction, points, source_cost=cost).runs == 3

    boxes = [box(x - 0.4, -y - 0.4, x + 0.4, 0.4 - y) for x, y in POINTS]
    zones = geopandas.GeoDataFrame(columns, geometry=boxes, crs="EPSG:32633")
    zones["name"] = ["b", "a", "c", "a"]
    found = og.cost_distance(friction, zones, source_cost=cost, label="name")
    np.testing.assert_array_equal(found["cost"], expected["cost"])
    zones.loc[3, "speed"] = 3.0
    with pytest.raises(og.InputError, match=r"column 'speed' holds both 0\.5 and 3\.0 for the lab"):
        og.cost_distance(friction, zones, source_cost=cost, label="name")

    friction.rename("friction").rio.to_raster(tmp_path / "friction.tif")
    points.to_file(tmp_path / "points.gpkg")
    words = ["cost_distance", "friction.tif", "cost.zarr", "--sources", "points.gpkg", "--workers"]
    words = [str(tmp_path / w) if "." in w else w for w in words]
    strengths = ["--source-cost", "multiplier=speed", "maximum=range", "rate=0"]
    assert main([*words, "1", *strengths, "--outputs", "cost"]) == 0
    assert "source_runs: 3" in capsys.readouterr().out
    written = og.open(tmp_path / "cost.zarr")
    np.testing.assert_array_equal(written["cost"], expected["cost"])


def stored(folder: Path) -> tuple[Any, xr.Dataset, dict[str, Any]]:
    """Stores of friction and sources, the result in memory, and the arguments."""
    friction, sources = landscape(), areas()
    how = {"source_cost": BY_LABEL, "initial_cost": {4: 3, 2: 5}, "outputs": ALL}
    og.ingest(friction, folder / "friction.zarr", tile=8)
    og.ingest(sources, folder / "sources.zarr", tile=4)
    stores = folder / "friction.zarr", folder / "sources.zarr"
    return stores, og.cost_distance(friction, sources, **how), how


def test_stored_by_a_cluster(client: Client, tmp_path: Path) -> None:
    stores, expected, how = stored(tmp_path)
    by = og.cost_distance(*stores, **how, out=tmp_path / "workers.zarr", client=client)
    for name in ALL:
        np.testing.assert_array_equal(by[name].values, expected[name].values, name)
    assert by.attrs["source_runs"] == expected.attrs["source_runs"] == 4


def test_on_a_gpu(tmp_path: Path, emulated_gpu: Emulator) -> None:
    stores, expected, how = stored(tmp_path)
    found = og.cost_distance(*stores, **how, out=tmp_path / "cuda.zarr", backend="cuda")
    for name in ALL:
        np.testing.assert_array_equal(found[name].values, expected[name].values, name)
    assert emulated_gpu.launches > 0


def test_walking_times_and_links() -> None:
    heights = np.random.default_rng(3).uniform(0, 30, (24, 33))
    cost = {"multiplier": [1, 2, 3, 4]}
    found = og.walking_time(heights, POINTS, source_cost=cost, cell_size=10, tile=8)
    plain = [
        og.walking_time(heights, [point], cell_size=10)["time"].values * (number + 1)
        for number, point in enumerate(POINTS)
    ]
    np.testing.assert_array_equal(found["time"], np.min(plain, axis=0))
    both = og.walking_time(
        heights, POINTS, source_cost=cost, cell_size=10, outputs="allocation", tile=8
    )
    assert list(both.data_vars) == ["time", "allocation"]
    np.testing.assert_array_equal(both["time"], found["time"])

    import pandas as pd

    table = pd.DataFrame({"source": [2 * 33 + 3], "target": [20 * 33 + 3], "weight": [1.0]})
    links = og.read_graph(table, directed=False)
    how: dict[str, Any] = {"links": links, "outputs": ALL, "tile": 8}
    friction = np.ones((24, 33))
    found = og.cost_distance(friction, POINTS, source_cost=cost, **how)
    fields = [og.cost_distance(friction, [p], **how)["cost"].values for p in POINTS]
    scaled = [field * n for n, field in enumerate(fields, 1)]
    np.testing.assert_array_equal(found["cost"], np.min(scaled, axis=0))
    assert found["link_x"].shape == (1, 2)
    assert found["back_direction"].values[20, 3] == 17


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    friction = landscape()
    og.ingest(friction, tmp_path / "friction.zarr", tile=4)
    how: dict[str, Any] = {"source_cost": COST, "initial_cost": START, "outputs": ALL}
    expected = og.cost_distance(friction, POINTS, **how)
    run = og.cost_distance.submit(
        tmp_path / "friction.zarr", POINTS, out=tmp_path / "cost.zarr", **how
    )
    run.cancel()
    with pytest.raises(Exception, match="cancel"):
        run.result()
    found = og.cost_distance(
        tmp_path / "friction.zarr", POINTS, out=tmp_path / "cost.zarr", resume=True, **how
    )
    for name in ALL:
        np.testing.assert_array_equal(found[name].values, expected[name].values, name)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"multiplier": [1, 2, 3]}, "source_cost: multiplier: 3 numbers for 4 points"),
        ({"multiplier": 0}, "source_cost: multiplier: 0; it must be a number, at least"),
        ({"rate": [-1, 0, 0, 0]}, "source_cost: rate: -1; .* at least 0"),
        ({"rate": 1e-200}, "source_cost: rate: 1e-200; it must be 0, or at least 1e-100"),
        ({"maximum": -2}, "source_cost: maximum: -2; .* at least 0"),
        ({"speed": 2}, "source_cost: 'speed' is unknown; it takes multiplier, rate, maximum"),
        ({"initial": 2}, "source_cost: 'initial' is unknown; that is initial_cost="),
        ({}, "source_cost: .*; give a dict with some of"),
        ({"rate": {}}, "source_cost: rate: {}; give a number for each label"),
        ({"rate": {8: 1}}, "source_cost: rate: 8 is the label of no source"),
        ({"rate": "slow"}, "source_cost: rate: 'slow' is not a column"),
    ],
)
def test_bad_strengths(given: Any, words: str) -> None:
    with pytest.raises(og.InputError, match=words):
        og.cost_distance(landscape(), POINTS, source_cost=given)


def test_more_is_refused() -> None:
    points = [(x, 0) for x in range(70)]
    cost = {"multiplier": np.arange(1, 71)}
    for call in (og.cost_distance, og.cost_distance.plan):
        with pytest.raises(og.InputError, match=r"source_cost: 70 different .* at most 64"):
            call(np.ones((2, 70)), points, source_cost=cost)
    assert og.cost_distance.plan(np.ones((2, 70)), points, source_cost={"rate": 1}).runs == 1
    many = og.cost_distance.plan(np.ones((2, 70)), source_cost={"rate": {1: 1, 2: 3}})
    assert many.runs == 3
    assert "tasks of 3 runs" in str(many)
    with pytest.raises(og.InputError, match=r"source_cost: rate with dtype='int64'"):
        og.cost_distance(
            np.ones((2, 70)),
            points,
            source_cost={"rate": 1},
            dtype="int64",
            cell_size=1,
            connectivity=4,
        )
    with pytest.raises(og.InputError, match=r"source_cost: .* with cost='eikonal'"):
        og.cost_distance(np.ones((2, 70)), points, source_cost={"rate": 1}, cost="eikonal")
    with pytest.raises(og.InputError, match="rate: a list is for points"):
        og.cost_distance(np.ones((3, 3)), np.eye(3), source_cost={"rate": [1, 2, 3]})
    with pytest.raises(og.InputError, match="multiplier: 1e-90 is too small for initial costs"):
        og.cost_distance(
            np.ones((3, 3)), [(0, 0), (1, 1)], initial_cost=[0, 1], dtype="float32",
            source_cost={"multiplier": 1e-90},
        )  # fmt: skip
    with pytest.raises(og.RunError, match="more than float64 holds; give smaller multipliers"):
        og.cost_distance(np.ones((1, 9)), [(0, 0)], source_cost={"rate": 1000.0})
