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
        og.cost_distance(friction, labels, source_values=[label], **KINDS[kind])
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
    there, back = (og.walking_time(slope, [(0, 0)], travel=way) for way in ("from", "to"))
    assert og.corridor([there, back, there], pairs=[(0, 1), (1, 2)]).shape == (3, 4)
    with pytest.raises(og.InputError, match=r"travel is 'from' and 'from'"):
        og.corridor([there, back, there])
    with pytest.raises(og.InputError, match=r"^a: a list of 1 results; give two or more"):
        og.corridor([there])
    with pytest.raises(og.InputError, match=r"^a: 5 at 1; give what cost_distance returns"):
        og.corridor([there, 5])  # type: ignore[list-item]
    with pytest.raises(og.InputError, match=r"^pairs: \(1, 1\) connects a result with itself"):
        og.corridor([there, back], pairs=[(1, 1)])
    with pytest.raises(og.InputError, match=r"^pairs: "):
        og.corridor([there, back], pairs=[(0, 2)])


def regions() -> tuple[Array, Array]:
    friction = np.random.default_rng(1).uniform(1, 9, (40, 60))
    labels = np.zeros(friction.shape, "i4")
    for label, (y, x) in enumerate([(3, 3), (3, 50), (35, 5), (35, 55), (20, 30)], 1):
        labels[y : y + 2, x : x + 2] = label
    return friction, labels


def areas(labels: Array) -> Any:
    return og.polygonize(np.where(labels > 0, labels, -1), nodata=-1).to_geodataframe()


LABELLED: dict[str, Any] = {
    "a raster for each": lambda f, r, k: og.cost_distance(f, np.where(r == k, k, 0)),
    "a raster of floats": lambda f, r, k: og.cost_distance(f, np.where(r == k, float(k), 0)),
    "values of a raster": lambda f, r, k: og.cost_distance(f, r, source_values=[k]),
    "values of a stored raster": lambda f, r, k: og.cost_distance(
        f, xr.DataArray(r, dims=("y", "x")).chunk(16), source_values=[k]
    ),
    "a column of areas": lambda f, r, k: og.cost_distance(
        f, areas(r).query(f"label == {k}"), label="label"
    ),
    "values of a column": lambda f, r, k: og.cost_distance(
        f, areas(r), label="label", source_values=[k]
    ),
    "a column of points": lambda f, r, k: og.cost_distance(
        f,
        (a := areas(r).query(f"label == {k}")).set_geometry(a.representative_point()),
        label="label",
    ),
    "strengths by label": lambda f, r, k: og.cost_distance(
        f, r, source_values=[k], source_cost={"maximum": {k: 1e6}}
    ),
    "eikonal": lambda f, r, k: og.cost_distance(f, np.where(r == k, k, 0), cost="eikonal"),
    "height differences": lambda f, r, k: og.cost_distance(
        f, r, source_values=[k], cost="absolute_difference"
    ),
}


@pytest.mark.parametrize("way", LABELLED)
def test_pairs_are_labels_of_a_mapping_and_never_silently_of_a_list(way: str) -> None:
    friction, cells = regions()
    results = {k: LABELLED[way](friction, cells, k) for k in range(1, 6)}
    assert [result.attrs["source_labels"] for result in results.values()] == [
        *([k] for k in range(1, 6))
    ]
    expected = og.corridor(results[1], results[2], normalize=True)
    found = og.corridor(results, pairs=[(1, 2)], normalize=True)
    assert found.identical(expected)
    assert og.corridor(results).equals(og.corridor(list(results.values())))
    listed = list(results.values())
    for pairs in ([(1, 2)], [(3, 4)], [(1, 2), (4, 2)]):
        with pytest.raises(og.InputError, match=r"^pairs: \d is a position .* a mapping of labels"):
            og.corridor(listed, pairs=pairs)
    for pairs in ([(0, 1)], [(0, 1), (1, 2)]):  # no source has the label 0
        chosen = [og.corridor(listed[one], listed[other]) for one, other in pairs]
        least = np.minimum.reduce([c.values for c in chosen])
        np.testing.assert_array_equal(og.corridor(listed, pairs=pairs).values, least)
    with pytest.raises(og.InputError, match=r"^pairs: 0 is not a label .* are 1, 2, 3, 4, 5"):
        og.corridor(results, pairs=[(0, 1)])


def test_positions_are_never_refused_where_labels_do_not_say_otherwise() -> None:
    friction, cells = regions()
    points = [(3, 3), (50, 3), (5, 35), (55, 35)]
    numbered = [og.cost_distance(friction, [point]) for point in points]
    masks = [og.cost_distance(friction, cells == k) for k in range(1, 5)]  # all of label 1
    places = [og.cost_distance(friction, np.where(cells == k + 1, k, 0)) for k in range(1, 5)]
    named = [
        og.cost_distance(friction, areas(cells).query(f"label == {k}").assign(n=f"core {k}"),
                         label="n")
        for k in range(1, 5)
    ]  # fmt: skip
    for results in (numbered, masks, named, [numbered[0], *places]):
        for pairs in ([(1, 2)], [(2, 3), (1, 3)]):
            assert og.corridor(results, pairs=pairs).shape == friction.shape
    assert all("source_labels" not in result.attrs for result in (*numbered, *named))


def test_labels_of_a_mapping_may_be_names_and_come_from_files(tmp_path: Any) -> None:
    friction, cells = regions()
    results = {}
    for name, k in (("north", 1), ("south", 3), ("east", 4)):
        out = tmp_path / f"{name}.zarr"
        results[name] = og.cost_distance(friction, cells, source_values=[k], out=out)
        assert og.open(out).attrs["source_labels"] == [k]
    found = og.corridor(results, pairs=[("north", "east")])
    assert found.equals(og.corridor(results["north"], results["east"]))
    network = og.region_network(friction, cells)
    by_label = {k: og.cost_distance(friction, cells, source_values=[k]) for k in range(1, 6)}
    pairs = zip(network.columns["from"], network.columns["to"], strict=True)
    every = og.corridor(by_label, pairs=pairs, normalize=True).values
    for line in network.geometry:
        x, y = np.array(line.coords).astype(int).T
        assert every[y, x] == pytest.approx(0, abs=1e-9)
    with pytest.raises(og.InputError, match=r"^a: a mapping of 1 results"):
        og.corridor({1: by_label[1]})
    with pytest.raises(og.InputError, match=r"^a: 5 of 2; give what cost_distance returns"):
        og.corridor({1: by_label[1], 2: 5})  # type: ignore[dict-item]
    with pytest.raises(og.InputError, match=r"^pairs: \['north'\] is not a label"):
        og.corridor(results, pairs=[(["north"], "east")])  # type: ignore[list-item]


@pytest.mark.filterwarnings("ignore:.*all cells are sources")
def test_many_labels_and_such_as_are_not_whole_are_not_listed() -> None:
    many = np.arange(1, 1202).reshape(1, -1)
    assert "source_labels" not in og.cost_distance(np.ones(many.shape), many).attrs
    half = np.array([[0.5, 0, 0]])
    assert "source_labels" not in og.cost_distance(np.ones(half.shape), half).attrs
