"""Whoever is killed while trenches are dug, the surface has the same bits.

Also a program, ``OPERATION SOURCE OUT DIARY GATE``: a session that is to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from verbs import call
from watched_raster import (
    TILE,
    Gate,
    WatchedRaster,
    kill_session,
    mortal_cluster,
    read_tiles,
    wait_until,
)

import orograph as og

OPERATIONS: dict[str, Callable[..., Any]] = {
    "trenches": lambda dem, **o: call(og.breach_depressions, dem, max_length=6, **o),
    "directions": lambda dem, **o: call(
        og.flow_direction, dem, depressions="breach", max_length=6, flats="gradient", **o
    ),
}
SHAPE = (70, 90)
SHARDS = -(-SHAPE[0] // TILE) * -(-SHAPE[1] // TILE)
CUT = {"tile": TILE, "shard": TILE}


def others_long(quick: str) -> list[Any]:
    """Return the operations as parameters, those that are not quick as long proofs."""
    return [
        pytest.param(name, marks=() if name == quick else pytest.mark.long) for name in OPERATIONS
    ]


@pytest.fixture
def dem(tmp_path: Path) -> Path:
    heights = np.random.default_rng(12).integers(0, 90, SHAPE).astype(np.float32)
    heights[30:33, 10:60] = np.nan
    og.ingest(heights, tmp_path / "dem.zarr", **CUT)
    return tmp_path / "dem.zarr"


@pytest.mark.parametrize("name", others_long("trenches"))
def test_a_killed_worker_is_made_up_for(name: str, dem: Path, gate: Gate, tmp_path: Path) -> None:
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        expected = OPERATIONS[name](dem)
        gate.shut(after=SHARDS // 2)
        raster = WatchedRaster(dem, tmp_path / "read.txt", gate=gate)
        run = OPERATIONS[name](raster, out=tmp_path / "out", client=client, verb="submit", **CUT)
        wait_until(gate.held, lambda: run.status == "running")
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        gate.open()
        xr.testing.assert_identical(run.result(timeout=600).load(), expected)


@pytest.mark.parametrize("name", others_long("directions"))
def test_a_killed_session_is_resumed(name: str, dem: Path, gate: Gate, tmp_path: Path) -> None:
    expected = OPERATIONS[name](dem)
    out, diary = tmp_path / "out", tmp_path / "resumed.txt"
    gate.shut(after=SHARDS // 2)
    arguments = [name, dem, out, tmp_path / "read.txt", gate.folder]
    program = Path(__file__).read_text(encoding="utf-8")
    kill_session(program, arguments, gate, lambda: gate.arrived() > SHARDS // 2, 0)
    found = OPERATIONS[name](WatchedRaster(dem, diary), out=out, resume=True, **CUT)
    xr.testing.assert_identical(found.load(), expected)
    # shards that were written are not computed again
    assert 0 < sum(read_tiles(diary).values()) <= SHARDS - SHARDS // 2 + 2


def main(name: str, source: str, out: str, diary: str, folder: str) -> None:
    """Run an operation as far as the gate lets it."""
    raster = WatchedRaster(source, Path(diary), gate=Gate(folder))
    with og.config.set(threads=2):
        OPERATIONS[name](raster, out=out, **CUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
