"""Builds of a distance index that are killed in the middle: they end with the same bits.

Processes are real and are really killed; what a build has done is seen from its blocks on disk.
"""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from watched_raster import (
    Gate,
    WatchedRaster,
    kill_session,
    mortal_cluster,
    read_tiles,
    wait_until,
)

import orograph as og
from orograph.index.distance_index import DistanceIndex
from orograph.index.store import IndexStore

SHAPE = 180, 125
OPTIONS: dict[str, Any] = {"block": 4, "levels": 0, "sparsify": True}
BLOCKS = 45 * 32
SHARDS = 3 * 2  # of 16 x 16 blocks


@pytest.fixture(scope="module")
def friction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    cells = rng.integers(1, 10, SHAPE).astype(np.float32)
    cells[rng.random(SHAPE) < 0.1] = np.nan
    path = tmp_path_factory.mktemp("input") / "friction.zarr"
    og.ingest(cells, path, tile=64)
    return path


@pytest.fixture(scope="module")
def undisturbed(friction: Path) -> dict[str, bytes]:
    out = friction.with_name("undisturbed.zarr")
    index = DistanceIndex.build(friction, out, **OPTIONS)
    assert index.blocks == BLOCKS
    form = IndexStore.open(out).form
    assert len(list(form.layout.windows(SHAPE))) == SHARDS
    return content(out)


def content(store: Path) -> dict[str, bytes]:
    """Every file of an index, but for the name of the run that is in the group's metadata."""
    files = {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and path.name != "report.json"  # it tells times
    }
    document = json.loads(files["zarr.json"])
    for own in ("run", "checksum"):
        document["attributes"]["orograph"].pop(own)
    return files | {"zarr.json": json.dumps(document).encode()}


def blocks_of(out: Path) -> dict[str, int]:
    """The blocks that an unfinished build has on disk, and when each was written."""
    folders = out.parent.glob(f"{out.name}.partial/*/result.zarr/matrices/c/*/0")
    return {path.parent.name: path.stat().st_mtime_ns for path in folders}


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(False, id="at any moment"),
        pytest.param(True, id="while it reads", marks=pytest.mark.long),
    ],
)
def test_a_worker_killed_in_a_build_changes_nothing(
    friction: Path, undisturbed: dict[str, bytes], reading: bool, tmp_path: Path, gate: Gate
) -> None:
    diary, out = tmp_path / "diary.txt", tmp_path / "i"
    watched = WatchedRaster(friction, diary, gate=gate)
    with (
        mortal_cluster(2) as cluster,
        Client(cluster, set_as_default=False) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        build = pool.submit(DistanceIndex.build, watched, out, client=client, **OPTIONS)
        try:
            going_on = lambda: not build.done()  # noqa: E731
            wait_until(gate.until(lambda: len(blocks_of(out)) > BLOCKS // 3), going_on)
            if reading:
                wait_until(lambda: gate.held() == 2, going_on)
            os.kill(victim, signal.SIGKILL)
            assert len(blocks_of(out)) < BLOCKS
        finally:
            gate.open()
        index = build.result()
        wait_until(lambda: victim not in client.run(os.getpid, on_error="ignore").values())
        points = [(3.0, 4.0), (100.0, 150.0), (120.0, 9.0)]
        table = index.distance_matrix(points, snap=True).values
    assert content(out) == undisturbed
    alone = DistanceIndex.open(friction.with_name("undisturbed.zarr"))
    np.testing.assert_array_equal(table, alone.distance_matrix(points, snap=True).values)
    # only what was in the victim's hands is read again, and Dask hands out a task or two ahead
    read = read_tiles(diary)
    assert len(read) == SHARDS
    assert SHARDS + reading <= sum(read.values()) <= SHARDS + 3
    assert [entry.name for entry in tmp_path.iterdir()] in (["diary.txt", "i"], ["i", "diary.txt"])


SCRIPT = """
import json, sys
from contextlib import nullcontext
from pathlib import Path
import orograph as og
from watched_raster import Gate, WatchedRaster
if __name__ == "__main__":
    source, out, diary, gate, workers, options = sys.argv[1:]
    number = int(workers)
    started = og.cluster(n_workers=number, dashboard_address=None) if number else nullcontext()
    with started as client, og.config.set(threads=2):
        og.DistanceIndex.build(
            WatchedRaster(source, Path(diary), gate=Gate(gate)),
            out,
            client=client,
            **json.loads(options),
        )
"""


@pytest.mark.parametrize(
    "workers", [0, pytest.param(2, marks=pytest.mark.long)], ids=["threads", "a cluster"]
)
def test_a_build_whose_session_is_killed_is_resumed(
    friction: Path, undisturbed: dict[str, bytes], workers: int, tmp_path: Path, gate: Gate
) -> None:
    diary, out = tmp_path / "diary.txt", tmp_path / "i"
    arguments = [friction, out, diary, gate.folder, workers, json.dumps(OPTIONS)]
    # more than two shards hold, so one of two workers has begun its second
    kill_session(SCRIPT, arguments, gate, lambda: len(blocks_of(out)) > BLOCKS // 2, workers)
    assert not out.exists()
    kept = blocks_of(out)
    assert BLOCKS // 2 < len(kept) < BLOCKS
    with pytest.raises(og.InputError, match="never finished"):
        DistanceIndex.open(out)
    before = sum(read_tiles(diary).values())
    watched = WatchedRaster(friction, diary)
    DistanceIndex.build(watched, out, resume=True, **OPTIONS)
    assert content(out) == undisturbed
    # what was there is there still, and shards that were whole were not read again
    matrices = out / "matrices" / "c"
    assert {n: (matrices / n / "0").stat().st_mtime_ns for n in kept} == kept
    assert 0 < sum(read_tiles(diary).values()) - before < SHARDS
    assert not out.with_name("i.partial").exists()
