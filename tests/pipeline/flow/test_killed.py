"""A worker that is killed while it follows water is made up for, with the same bits."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from terrain_cases import fractal
from verbs import call
from watched_raster import SHARD, TILE, Gate, WatchedRaster, mortal_cluster, wait_until

import orograph as og

HEIGHTS = np.round(fractal(90)[:70])
WEIGHTS = np.random.default_rng(1).random(HEIGHTS.shape)
TILES = -(-HEIGHTS.shape[0] // TILE) * -(-HEIGHTS.shape[1] // TILE)
CUT = {"tile": TILE, "shard": SHARD}
OUTLETS = [(20, 30), (60, 60), (50, 5)]
OPERATIONS: dict[str, Callable[..., Any]] = {
    "accumulation": lambda codes, **o: call(
        og.flow_accumulation, codes, weights=WEIGHTS, codes="taudem", **o
    ),
    "outlets": lambda codes, **o: call(og.watersheds, codes, OUTLETS, codes="taudem", **o),
    "basins": lambda codes, **o: call(og.watersheds, codes, codes="taudem", **o),
    "distance": lambda codes, **o: call(
        og.flow_distance, codes, HEIGHTS < 250, codes="taudem", **o
    ),
    "downstream": lambda codes, **o: call(
        og.downstream, codes, HEIGHTS, HEIGHTS < 250, statistics="mean", codes="taudem", **o
    ),
    "drainage": lambda codes, **o: call(
        og.height_above_drainage, HEIGHTS, codes, HEIGHTS < 250, codes="taudem", **o
    ),
}
QUICK = ("accumulation",)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in OPERATIONS],
)
def test_a_killed_worker_is_made_up_for(
    name: str, client: Client, gate: Gate, tmp_path: Path
) -> None:
    client.wait_for_workers(2)
    directions = tmp_path / "direction.zarr"
    og.flow_direction(HEIGHTS, out=directions, **CUT)
    expected = OPERATIONS[name](directions)
    gate.shut(after=TILES // 2)
    raster = WatchedRaster(directions, tmp_path / "read.txt", gate=gate)
    run = OPERATIONS[name](raster, out=tmp_path / "out", client=client, verb="submit", **CUT)
    wait_until(gate.held, lambda: run.status == "running")
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    gate.open()
    xr.testing.assert_identical(run.result(timeout=600).load(), expected)
