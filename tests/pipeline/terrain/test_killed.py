"""Whatever of a reading of the terrain is killed, it ends with the same bits and tables.

Also a program, ``OPERATION SOURCE OUT DIARY GATE``: a session that is to be killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from verbs import call
from watched_raster import (
    SHARD,
    TILE,
    Gate,
    WatchedRaster,
    kill_session,
    mortal_cluster,
    read_tiles,
    wait_until,
)

import orograph as og

PLACES = [(3, 4), (50, 20), (80, 60), (11, 66)]
OPERATIONS: dict[str, Callable[..., Any]] = {
    "filling": lambda dem, **o: call(
        og.fill_depressions, dem, outputs=("filled", "depth", "depression"), **o
    ),
    "flood": lambda dem, **o: call(og.flood_level, dem, PLACES[:2], **o),
    "flow directions": lambda dem, **o: call(og.flow_direction, dem, **o),
    "passes": lambda dem, **o: call(og.pass_elevation, dem, PLACES, paths=True, **o),
    "peaks": lambda dem, **o: call(og.peaks, dem, min_prominence=3, **o),
    "depressions": lambda dem, **o: call(og.depressions, dem, min_depth=3, labels=True, **o),
}
SHAPE = (70, 90)
TILES = -(-SHAPE[0] // TILE) * -(-SHAPE[1] // TILE)
# those that read heights again on the way down are killed there too
AFTER = [
    *((name, TILES // 2) for name in OPERATIONS),
    *(
        (name, TILES + TILES // 2)
        for name in ("filling", "flood", "flow directions", "depressions")
    ),
]
# of which the others are of the same kind
QUICK_WORKERS = [("filling", TILES + TILES // 2)]
QUICK_SESSIONS = [("depressions", TILES + TILES // 2)]
CUT = {"tile": TILE, "shard": SHARD}


def others_long(quick: list[tuple[str, int]]) -> list[Any]:
    """Return all that is killed as parameters, those that are not quick as long proofs."""
    return [pytest.param(*of, marks=() if of in quick else pytest.mark.long) for of in AFTER]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    heights = np.random.default_rng(12).integers(0, 90, SHAPE).astype(np.float32)
    heights[30:33, 10:60] = np.nan
    path = tmp_path_factory.mktemp("ingested") / "dem.zarr"
    og.ingest(heights, path, **CUT)
    return path


@pytest.fixture
def dem(tmp_path: Path, ingested: Path) -> Path:
    return Path(shutil.copytree(ingested, tmp_path / "dem.zarr"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with mortal_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.mark.parametrize(("name", "after"), others_long(QUICK_WORKERS))
def test_a_killed_worker_is_made_up_for(
    name: str, after: int, dem: Path, client: Client, gate: Gate, tmp_path: Path
) -> None:
    """A cluster of real processes, once for each operation and way."""
    client.wait_for_workers(2)
    expected = OPERATIONS[name](dem)
    gate.shut(after=after)
    raster = WatchedRaster(dem, tmp_path / "read.txt", gate=gate)
    run = OPERATIONS[name](raster, out=tmp_path / "out", client=client, verb="submit", **CUT)
    wait_until(gate.held, lambda: run.status == "running")
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    gate.open()
    xr.testing.assert_identical(run.result(timeout=600).load(), expected)


@pytest.mark.parametrize(("name", "after"), others_long(QUICK_SESSIONS))
def test_a_killed_session_is_resumed(
    name: str, after: int, dem: Path, gate: Gate, tmp_path: Path
) -> None:
    """A process of its own each time, which is killed."""
    expected = OPERATIONS[name](dem)
    out, diary = tmp_path / "out", tmp_path / "resumed.txt"
    arguments = [name, dem, out, tmp_path / "read.txt", gate.folder]
    program = Path(__file__).read_text(encoding="utf-8")
    kill_session(program, arguments, gate, lambda: gate.arrived() > after, 0)
    with pytest.raises(og.StoreExistsError, match="resume=True"):
        OPERATIONS[name](dem, out=out, **CUT)
    found = OPERATIONS[name](WatchedRaster(dem, diary), out=out, resume=True, **CUT)
    xr.testing.assert_identical(found.load(), expected)
    # what was summarised before is not read again on the way up; paths read tiles with a halo
    whole = [n for (y, x), n in read_tiles(diary).items() if y % TILE == x % TILE == 0 < y + x]
    assert sum(whole) < TILES * (2 if (name, 3 * TILES // 2) in AFTER else 1)


def main(name: str, source: str, out: str, diary: str, folder: str) -> None:
    """Run an operation as far as the gate lets it."""
    raster = WatchedRaster(source, Path(diary), gate=Gate(folder))
    with og.config.set(threads=2):
        OPERATIONS[name](raster, out=out, **CUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
