"""Distance indices with links: equal to runs of cost_distance with the same links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from any_model import build, distance

import orograph as og
from orograph.index.links import SPARE_ROWS, SPARE_TERMINALS
from orograph.index.store import COMMITTED, PENDING

Array = npt.NDArray[Any]


def case(seed: int) -> tuple[dict[str, Any], dict[str, Any], np.random.Generator]:
    """Arguments of a run and those of an index alone, at random."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 30)), int(rng.integers(2, 30))
    cost = ("friction", "friction", "absolute_difference", "tobler")[int(rng.integers(4))]
    dtype = "float64" if cost == "tobler" else ("float64", "float32", "int64")[seed % 3]
    friction = 2.0 * rng.integers(1, 40, shape)
    elevation = rng.integers(0, 40, shape) / (1.0 if dtype == "int64" else 4.0)
    gone = rng.random(shape) < (0.0, 0.2, 0.5)[int(rng.integers(3))]
    gone.flat[:2] = False
    friction[gone] = elevation[gone] = np.nan
    options: dict[str, Any] = {
        "friction": None if cost == "absolute_difference" else friction,
        "elevation": None if cost == "friction" else elevation,
        "cost": cost,
        "dtype": dtype,
        "connectivity": 4 if dtype == "int64" else (4, 8)[int(rng.integers(2))],
        "cell_size": 1,
    }
    form = {"block": int(rng.integers(1, 9)), "levels": int(rng.integers(0, 3))}
    form["sparsify"] = bool(rng.integers(2))
    return options, form, rng


def valid_of(options: dict[str, Any]) -> Array:
    raster = options["elevation"] if options["friction"] is None else options["friction"]
    return np.flatnonzero(np.isfinite(raster.ravel()))


