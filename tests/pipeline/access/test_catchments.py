"""Catchments are those of plain loops over one Dijkstra a facility, whatever the tiling."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import oracle_access as oracle
import pytest
import rioxarray  # noqa: F401
import xarray as xr
from access_cases import random_case
from distributed import Client

import orograph as og

SEEDS = [*range(12), *(pytest.param(n, marks=pytest.mark.long) for n in range(12, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_facilities_serve_as_in_plain_loops(seed: int) -> None:
    case, random = random_case(seed), np.random.default_rng(seed)
    count = len(case.points)
    capacity = random.choice([0, 1, 2.5, 2.0**-20, 7, 1e6, np.inf], count)
    rank = random.integers(0, 3, count)
    found = og.catchments(
        *(case.friction, case.points),
        population=case.population,
        capacity=capacity,
        rank=rank,
        max_cost=case.most,
        **case.options,
    )
    order = sorted(range(count), key=lambda n: (rank[n], n))
    first, left, served = oracle.serve(case.reaches, case.people, capacity.tolist(), order)
    catchment, residual = (case.turned(found[name]) for name in ("catchment", "residual"))
    there = case.turned(case.population) != -9
    assert catchment.ravel().tolist() == [first.get(cell, -1) for cell in range(catchment.size)]
    assert np.where(there, residual, 0).ravel().tolist() == [float(v) for v in left.values()]
    assert (np.isnan(residual) == ~there).all()
    assert found["served"].values.tolist() == [float(served[n][0]) for n in range(count)]
    np.testing.assert_array_equal(found["farthest"], [served[n][1] for n in range(count)])
    rest = np.where(np.isinf(capacity), np.inf, capacity - found["served"].values)
    np.testing.assert_array_equal(found["left_over"], rest)
    cells = [sum(owner == n for owner in first.values()) for n in range(count)]
    assert found["cells"].values.tolist() == cells
    # to the last unit, in the floats of the result
    everyone = sum(case.people.values(), Fraction(0))
    assert found["served"].values.sum() + np.nansum(residual) == float(everyone)
    assert found.attrs["population"] == found.attrs["served"] + found.attrs["left"]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_reach_is_that_of_a_distance(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    how: dict[str, Any] = {"population": case.population, "each": True, "max_cost": case.most}
    found = og.catchments(case.friction, case.points, **how, **case.options)
    assert found["cells"].values.tolist() == [len(cells) for cells in case.reaches]
    people = [float(sum(case.people[cell] for _, cell in cells)) for cells in case.reaches]
    assert found["people"].values.tolist() == people
    assert found["farthest"].values.tolist() == [cells[-1][0] for cells in case.reaches]
    if seed % 4:
        return
    out = og.catchments(case.friction, case.points, **how, **case.options, out=tmp_path / "o.zarr")
    for name in found.variables:
        np.testing.assert_array_equal(found[name], out[name])
    lists = np.split(out["cost"].values, out["first"].values[1:])
    assert [part.tolist() for part in lists] == [[c for c, _ in cells] for cells in case.reaches]
    height, width = case.friction.shape
    row, column = out["row"].values, out["column"].values
    row = row if case.sides[0] > 0 else height - 1 - row
    column = column if case.sides[1] > 0 else width - 1 - column
    assert (row * width + column).tolist() == [c for cells in case.reaches for _, c in cells]


def test_facilities_have_names_capacities_and_ranks_by_column(tmp_path: Path) -> None:
    gpd = pytest.importorskip("geopandas")
    points = gpd.points_from_xy([0, 4, 9], [0, 0, 0])
    columns = {"name": ["a", "b", "c"], "beds": [2, 3, 5], "order": [2, 1, 0], "code": [7, 5, 9]}
    clinics = gpd.GeoDataFrame(columns, geometry=points)
    how: dict[str, Any] = {"population": np.ones((1, 6)), "capacity": "beds", "rank": "order"}
    friction = np.ones((1, 6))
    found = og.catchments(friction, clinics, outside="skip", label="name", max_cost=3, **how)
    assert found["catchment"].values.tolist() == [[0, 0, -1, 1, 1, 1]]
    assert found.attrs["source_names"] == ["a", "b"]
    assert found.attrs["sources_outside"] == 1
    found = og.catchments(friction, clinics[:2], label="code", max_cost=3, **how)
    assert found["catchment"].values.tolist() == [[7, 7, -1, 5, 5, 5]]
    assert found["facility"].values.tolist() == [7, 5]
    assert found["left_over"].values.tolist() == [0, 0]


def test_tables_become_points(tmp_path: Path) -> None:
    gpd = pytest.importorskip("geopandas")
    points, people = [(1, 0), (4, 1)], np.ones((2, 6))
    layer = gpd.GeoDataFrame({"code": [7, 5]}, geometry=gpd.points_from_xy(*np.transpose(points)))
    how: dict[str, Any] = {"population": people, "max_cost": 1.0, "label": "code"}
    for each, column, values in ((False, "served", [4.0, 4.0]), (True, "cells", [4, 4])):
        found = og.catchments(people, layer, each=each, **how)
        table = og.to_geodataframe(found)
        assert table["facility"].tolist() == [7, 5]
        assert table[column].tolist() == values
        assert [(point.x, point.y) for point in table.geometry] == points
    og.catchments(people, layer, each=True, **how, out=tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines()[1].startswith("7,")
    assert og.zonal(og.catchments(people, layer, **how)).index.tolist() == [5, 7]


WAYS: dict[str, dict[str, Any]] = {
    "lengths of a globe": {"degrees": True, "max_cost": 9000.0},
    "walks on a globe": {"degrees": True, "cost": "tobler", "max_cost": 9000.0},
    "gentle slopes alone": {"cost": "tobler", "max_slope": 60.0, "max_cost": 60.0},
    "height differences": {"cost": "absolute_difference", "max_cost": 9.0},
    "single precision": {"dtype": "float32", "max_cost": 30.0},
    "whole numbers": {"dtype": "int64", "connectivity": 4, "cell_size": 1, "max_cost": 40.0},
    "barriers": {"barriers": True, "max_cost": 30.0},
    "no limit": {},
}


@pytest.mark.parametrize("name", WAYS)
def test_searches_together_reach_what_distances_reach(name: str) -> None:
    random, how = np.random.default_rng(3), dict(WAYS[name])
    shape = 60, 50
    cells = random.integers(1, 9, shape) * 2
    cells[random.random(shape) < 0.1] = -1
    degrees = how.pop("degrees", False)
    axes = {"y": 60 - 0.01 * np.arange(60), "x": 0.01 * np.arange(50)}
    if not degrees:
        axes = {"y": 60.0 - np.arange(60), "x": np.arange(50.0)}
    raster = xr.DataArray(cells, axes, ("y", "x"), attrs={"_FillValue": -1})
    raster = raster.rio.write_crs(4326) if degrees else raster
    if "barriers" in how:
        how["barriers"] = random.random(shape) < 0.1
    valid = np.argwhere((cells > 0) & ~how.get("barriers", np.zeros(shape, bool)))
    places = valid[random.integers(0, len(valid), 9)]
    points = np.stack([axes["x"][places[:, 1]], axes["y"][places[:, 0]]], axis=1)
    people = raster * 0 + random.random(shape)
    found = og.catchments(raster, points, population=people, each=True, **how)
    cost = how.pop("cost", "friction")
    for number, point in enumerate(points):
        if cost == "tobler":
            reached = og.walking_time(raster, [point], travel="to", **how)["time"].values
        else:
            reached = og.cost_distance(raster, [point], cost=cost, travel="to", **how)[
                "cost"
            ].values
        there = reached >= 0
        row = found.isel(facility=number)
        assert (row["cells"], row["farthest"]) == (there.sum(), reached[there].max())
        units = np.rint(people.values[there] * 2**20).sum()
        assert row["people"] == units / 2**20


def test_links_lead_out_of_the_window_of_a_search() -> None:
    friction, people = np.ones((1, 400)), np.ones((1, 400))
    friction[0, 200] = np.nan
    from scipy import sparse

    bridge = sparse.csr_array(([1.0], ([1], [390])), shape=(400, 400))
    links = og.read_graph(bridge, directed=True)
    how: dict[str, Any] = {"population": people, "each": True, "links": links, "max_cost": 20.0}
    for travel, at in (("from", 0), ("to", 390), ("to", 0)):
        found = og.catchments(friction, [(at, 0)], travel=travel, **how)
        how_far = {"links": links, "max_cost": 20.0, "travel": travel}
        expected = og.cost_distance(friction, [(at, 0)], **how_far)
        assert found["cells"].item() == expected.attrs["reached_cells"]


def test_workers_and_stores_give_the_same_bits(tmp_path: Path, client: Client) -> None:
    random = np.random.default_rng(5)
    friction, people = random.uniform(0.5, 2, (90, 70)), random.uniform(0, 9, (90, 70))
    points = [tuple(point) for point in random.integers(0, 70, (40, 2)).tolist()]
    og.ingest(friction, tmp_path / "f.zarr", tile=16)
    og.ingest(people, tmp_path / "p.zarr", tile=32)
    expected = og.catchments(friction, points, population=people, capacity=300, max_cost=12)
    found = og.catchments(
        *(tmp_path / "f.zarr", points),
        population=tmp_path / "p.zarr",
        capacity=300,
        max_cost=12,
        client=client,
        out=tmp_path / "o.zarr",
    )
    for name in expected.data_vars:
        np.testing.assert_array_equal(expected[name], found[name], err_msg=str(name))


@pytest.mark.parametrize(
    ("people", "match"),
    [
        ([1.0, -1.0], r"population: -1.0 at row 0, column 1; it must be 0 to 8589934592 people"),
        ([1.0, 1e11], r"population: 100000000000.0 at row 0, column 1"),
        ([2.0**33, 1.0], r"population: its cells have more than 8589934592 people"),
    ],
)
def test_people_who_do_not_fit_are_refused_before_a_task(
    people: list[float], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.access.reach.search_around", None)
    cells = np.array([people])
    og.ingest(cells, tmp_path / "p.zarr")
    for population in (cells, tmp_path / "p.zarr"):
        for each in (False, True):
            with pytest.raises(og.InputError, match=match):
                og.catchments(np.ones((1, 2)), [(0, 0)], population=population, each=each)


def test_costs_say_their_unit(tmp_path: Path) -> None:
    heights = np.zeros((3, 5))
    how = {"population": np.ones((3, 5)), "cost": "tobler", "cell_size": 30, "max_cost": 60}
    served = og.catchments(heights, [(1, 1)], **how)
    listed = og.catchments(heights, [(1, 1)], each=True, out=tmp_path / "e.zarr", **how)
    units = [served["farthest"], listed["farthest"], listed["cost"]]
    assert [costs.attrs["units"] for costs in units] == ["s"] * 3
    friction = og.catchments(np.ones((3, 5)), [(1, 1)], **{**how, "cost": "friction"})
    assert "units" not in friction["farthest"].attrs
