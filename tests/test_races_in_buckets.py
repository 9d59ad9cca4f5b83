"""Two processes write one store of a bucket, or one branch of Icechunk: nothing is mixed."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import icechunk
import numpy as np
import pytest
import xarray as xr

import orograph as og
from orograph.tiles.object_storage import ObjectStorage

GRID = np.random.default_rng(8).integers(1, 50, (60, 60)).astype(np.float32)
OPTIONS: dict[str, Any] = {"tile": 16, "shard": 32}
RACES = pytest.mark.parametrize("races", [4, pytest.param(60, marks=pytest.mark.long)])

_barrier: Any = None


def _begin(barrier: Any, environment: dict[str, str]) -> None:
    global _barrier
    _barrier = barrier
    os.environ.update(environment)  # forked from a process that began before the server


def _write(out: str, sign: int, wait: bool) -> str:
    """Make the forest of a grid or of its negative; return what the writer was told, or ""."""
    if wait:
        _barrier.wait(60)
    try:
        og.minimum_spanning_forest(GRID * sign, out=out, overwrite=True, **OPTIONS)
    except og.StoreExistsError as error:
        return str(error)
    return ""


def _commit(bucket: str, sign: int, wait: bool) -> str:
    """Make the forest of a grid or of its negative in a repository; return what was told, or ""."""
    repository = repository_in(bucket)
    if wait:
        _barrier.wait(60)
    try:
        og.minimum_spanning_forest(GRID * sign, out=repository, overwrite=True, **OPTIONS)
    except og.StoreExistsError as error:
        return str(error)
    return ""


def repository_in(bucket: str) -> icechunk.Repository:
    """Open the repository of a bucket, or create it."""
    place = icechunk.s3_storage(
        bucket=bucket.removeprefix("s3://"),
        prefix="repository",
        region=os.environ["AWS_REGION"],
        endpoint_url=os.environ["AWS_ENDPOINT_URL"],
        allow_http=True,
        from_env=True,
        force_path_style=True,
    )
    return icechunk.Repository.open_or_create(place)


@RACES
def test_two_writers_of_one_branch_of_icechunk_never_mix(s3: str, races: int) -> None:
    expected = {
        sign: og.minimum_spanning_forest(GRID * sign, **OPTIONS)["edges"].values.tobytes()
        for sign in (1, -1)
    }
    repository = repository_in(s3)
    forking = multiprocessing.get_context("forkserver")
    began = forking.Barrier(2), {**os.environ}
    refused = commits = 0
    with ProcessPoolExecutor(2, forking, _begin, began) as pool:
        for race in range(races):
            told = list(pool.map(_commit, [s3] * 2, [1, -1], [True] * 2))
            winners = [sign for sign, text in zip((1, -1), told, strict=True) if not text]
            assert winners, f"race {race}: {told}"
            for text in filter(None, told):
                assert "another has committed to branch main" in text, f"race {race}: {text}"
            refused += len(told) - len(winners)
            commits += len(winners)
            session = repository.readonly_session("main")
            edges = xr.open_zarr(session.store, consolidated=False, mask_and_scale=False)["edges"]
            assert edges.values.tobytes() in [expected[sign] for sign in winners], f"race {race}"
            assert repository.list_branches() == {"main"}, f"race {race}"
    # each that won moved the branch once: by its metadata and its chunks
    history = [snapshot.message for snapshot in repository.ancestry(branch="main")]
    assert len(history) == 1 + 2 * commits
    assert refused > 0


@RACES
def test_two_writers_of_one_bucket_never_mix(s3: str, races: int) -> None:
    expected = {
        sign: og.minimum_spanning_forest(GRID * sign, **OPTIONS)["edges"].values.tobytes()
        for sign in (1, -1)
    }
    assert expected[1] != expected[-1]
    forking = multiprocessing.get_context("forkserver")
    began = forking.Barrier(2), {**os.environ}
    refused = 0
    with ProcessPoolExecutor(2, forking, _begin, began) as pool:
        out = f"{s3}/out.zarr"
        for race in range(races):
            told = list(pool.map(_write, [out] * 2, [1, -1], [True] * 2))
            winners = [sign for sign, text in zip((1, -1), told, strict=True) if not text]
            assert winners, f"race {race}: {told}"
            for text in filter(None, told):
                assert "is being written by process" in text, f"race {race}: {text}"
            refused += len(told) - len(winners)
            found = og.open(out)["edges"].values.tobytes()
            assert found in [expected[sign] for sign in winners], f"race {race}"
            bucket = ObjectStorage(out)
            left = {meta["path"].split("/")[0] for meta in bucket._list("")}
            versions = {meta["path"].split("/")[1] for meta in bucket._list("out.zarr")}
            assert left == {"out.zarr"}, f"race {race}"
            assert versions == {"zarr.json", bucket._version(latest=True)}, f"race {race}"
    assert refused > 0
