"""The map of tiles on the dashboard: what it is told of runs, and the page."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pytest
from bokeh.client import pull_session
from bokeh.models import Plot
from distributed import Client
from watched_raster import wait_until

import orograph as og
from orograph.dashboard.page import Panel
from orograph.dashboard.tile_map import MOST_RUNS, RunMap, TileMap
from orograph.engines.frontier.tile_keys import TileKeys
from orograph.engines.frontier.tile_map import (
    AT_WORK,
    FAILED,
    MOST_TILES,
    QUEUED,
    SETTLED,
    TOPIC,
    WAITING,
    WRITTEN,
    message,
    states_of,
)
from orograph.tiles.grid.quadtree import Quadtree, morton_encode

TOKEN = "0123456789abcdef" * 2


def tell(plugin: TileMap, stage: str, z: int, state: str, token: str = TOKEN) -> None:
    plugin.transition((f"forest-{stage}-{token}", 0, z), "", state, stimulus_id="")


def test_states_of_shards_are_those_of_their_tasks() -> None:
    plugin = TileMap()
    for z in range(6):
        tell(plugin, "tiles", z, "waiting")
    for z, state in ((0, "memory"), (1, "processing"), (2, "erred"), (3, "memory")):
        tell(plugin, "tiles", z, state)
    tell(plugin, "write", 0, "processing")
    tell(plugin, "write", 3, "memory")
    tell(plugin, "merge", 3, "erred")
    for other in ("a-key", ("layer", 0), (1, 2, 3), ("forest-tiles-short", 0, 1)):
        plugin.transition(other, "", "memory", stimulus_id="")
    (run,) = plugin.runs.values()
    assert run.name == "forest"
    expected = [[AT_WORK, FAILED], [AT_WORK, WRITTEN], [WAITING, WAITING], [WAITING, WAITING]]
    np.testing.assert_array_equal(run.states(), expected)


def test_the_latest_runs_are_kept() -> None:
    plugin = TileMap()
    for n in range(MOST_RUNS + 3):
        tell(plugin, "tiles", 0, "memory", f"{n:032}")
    assert list(plugin.runs) == [f"{n:032}" for n in range(3, MOST_RUNS + 3)]


def test_a_large_grid_is_shown_by_some_of_its_shards() -> None:
    run = RunMap("forest")
    for i, j in np.ndindex(200, 300):
        run.put(morton_encode(i, j), WRITTEN if i >= 99 else SETTLED)
    states = run.states()
    assert states.shape == (67, 100)
    assert max(states.shape) <= MOST_TILES
    np.testing.assert_array_equal(states[34:], WRITTEN)
    np.testing.assert_array_equal(states[:33], SETTLED)
    assert RunMap("empty").states().tolist() == [[WAITING]]


def test_a_driver_sends_what_it_knows_of_tiles() -> None:
    tiles = TileKeys(Quadtree((4, 6), 1), 1)
    tiles.keys[1, 2] = tiles.keys[0, 0] = 5
    tiles.away[0, 0] = True
    tiles.opened[3, :2] = True
    tiles.written[1, 2] = True
    expected = np.full((4, 6), WAITING)
    expected[1, 2], expected[0, 0] = QUEUED, AT_WORK
    expected[3, :2], expected[2:, 4:] = SETTLED, WRITTEN
    np.testing.assert_array_equal(states_of(tiles), expected)
    plugin = TileMap()
    plugin.log_event("another", {})
    plugin.log_event(TOPIC, message("distance", TOKEN, tiles))
    np.testing.assert_array_equal(plugin.runs[TOKEN].states(), expected)
    assert max(states_of(TileKeys(Quadtree((300, 1000), 1), 3)).shape) == 125


def test_a_panel_counts_what_it_draws() -> None:
    run, panel = RunMap("forest"), Panel()
    run.put(0, WRITTEN)
    run.put(1, AT_WORK)
    panel.show(run)
    assert panel.figure.title.text == "forest"
    labels = [item.label["value"] for item in panel.items]
    assert labels == ["0 waiting", "0 queued", "1 at work", "0 settled", "1 written", "0 failed"]
    assert panel.source.data["state"] == ["written", "at work"]
    assert panel.figure.visible


def maps(client: Client) -> dict[str, Any]:
    """Name and states of the runs that the scheduler knows of."""

    def found(dask_scheduler: Any) -> dict[str, Any]:
        plugin = dask_scheduler.plugins[TileMap.name]
        return {run.name: run.states() for run in plugin.runs.values()}

    return client.run_on_scheduler(found)  # type: ignore[no-untyped-call, no-any-return]


def test_the_page_shows_the_runs_of_a_cluster(tmp_path: Path) -> None:
    heights = np.random.default_rng(0).random((96, 64), np.float32)
    with og.cluster(n_workers=1, dashboard_address="127.0.0.1:0", memory_limit="1GiB") as client:
        with urllib.request.urlopen(client.dashboard_link, timeout=60) as answer:
            assert b'href="orograph"' in answer.read()
        how: dict[str, Any] = {"tile": 16, "shard": 32, "client": client}
        og.minimum_spanning_forest(heights, **how, out=tmp_path / "forest.zarr")
        np.testing.assert_array_equal(maps(client)["forest"], np.full((3, 2), WRITTEN))
        with og.config.set(field=0):
            og.cost_distance(heights, [(0, 0)], **how, out=tmp_path / "cost.zarr")
        wait_until(lambda: (maps(client)["cost-distance"] == WRITTEN).all())
        assert maps(client)["cost-distance"].shape == (6, 4)
        page = pull_session(url=urljoin(client.dashboard_link, "orograph")).document
        drawn = [figure.title.text for figure in page.select({"type": Plot}) if figure.visible]
        assert sorted(drawn) == ["cost-distance", "forest"]


@pytest.mark.parametrize("options", [{"dashboard_address": None}, {}], ids=["off", "no bokeh"])
def test_a_cluster_without_a_dashboard_has_no_page(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from orograph.run.cluster import clusters

    if not options:
        monkeypatch.setattr(clusters, "has_dashboard", lambda: False)
    with og.cluster(n_workers=1, **options, memory_limit="1GiB") as client:
        names = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
        assert TileMap.name not in names
