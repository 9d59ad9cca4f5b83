"""Sites and floating catchments are those of plain loops, whatever the tiling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import oracle_access as oracle
import pytest
from access_cases import random_case
from distributed import Client

import orograph as og
from orograph.access.reach import Searches
from orograph.access.site import Siting
from orograph.run.checkpoints import MemoryCheckpoints

SEEDS = [*range(8), *(pytest.param(n, marks=pytest.mark.long) for n in range(8, 200))]


@pytest.mark.parametrize("seed", SEEDS)
def test_sites_are_those_of_a_plain_greedy_choice(seed: int) -> None:
    case = random_case(seed, 9)
    count = seed % 4 + 1
    how: dict[str, Any] = {"population": case.population, "within": case.most, "count": count}
    found = og.site(case.friction, case.points, **how, **case.options)
    chosen, first, left = oracle.cover(case.reaches, case.people, count)
    assert found["site"].values.tolist() == [number for number, _ in chosen]
    assert found["served"].values.tolist() == [float(gain) for _, gain in chosen]
    catchment, residual = (case.turned(found[name]) for name in ("catchment", "residual"))
    assert catchment.ravel().tolist() == [first.get(cell, -1) for cell in range(catchment.size)]
    there = case.turned(case.population) != -9
    assert np.where(there, residual, 0).ravel().tolist() == [float(v) for v in left.values()]
    assert found.attrs["population"] == found.attrs["served"] + found.attrs["left"]


@pytest.mark.parametrize("seed", SEEDS)
def test_supply_floats_as_in_plain_loops(seed: int) -> None:
    case, random = random_case(seed), np.random.default_rng(seed)
    supply = random.uniform(0, 9, len(case.points))
    how: dict[str, Any] = {"population": case.population, "within": case.most, "supply": supply}
    found = og.floating_catchments(case.friction, case.points, **how, **case.options)
    ratios, access = oracle.float_supply(case.reaches, case.people, supply.tolist())
    np.testing.assert_array_equal(found["ratio"], ratios)
    there = case.turned(case.population) != -9
    expected = np.where(there, np.reshape(list(access.values()), there.shape), np.nan)
    np.testing.assert_array_equal(case.turned(found["access"]), expected)


def test_few_gains_are_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 candidates far apart, each gain is that of the first count: one look at each site."""
    looks: list[int] = []
    kept = Searches.kept

    def counted(self: Searches, number: int) -> Any:
        looks.append(number)
        return kept(self, number)

    monkeypatch.setattr(Searches, "kept", counted)
    people = np.tile(np.arange(1.0, 101)[:, None], (1, 3)).reshape(1, 300)
    candidates = [(3 * n + 1, 0) for n in range(100)]
    found = og.site(np.ones((1, 300)), candidates, population=people, within=1, count=5)
    assert found["site"].values.tolist() == [99, 98, 97, 96, 95]
    # where all overlap, more are looked at, but not all for each site
    looks.clear()
    found = og.site(np.ones((1, 300)), candidates, population=people, within=4, count=5)
    assert 5 < len(looks) < 50


def test_workers_and_stores_give_the_same_bits(tmp_path: Path, client: Client) -> None:
    random = np.random.default_rng(6)
    friction, people = random.uniform(0.5, 2, (90, 70)), random.uniform(0, 9, (90, 70))
    points = [tuple(point) for point in random.integers(0, 70, (40, 2)).tolist()]
    og.ingest(friction, tmp_path / "f.zarr", tile=16)
    og.ingest(people, tmp_path / "p.zarr", tile=32)
    stored = {"client": client, "population": tmp_path / "p.zarr", "within": 12}
    for operation, more in ((og.site, {"count": 4}), (og.floating_catchments, {"supply": 3})):
        expected = operation(friction, points, population=people, within=12, **more)
        out = tmp_path / f"{operation.__name__}.zarr"
        found = operation(tmp_path / "f.zarr", points, **stored, **more, out=out)
        for name in expected.data_vars:
            np.testing.assert_array_equal(expected[name], found[name], err_msg=str(name))


def test_a_run_that_is_resumed_searches_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = np.random.default_rng(2).uniform(1, 2, (30, 40))
    candidates = [(x, 9) for x in range(0, 40, 3)]
    og.ingest(cells, tmp_path / "f.zarr")
    how: dict[str, Any] = {"population": tmp_path / "f.zarr", "within": 9, "count": 3}
    expected = og.site(tmp_path / "f.zarr", candidates, **how)
    with monkeypatch.context() as patch:

        def stop(self: Siting, searches: Searches, found: Iterator[Any]) -> Any:
            list(found)
            raise OSError("stopped")

        patch.setattr(Siting, "solve", stop)
        with pytest.raises(OSError, match="stopped"):
            og.site(tmp_path / "f.zarr", candidates, **how, out=tmp_path / "o.zarr")
    monkeypatch.setattr(Searches, "_relax", None)
    found = og.site(tmp_path / "f.zarr", candidates, **how, out=tmp_path / "o.zarr", resume=True)
    for name in expected.variables:
        np.testing.assert_array_equal(expected[name], found[name], err_msg=str(name))


def test_a_plan_tells_the_size_of_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    save = MemoryCheckpoints.save

    def counted(self: Any, kind: str, node: Any, entry: Any, **options: Any) -> None:
        sizes.append(entry[1].nbytes if kind == "reach" else 0)
        save(self, kind, node, entry, **options)

    monkeypatch.setattr(MemoryCheckpoints, "save", counted)
    cells, candidates = np.ones((60, 70)), [(x, 30) for x in range(15, 55)]
    found = og.site(cells, candidates, population=cells, within=12)
    (reach,) = found["people"].values.tolist()
    planned = og.site.plan(cells, candidates, population=cells, within=12, reach=int(reach))
    assert 0.5 < sum(sizes) / planned.bytes_checkpoints <= 1
    how: dict[str, Any] = {"population": cells, "max_cost": 12.0}
    assert og.catchments.plan(cells, candidates, **how).bytes_checkpoints == 0