def edges_of(options: dict[str, Any], rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Some edges, half of them between cells side by side, and whole weights."""
    raster = options["elevation"] if options["friction"] is None else options["friction"]
    valid = valid_of(options)
    ends = valid[rng.integers(0, len(valid), (count, 2))]
    step = rng.choice([1, raster.shape[1], raster.shape[1] + 1], count)
    near = ends[:, 0] + step
    takes = (rng.random(count) < 0.5) & np.isin(near, valid)
    ends[takes, 1] = near[takes]
    return ends, rng.integers(0, 50, count).astype(float)


def graph_of(ends: Array, weight: Array, size: int, directed: bool) -> og.Graph:
    matrix = scipy.sparse.coo_array((weight, (ends[:, 0], ends[:, 1])), shape=(size, size))
    return og.read_graph(matrix, directed=directed)


def assert_agrees(
    index: og.DistanceIndex, points: Array, options: dict[str, Any], links: og.Graph
) -> None:
    """Tables, the nearest, fields and a path, against a run from each point."""
    tolerance = {"int64": 0, "float32": 1e-5, "float64": 1e-12}[options["dtype"]]
    columns, rows = points.astype(int).T
    runs = [distance(sources=[p], links=links, **options)["cost"].values for p in points]
    expected = np.stack(runs)[:, rows, columns]
    if expected.dtype.kind == "f":
        expected = np.where(np.isnan(expected), np.inf, expected)
    np.testing.assert_allclose(index.distance_matrix(points).values, expected, rtol=tolerance)
    few = index.distance_matrix(points[:2], points[1:])
    np.testing.assert_allclose(few.values, expected[:2, 1:], rtol=tolerance)
    whole = distance(sources=points[:3], links=links, **options)["cost"].values
    found = index.query(points[:3])["cost"].values
    np.testing.assert_allclose(found, whole, rtol=tolerance)
    height, width = whole.shape
    part = height // 2, width // 3, height - height // 2, width - width // 3
    found = index.query(points[:3], part)["cost"].values
    np.testing.assert_allclose(found, whole[part[0] :, part[1] :], rtol=tolerance)
    reached = expected[0] >= 0 if expected.dtype.kind == "i" else np.isfinite(expected[0])
    for end in np.flatnonzero(reached)[-1:]:
        way = index.path(points[0], points[end])
        assert way.cells[0].tolist() == [rows[0], columns[0]]
        assert way.cells[-1].tolist() == [rows[end], columns[end]]
        np.testing.assert_allclose(way.cost, expected[0, end], rtol=tolerance)


def check(seed: int, folder: Path) -> None:
    options, form, rng = case(seed)
    valid, directed = valid_of(options), bool(rng.integers(2))
    raster = options["elevation"] if options["friction"] is None else options["friction"]
    height, width = raster.shape
    ends, weight = edges_of(options, rng, (1, 4, 30)[int(rng.integers(3))])
    links = graph_of(ends, weight, raster.size, directed)
    store = folder / f"{seed}.zarr"
    index = build(store=store, links=links, **options, **form)
    chosen = valid[rng.integers(0, len(valid), 5)]
    points = np.stack([chosen % width, chosen // width], axis=1).astype(float)
    assert_agrees(index, points, options, links)

    # other costs, edges taken away and a new one
    weight[0] = weight[0] // 3
    new, cost = edges_of(options, rng, 1)
    ends, weight = np.concatenate([ends[:-1], new]), np.append(weight[:-1], cost)
    links = graph_of(ends, weight, raster.size, directed)
    index.update_links(links)
    assert_agrees(index, points, options, links)

    # new values, but not where a link would end on nodata
    y, x = int(rng.integers(height)), int(rng.integers(width))
    window = (y, x, min(3, height - y), min(4, width - x))
    values = 2.0 * rng.integers(1, 40, window[2:])
    name = "friction" if options["friction"] is not None else "elevation"
    options[name] = options[name].copy()
    old = options[name][y : y + window[2], x : x + window[3]]
    values[np.isnan(old)] = np.nan
    options[name][y : y + window[2], x : x + window[3]] = values
    index.update(window, **{name: values})
    assert_agrees(og.DistanceIndex.open(store), points, options, links)


VARIED = (1, 5, 7, 10)
"""Seeds with all costs, dtypes and levels between them, directed and not."""


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=() if seed in VARIED else pytest.mark.long) for seed in range(12)],
)
def test_an_index_with_links_is_as_runs_with_them(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12, 200))
def test_many_indices_with_links(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def bridge(cost: float, size: int = 400) -> og.Graph:
    return graph_of(np.array([[20, 399]]), np.array([cost]), size, False)


def test_an_update_of_a_link_makes_the_blocks_of_its_ends_anew(tmp_path: Path) -> None:
    friction = np.random.default_rng(0).uniform(1, 9, (20, 20))
    places = [(0, 0), (19, 19), (7, 12)]
    index = og.DistanceIndex.build(
        friction, tmp_path / "i.zarr", block=4, levels=0, links=bridge(3.0), cell_size=1
    )
    assert index.update_links(bridge(3.0)) == 0
    assert index.update_links(bridge(2.0)) == 2
    fresh = og.DistanceIndex.build(
        friction, tmp_path / "fresh.zarr", block=4, levels=0, links=bridge(2.0), cell_size=1
    )
    mine, expected = index.distance_matrix(places), fresh.distance_matrix(places)
    np.testing.assert_array_equal(mine.values, expected.values)
    assert mine.values[0, 1] < og.cost_distance(friction, [(0, 0)])["cost"].values[19, 19]
    assert index.fingerprint != fresh.fingerprint


def test_links_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    friction = np.ones((20, 20))
    place = tmp_path / "i.zarr"
    plain = og.DistanceIndex.build(friction, tmp_path / "plain.zarr", block=4)
    with pytest.raises(og.InputError, match=r"^links: this index was built without any"):
        plain.update_links(bridge(1.0))
    index = og.DistanceIndex.build(friction, place, block=4, levels=0, links=bridge(1.0))
    before = index.distance_matrix([(0, 1), (19, 19)]).values
    one_way = graph_of(np.array([[20, 399]]), np.ones(1), 400, True)
    with pytest.raises(og.InputError, match="one way only"):
        index.update_links(one_way)
    rng = np.random.default_rng(0)
    many = rng.choice(400, (2 + SPARE_ROWS, 2))
    with pytest.raises(og.InputError, match=r"^links: \d+ links; this index has room for"):
        index.update_links(graph_of(many, np.ones(len(many)), 400, False))
    more = og.DistanceIndex.build(friction, tmp_path / "m.zarr", block=4, links=bridge(1.0))
    block = np.add.outer(20 * np.arange(4), np.arange(8)).ravel()
    crowded = np.stack([block, 399 - block], axis=1)
    few = crowded[:SPARE_TERMINALS]
    assert more.update_links(graph_of(few, np.ones(len(few)), 400, False)) > 1
    with pytest.raises(og.InputError, match=r"^links: 32 ends of links in a block"):
        more.update_links(graph_of(crowded, np.ones(len(crowded)), 400, False))
    gone = np.full((2, 2), np.nan)
    with pytest.raises(
        og.InputError, match=r"^window: edge 0 of the links ends at row 1, column 0"
    ):
        index.update((1, 0, 2, 2), gone)
    with pytest.raises(og.InputError, match="vertex 401 is not a cell"):
        index.update_links(graph_of(np.array([[20, 401]]), np.ones(1), 402, False))
    with pytest.raises(og.InputError, match=r"make one with og\.roads\(.*og\.read_graph"):
        index.update_links([(0, 1)])  # type: ignore[arg-type]
    for path in (place, tmp_path / "plain.zarr"):
        assert not (path / PENDING / COMMITTED).exists()
    np.testing.assert_array_equal(index.distance_matrix([(0, 1), (19, 19)]).values, before)


def test_links_end_on_valid_cells_or_are_moved_to_them(tmp_path: Path) -> None:
    friction = np.ones((20, 20))
    friction[1, 0] = np.nan
    with pytest.raises(og.InputError, match=r"^links: "):
        og.DistanceIndex.build(friction, tmp_path / "i.zarr", block=4, links=bridge(1.0))
    index = og.DistanceIndex.build(
        friction, tmp_path / "i.zarr", block=4, links=bridge(1.0), snap=True, cell_size=1
    )
    run = og.cost_distance(friction, [(0, 0)], links=bridge(1.0), snap=True, cell_size=1)
    found = index.distance_matrix([(0, 0)], [(19, 19)]).values
    assert found[0, 0] == run["cost"].values[19, 19]


def test_a_plan_counts_the_ends_of_links(tmp_path: Path) -> None:
    friction = np.ones((20, 20))
    plan = og.DistanceIndex.build.plan
    rng = np.random.default_rng(0)
    many = graph_of(rng.choice(400, (30, 2)), np.ones(30), 400, False)
    with_links = plan(friction, block=4, levels=1, links=many, workers=1)
    without = plan(friction, block=4, levels=1, workers=1)
    assert with_links.bytes_written > without.bytes_written
    index = og.DistanceIndex.build(friction, tmp_path / "i.zarr", block=4, links=many)
    assert index.bytes_uncompressed == with_links.bytes_written
    with pytest.raises(og.InputError, match=r"^links: a RasterSpec"):
        plan(og.RasterSpec((20, 20), "float64"), links=many, workers=1)
