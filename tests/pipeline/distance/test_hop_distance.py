"""Hop distance against breadth-first search by NetworkX, for every tiling."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import orograph as og


def levels(mask: np.ndarray, sources: list[tuple[int, int]], connectivity: int) -> np.ndarray:
    """Breadth-first levels of a mask from cells (row, column), -1 where there is no way."""
    graph = nx.Graph()
    graph.add_nodes_from(map(tuple, np.argwhere(mask).tolist()))
    steps = [(0, 1), (1, 0), (1, 1), (1, -1)] if connectivity == 8 else [(0, 1), (1, 0)]
    for y, x in list(graph):
        graph.add_edges_from(
            ((y, x), (y + dy, x + dx)) for dy, dx in steps if (y + dy, x + dx) in graph
        )
    hops = np.full(mask.shape, -1)
    for cell, level in nx.multi_source_dijkstra_path_length(
        graph, set(sources), weight=None
    ).items():
        hops[cell] = level
    return hops


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    tile=st.integers(1, 26),
    connectivity=st.sampled_from([4, 8]),
    share=st.sampled_from([0.5, 0.7, 1.0]),
    seed=st.integers(0, 999),
)
def test_any_tiling_gives_the_levels_of_a_breadth_first_search(
    shape: tuple[int, int], tile: int, connectivity: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < share
    sources = {tuple(cell) for cell in (rng.integers(0, shape, (2, 2))).tolist()}
    for cell in sources:
        mask[cell] = True
    found = og.hop_distance(
        mask, [(x, y) for y, x in sources], connectivity=connectivity, tile=tile
    )["hops"]
    expected = levels(mask, list(sources), connectivity)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found.values, expected)
    assert found.shape == shape


def test_a_serpentine_is_followed_to_its_end_and_no_farther_than_asked(tmp_path: Path) -> None:
    mask = np.ones((33, 20), bool)
    for number, row in enumerate(range(1, 33, 2)):
        mask[row] = False
        mask[row, -1 if number % 2 == 0 else 0] = True
    expected = levels(mask, [(0, 0)], 4)
    og.ingest(mask, tmp_path / "mask.zarr", tile=4)
    result = og.hop_distance(
        tmp_path / "mask.zarr", [(0, 0)], connectivity=4, out=tmp_path / "hops.zarr"
    )
    np.testing.assert_array_equal(result["hops"].values, expected)
    assert '"bitshuffle"' in (tmp_path / "hops.zarr" / "hops" / "zarr.json").read_text()
    assert result.attrs["reached_cells"] == mask.sum()
    assert result.attrs["impassable_cells"] == (~mask).sum()
    some = og.hop_distance(mask, [(0, 0)], connectivity=4, max_hops=57, tile=5)["hops"].values
    np.testing.assert_array_equal(some, np.where(expected <= 57, expected, -1))


def test_sources_may_be_a_raster() -> None:
    mask = np.ones((6, 7), bool)
    sources = np.zeros((6, 7), np.uint8)
    sources[1, 1], sources[5, 6] = 3, 4
    found = og.hop_distance(mask, sources, tile=3)["hops"].values
    np.testing.assert_array_equal(found, levels(mask, [(1, 1), (5, 6)], 8))
    only = og.hop_distance(mask, sources, tile=3, source_values=[4])["hops"].values
    np.testing.assert_array_equal(only, levels(mask, [(5, 6)], 8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"max_hops": -1}, "max_hops: -1; it must be", id="hops below zero"),
        pytest.param({"max_hops": 2**70}, "max_hops: .*0 to 4503599627370496", id="too many hops"),
        pytest.param({"max_hops": 1.5}, "max_hops: 1.5; it must be", id="half a hop"),
        pytest.param({"connectivity": 16}, "connectivity: 16 is unknown; use", id="knights"),
        pytest.param({"sources": [(9, 9)]}, "point 0 .* outside the grid", id="a source outside"),
        pytest.param(
            {"sources": [(0, 1)]},
            "on cells that are not passable; move it",
            id="a source on nodata",
        ),
        pytest.param(
            {"sources": [(1, 0)]},
            "on cells that are not passable; move it",
            id="a source on a barrier",
        ),
    ],
)
def test_bad_input_is_refused(changes: dict[str, object], message: str) -> None:
    mask = np.array([[1, 0], [7, 1]], np.uint8)
    options: dict[str, object] = {"mask": mask, "sources": [(0, 0)], "nodata": 7, **changes}
    with pytest.raises(og.InputError, match=message):
        og.hop_distance(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("tile", [8, 64], ids=["many tiles", "one tile"])
def test_no_tile_is_visited_when_nothing_can_improve_it(tile: int) -> None:
    """In open country the first visit of a tile is told all it needs, or nearly so."""
    run = og.hop_distance.submit(np.ones((64, 64), bool), [(0, 0)], tile=tile)
    run.result()
    tiles = (64 // tile) ** 2
    visits = run.statistics()["tile_visits"]
    assert visits == 1 if tiles == 1 else tiles <= visits < 8 * tiles
