"""Every operation is run alike: waited for or not, watched, cancelled, resumed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import xarray as xr
from verbs import call

import orograph as og
from orograph.run.context import RunContext

GRID = np.random.default_rng(3).integers(1, 9, (24, 20)).astype(np.float32)
MASK = GRID > 2
MASK[0, 0] = MASK[23, 19] = MASK[5, 5] = True
MATRIX = np.random.default_rng(4).integers(1, 99, (20, 20)).astype(np.float64)
CUT = {"tile": 4, "shard": 8}
FAR = [(19, 23), (5, 5)]
DIRECTION = np.random.default_rng(5).integers(6, 8, (24, 20)).astype(np.uint8)
SLOPE = GRID - 10 * np.arange(24, dtype=np.float32)[:, None]  # along the directions

STORED: dict[str, Callable[..., Any]] = {
    "forest": lambda **o: call(og.minimum_spanning_forest, GRID, **CUT, **o),
    "components": lambda **o: call(og.connected_components, MASK, **CUT, **o),
    "cost": lambda **o: call(og.cost_distance, GRID, [(0, 0)], **CUT, **o),
    "allocation": lambda **o: call(
        og.cost_distance, GRID, FAR, outputs=["cost", "allocation"], **CUT, **o
    ),
    "hops": lambda **o: call(og.hop_distance, MASK, [(0, 0)], **CUT, **o),
    "filling": lambda **o: call(
        og.fill_depressions, GRID, outputs=("filled", "depression"), **CUT, **o
    ),
    "flood": lambda **o: call(og.flood_level, GRID, FAR, **CUT, **o),
    "flow directions": lambda **o: call(og.flow_direction, GRID, **CUT, **o),
    "breached directions": lambda **o: call(
        og.flow_direction,
        GRID,
        depressions="breach",
        max_length=9,
        flats="gradient",
        **CUT,
        **o,
    ),
    "trenches": lambda **o: call(og.breach_depressions, GRID, max_length=9, **CUT, **o),
    "flow accumulation": lambda **o: call(
        og.flow_accumulation, DIRECTION, weights=GRID, codes="taudem", **CUT, **o
    ),
    "accumulation of heights": lambda **o: call(
        og.flow_accumulation, GRID, method="d8", **CUT, **o
    ),
    "angles": lambda **o: call(og.flow_direction, GRID, method="dinf", **CUT, **o),
    "water that splits": lambda **o: call(og.flow_accumulation, GRID, method="dinf", **CUT, **o),
    "downstream": lambda **o: call(og.downstream, DIRECTION, GRID, codes="taudem", **CUT, **o),
    "catchments": lambda **o: call(og.catchments, GRID, FAR, population=GRID, **CUT, **o),
    "site": lambda **o: call(og.site, GRID, FAR, population=GRID, within=9, **CUT, **o),
    "floating catchments": lambda **o: call(
        og.floating_catchments, GRID, FAR, population=GRID, within=9, **CUT, **o
    ),
    "upstream": lambda **o: call(og.upstream, DIRECTION, GRID, codes="taudem", **CUT, **o),
    "upstream lengths": lambda **o: call(og.upstream_length, DIRECTION, codes="taudem", **CUT, **o),
    "streams": lambda **o: call(og.streams, DIRECTION, GRID, 3, codes="taudem", **CUT, **o),
    "watersheds": lambda **o: call(og.watersheds, DIRECTION, FAR, codes="taudem", **CUT, **o),
    "flow distances": lambda **o: call(
        og.flow_distance, DIRECTION, GRID > 7, codes="taudem", **CUT, **o
    ),
    "heights above drainage": lambda **o: call(
        og.height_above_drainage, SLOPE, DIRECTION, GRID > 7, codes="taudem", **CUT, **o
    ),
    "linkages": lambda **o: call(og.linkages, GRID, FAR, threshold=5, **CUT, **o),
    "peaks": lambda **o: call(og.peaks, GRID, min_prominence=2, **CUT, **o),
    "depressions": lambda **o: call(og.depressions, GRID, min_depth=1, labels=True, **CUT, **o),
    "passes": lambda **o: call(og.pass_elevation, GRID, FAR, paths=True, **CUT, **o),
    "Floyd-Warshall": lambda **o: call(og.all_pairs, MATRIX, method="floyd-warshall", tile=8, **o),
    "squaring": lambda **o: call(og.all_pairs, MATRIX, method="squaring", tile=8, **o),
    "Dijkstra": lambda **o: call(og.all_pairs, MATRIX, method="dijkstra", tile=8, **o),
    "index": lambda out, **o: call(og.DistanceIndex.build, GRID, out, block=4, levels=0, **o),
}
FRONTIERS = (
    "cost",
    "allocation",
    "hops",
    "flow directions",
    "breached directions",
    "water that splits",
)
OTHERS: dict[str, Callable[..., Any]] = {
    "a pair": lambda **o: call(og.is_connected, MASK, (0, 0), FAR[0], tile=4, **o),
    "pairs": lambda **o: call(og.is_connected, MASK, (0, 0), FAR, tile=4, **o),
}
ALL = {**STORED, **OTHERS}


def where(name: str, folder: Path) -> dict[str, Path]:
    """The option that makes an operation write a store, if it has one."""
    return {"out": folder} if name in STORED else {}


def arrays(result: Any) -> dict[str, np.ndarray]:
    """All that a result consists of."""
    if isinstance(result, xr.Dataset):
        return {str(name): array.values for name, array in result.variables.items()}
    if isinstance(result, og.DistanceIndex):
        points = [(0, 0), (3, 17), (19, 23)]
        return {"table": result.distance_matrix(points).values, "bytes": np.array(result.nbytes)}
    return {
        "connected": result.connected,
        "hops": result.hops,
        "cells": np.concatenate([path.cells for path in result.paths if path is not None]),
    }


def assert_same(result: Any, expected: Any) -> None:
    found, wanted = arrays(result), arrays(expected)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
    if isinstance(expected, xr.Dataset):
        assert result.attrs == expected.attrs


@pytest.fixture(scope="module")
def waited(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return the result of an operation that is waited for, computed once."""
    folder = tmp_path_factory.mktemp("waited")
    return cache(lambda name: ALL[name](**where(name, folder / name)))


