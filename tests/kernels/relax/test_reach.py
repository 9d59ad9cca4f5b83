"""The extent of a search is what NumPy counts of it."""

from __future__ import annotations

import numpy as np
import pytest

from orograph.kernels.relax.reach import measure_reach


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_extents_are_those_of_numpy(dtype: str) -> None:
    random = np.random.default_rng(2)
    nothing = 2.0**60 if dtype == "int64" else np.inf
    dist = np.full((9, 7), nothing).astype(dtype)
    dist[2:6, 3:5] = random.integers(0, 9, (4, 2))
    dist[3, 3] = nothing
    people = random.uniform(0, 5, dist.shape).astype(np.float32)
    people[4, 3:5] = np.nan, -9
    found = measure_reach(dist, nothing, people, -9.0, 2.0**20)
    within = (dist < nothing) & np.isfinite(people) & (people != -9)
    units = np.rint(people[within].astype(np.float64) * 2**20).sum()
    assert found == (7, 2, 5, 3, 4, units, dist[dist < nothing].max())
    none = np.empty((0, 0), np.float32)
    assert measure_reach(dist, nothing, none, None, 2.0**20).people == 0
