"""Forked processes: stored results can be read and made where a parent has used Dask."""

from __future__ import annotations

import multiprocessing
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og

CELLS = np.random.default_rng(3).random((20, 20))


def read(path: Path) -> int:
    """Read a result, make it anew, and return a sum of both."""
    og.minimum_spanning_forest(path / "a.zarr", out=path / "c.zarr", overwrite=True)
    return sum(int(og.open(path / name)["edges"].values.sum()) for name in ("b.zarr", "c.zarr"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("on", ["threads", "cluster"])
def test_a_result_is_read_in_a_forked_process(tmp_path: Path, on: str) -> None:
    og.ingest(CELLS, tmp_path / "a.zarr", tile=8)
    cluster: Any = og.cluster(1, dashboard_address=None) if on == "cluster" else nullcontext()
    with cluster:
        result = og.minimum_spanning_forest(tmp_path / "a.zarr", out=tmp_path / "b.zarr")
        expected = int(result["edges"].values.sum())  # by threads, or by the client
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(read, (tmp_path,)).get(timeout=60) == 2 * expected
