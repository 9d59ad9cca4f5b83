"""Runs on a cluster whose processes speak TLS with each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from distributed.security import Security

import orograph as og


def test_both_engines_run_over_tls(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    heights = np.random.default_rng(2).random((48, 40))
    how = {"tile": 8, "shard": 16}
    forest = og.minimum_spanning_forest(heights, **how)
    cost = og.cost_distance(heights, [(3, 4)], **how)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            security=Security.temporary(),
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert cluster.scheduler_address.startswith("tls://")
        on_cluster = {**how, "client": client}
        found = og.minimum_spanning_forest(heights, out=tmp_path / "forest.zarr", **on_cluster)
        xr.testing.assert_identical(found.load(), forest)
        found = og.cost_distance(heights, [(3, 4)], out=tmp_path / "cost.zarr", **on_cluster)
        xr.testing.assert_identical(found.load(), cost)