@pytest.mark.parametrize("name", ALL)
def test_a_run_gives_what_waiting_gives(
    name: str, waited: Callable[[str], Any], tmp_path: Path
) -> None:
    expected = waited(name)
    run = ALL[name](**where(name, tmp_path / "run"), verb="submit")
    assert isinstance(run, og.Run)
    assert_same(run.result(timeout=300), expected)
    assert run.status == "finished"
    progress = run.progress()
    assert progress.done == progress.total > 0
    statistics = run.statistics()
    assert all(isinstance(n, int) for n in statistics.values())
    assert ("tile_visits" in statistics) is (name in FRONTIERS)


# one of each engine; the others that are cancelled before their first task are long proofs
ENGINES = ("forest", "cost", "allocation", "filling", "flow directions", "Floyd-Warshall", "index")


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("name", "checks"),
    [
        pytest.param(
            *(name, checks),
            marks=[] if checks or name in ENGINES or name in OTHERS else pytest.mark.long,
        )
        for name in ALL
        for checks in (0, 2)
    ],
)
def test_a_run_is_cancelled_and_goes_on_with_the_same_bits(
    name: str,
    checks: int,
    waited: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is cancelled while its tasks wait where they look whether they are to stop."""
    expected = waited(name)
    stopped = where(name, tmp_path / "stopped")
    waiting, go_on, count = Event(), Event(), itertools.count()
    look = RunContext.stop_if_cancelled

    def wait_and_look(context: RunContext) -> None:
        if next(count) >= checks:
            waiting.set()
            assert go_on.wait(300)
        look(context)

    with monkeypatch.context() as patch, og.config.set(threads=2):
        patch.setattr(RunContext, "stop_if_cancelled", wait_and_look)
        run = ALL[name](**stopped, verb="submit")
        assert waiting.wait(300)
        assert run.status == "running"
        assert run.progress().done <= run.progress().total
        run.cancel()
        go_on.set()
        with pytest.raises(og.Cancelled):
            run.result(timeout=300)
        assert run.status == "cancelled"
    if not stopped:
        return
    assert not stopped["out"].exists()
    with pytest.raises(og.StoreExistsError, match="resume=True"):
        ALL[name](**stopped)
    assert_same(ALL[name](**stopped, resume=True), expected)


@pytest.mark.parametrize("name", sorted(STORED.keys() - {"index"}))
def test_what_leaves_nothing_is_not_resumed(name: str) -> None:
    with pytest.raises(og.InputError, match="resume: a run without out="):
        STORED[name](resume=True)


@pytest.mark.parametrize("name", ALL)
def test_the_backend_is_an_option_of_all(name: str, tmp_path: Path) -> None:
    with pytest.raises(og.InputError, match="backend: 'abacus' is unknown"):
        ALL[name](**where(name, tmp_path / "out"), backend="abacus")
    if name == "Dijkstra":
        with pytest.raises(og.BackendError, match="has no CUDA kernel yet; use 'numba'"):
            ALL[name](backend="cuda")


def test_a_shard_is_said_in_cells_and_changes_nothing(tmp_path: Path) -> None:
    whole = og.minimum_spanning_forest(GRID, tile=4, out=tmp_path / "default")
    for shard in (4, 8, 64):
        out = tmp_path / str(shard)
        cut = og.minimum_spanning_forest(GRID, tile=4, shard=shard, out=out)
        xr.testing.assert_identical(cut.load(), whole.load())
        files = [path for path in (out / "edges" / "c").rglob("*") if path.is_file()]
        assert len(files) == {4: 30, 8: 9, 64: 1}[shard]
    with pytest.raises(og.InputError, match="shard=12: it must be tile=4 times a power of two"):
        og.minimum_spanning_forest(GRID, tile=4, shard=12)
