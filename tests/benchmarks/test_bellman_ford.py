"""Bellman and Ford by output and by input, on a CPU and in the emulator, against orograph's."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler, in_orders
from graph_cases import KINDS, cost_from, graph_of
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.graphs.part_search import PartReader, signed_costs
from orograph.kernels.device_rows import upload_rows
from orograph.kernels.graph.spread import unreached
from orograph.tiles.graph.graph import Graph, make_graph

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from papers import bellman_ford_cuda
from papers.bellman_ford import STRATEGIES, bellman_ford

CASES = {f"{kind}-{strategy}": (kind, strategy) for kind in KINDS for strategy in STRATEGIES}
FLOATS = {name for name in CASES if name.startswith("float64")}


def check(graph: Graph, start: int, strategy: str, device: Emulator) -> Any:
    """Compare the costs of both backends with those of orograph; return them."""
    here, there = (cost_from(graph, start) for _ in range(2))
    reader = PartReader(graph, Event())
    expected = signed_costs(reader, start, here.dtype, lambda *cycle: None)
    bellman_ford(graph.incoming, here, strategy)
    bellman_ford_cuda.bellman_ford(upload_rows(device, *graph.incoming), there, strategy)
    for found in (here, there):
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))
    return expected


@pytest.mark.diagonal
@pytest.mark.parametrize(("case", "emulator"), in_orders(CASES, FLOATS), indirect=["emulator"])
def test_costs_are_those_of_orograph(case: tuple[str, str], emulator: Emulator) -> None:
    kind, strategy = case
    for seed, n, m in ((0, 60, 300), (2, 300, 700)):
        cost = check(graph_of(kind, seed, n, m), 3, strategy, emulator)
        assert (cost != unreached(cost.dtype)).sum() > n // 2


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["int32", "float64"])
def test_vertices_that_many_arcs_enter(kind: str, emulator: Emulator) -> None:
    """One takes a block, one a warp, and the others some lanes each, or one."""
    for dense in (False, True):
        graph = graph_of(kind, 3, 300, 4000 if dense else 400)
        ends = np.repeat([5, 9], [1500, 250]), np.random.default_rng(1).integers(0, 300, 1750)
        tails = graph.tails.astype(np.int64), graph.rows.indices.astype(np.int64)
        weight = np.append(graph.rows.weight, graph.rows.weight.max() + np.arange(1750) % 9)
        graph = make_graph(
            np.append(tails[0], ends[1]), np.append(tails[1], ends[0]), weight, np.arange(300),
            directed=True,
        )  # fmt: skip
        check(graph, 3, "output", emulator)


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")
@settings(max_examples=30, deadline=None)
@given(
    edges=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 4)), max_size=40
    ),
    start=st.integers(0, 11),
    strategy=st.sampled_from(STRATEGIES),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_graph_in_any_order(
    edges: list[tuple[int, int, int]], start: int, strategy: str, seed: int
) -> None:
    table = np.array(edges, np.int64).reshape(-1, 3).T
    graph = make_graph(*table, np.arange(12), directed=True)
    check(graph, start, strategy, Emulator("random", seed))
