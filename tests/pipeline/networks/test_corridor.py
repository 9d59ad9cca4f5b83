"""Corridors between several patches: as NumPy adds and compares the fields of the patches."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import xarray as xr

import orograph as og

Array = np.ndarray[Any, Any]
KINDS = {
    "floats": {},
    "single precision": {"dtype": "float32"},
    "integers": {"dtype": "int64", "connectivity": 4, "cell_size": 1},
}


def patches(kind: str) -> list[xr.Dataset]:
    """A result for each of four patches, of which the third is on an island of its own."""
    rng = np.random.default_rng(8)
    friction = 2.0 * rng.integers(1, 20, (25, 31))
    friction[rng.random(friction.shape) < 0.1] = np.nan
    labels = np.zeros(friction.shape, int)
    for label, (y, x) in enumerate([(1, 1), (20, 3), (12, 26), (3, 20)], 1):
        labels[y : y + 3, x : x + 3], friction[y : y + 3, x : x + 3] = label, 2
    friction[10:17, 24] = friction[10:17, 30] = friction[10, 24:] = friction[16, 24:] = np.nan
    return [
        og.cost_distance(friction, labels, target_values=[label], **KINDS[kind])
        for label in range(1, 5)
    ]


def expected_of(
    results: list[xr.Dataset], pairs: list[tuple[int, int]], normalize: bool, threshold: float
) -> Array:
    """The least over pairs, infinite where there is none; the integers here are exact as floats."""
    fields = [r["cost"].values.astype(f"f{r['cost'].dtype.itemsize}") for r in results]
    found = np.full_like(fields[0], np.inf)
    for one, other in pairs:
        reached = (results[one]["cost"].values >= 0) & (results[other]["cost"].values >= 0)
        total = np.where(reached, fields[one] + fields[other], np.inf)
        if normalize and reached.any():
            total = np.where(reached, total - total[reached].min(), np.inf)
        found = np.minimum(found, total)
    return np.where(found <= threshold, found, np.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_the_least_over_all_pairs(kind: str) -> None:
    results = patches(kind)
    for pairs in (None, [(0, 1), (3, 1)], [(2, 0)], [(0, 2), (1, 3)]):
        for normalize in (False, True):
            for threshold in (None, 30, 150.5):
                found = og.corridor(results, pairs=pairs, normalize=normalize, threshold=threshold)
                expected = expected_of(
                    results,
                    pairs or list(combinations(range(4), 2)),
                    normalize,
                    np.finfo(float).max if threshold is None else threshold,
                )
                blank = -1 if kind == "integers" else np.nan
                cells = np.where(expected < np.inf, expected, blank).astype(found.dtype)
                assert found.dtype == results[0]["cost"].dtype
                np.testing.assert_array_equal(found.values, cells)
                assert found.attrs.get("_FillValue") == (-1 if kind == "integers" else None)
    lazy = og.corridor([r.chunk(7) for r in results], normalize=True, threshold=30)
    assert lazy.chunks is not None
    assert lazy.equals(og.corridor(results, normalize=True, threshold=30))


def test_a_normalised_corridor_is_least_along_the_links_of_the_network() -> None:
    """Of each pair of neighbours alone it is 0 at all cells of their link, or less by rounding."""
    rng = np.random.default_rng(2)
    friction, places = rng.uniform(1, 9, (30, 40)), [(2, 3), (35, 4), (20, 27)]
    results = [og.cost_distance(friction, [place], cell_size=1) for place in places]
    network = og.region_network(friction, places, cell_size=1)
    assert len(network) == 2
    pairs = list(zip(network.columns["from"], network.columns["to"], strict=True))
    every = og.corridor(results, pairs=pairs, normalize=True)
    for pair, cost, line in zip(pairs, network.columns["cost"], network.geometry, strict=True):
        x, y = np.array(line.coords).astype(int).T
        alone = og.corridor(*(results[place] for place in pair)).values
        assert alone.min() == pytest.approx(cost, rel=1e-12)
        assert alone[y, x] == pytest.approx(cost, rel=1e-12)
        assert every.values[y, x] == pytest.approx(0, abs=1e-10)


def test_several_results_that_do_not_fit_are_refused_by_pair() -> None:
    slope = np.arange(12.0).reshape(3, 4)
    there, back = (og.walking_time(slope, [(0, 0)], direction=way) for way in ("from", "to"))
    assert og.corridor([there, back, there], pairs=[(0, 1), (1, 2)]).shape == (3, 4)
    with pytest.raises(og.InputError, match=r"direction is 'from' and 'from'"):
        og.corridor([there, back, there])
    with pytest.raises(og.InputError, match=r"^a: a list of 1 results; give two or more"):
        og.corridor([there])
    with pytest.raises(og.InputError, match=r"^a: 5 at 1; give what cost_distance returns"):
        og.corridor([there, 5])  # type: ignore[list-item]
    with pytest.raises(og.InputError, match=r"^pairs: \(1, 1\) connects a result with itself"):
        og.corridor([there, back], pairs=[(1, 1)])
    with pytest.raises(og.InputError, match=r"^pairs: "):
        og.corridor([there, back], pairs=[(0, 2)])
