"""Peaks are those of Higra and cripser, as `peaks_of_peers.py` has recorded them."""

from __future__ import annotations

import numpy as np
import pytest
from peaks_of_peers import REAL, RECORD, distinct_heights, real_heights

import orograph as og


@pytest.fixture(params=["distinct", *REAL])
def named(request: pytest.FixtureRequest) -> tuple[str, np.ndarray]:
    name: str = request.param
    if name == "distinct":
        return name, distinct_heights()
    return name, real_heights(request.getfixturevalue("shared_data") / "dem" / REAL[name])


def test_peaks_and_cols_are_the_pairs_of_cripser(named: tuple[str, np.ndarray]) -> None:
    name, heights = named
    found = og.peaks(heights, connectivity=4, tile=64)
    pairs = np.stack([found["elevation"], found["col_elevation"]], axis=1)
    pairs = pairs[found["parent"].values >= 0]  # of the highest it has none
    recorded = np.load(RECORD)[f"{name} cripser"]
    assert len(recorded) > 30
    np.testing.assert_array_equal(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], recorded)


@pytest.mark.parametrize("connectivity", [4, 8])
def test_prominences_are_the_dynamics_of_higra(
    connectivity: int, named: tuple[str, np.ndarray]
) -> None:
    name, heights = named
    found = og.peaks(heights, connectivity=connectivity, tile=64)
    # that of the highest is by how much it is above the lowest cell
    prominence = np.where(found["parent"] < 0, np.ptp(heights), found["prominence"])
    recorded = np.load(RECORD)[f"{name} higra {connectivity}"]
    if name != "distinct":  # where heights are equal, only which values there are is recorded
        np.testing.assert_array_equal(np.unique(prominence), recorded)
        return
    dynamics = np.zeros_like(heights)
    dynamics[found["y"].values.astype(int), found["x"].values.astype(int)] = prominence
    np.testing.assert_array_equal(dynamics, recorded)
