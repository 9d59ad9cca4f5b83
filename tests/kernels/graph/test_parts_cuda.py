"""Parts of graphs by the CUDA kernels, in the emulator, against Numba's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator
from oracle_graph import random_edges

from orograph.kernels.graph import (
    components,
    components_cuda,
    forest,
    forest_cuda,
    near_far,
    near_far_cuda,
)
from orograph.kernels.graph.spread import unreached
from orograph.tiles.graph.graph import Graph, Rows, make_graph

KINDS = {"int32": {}, "int64": {}, "float64": {"floats": True}, "negative": {"negative": True}}
PARTS = 3


def graph_of(kind: str, seed: int, n: int, m: int) -> Graph:
    tail, head, weight = random_edges(seed, n, m, **KINDS[kind])
    weight = weight * 2**40 if kind == "int64" else weight
    return make_graph(tail, head, weight, np.arange(n), directed=False, parts=PARTS)


def parts_of(graph: Graph) -> list[tuple[int, Rows, Any]]:
    """The first vertex of each part, its rows, and the numbers of its edges."""
    found = []
    for part, first in enumerate(graph.bounds[:-1]):
        rows, begin = graph.part_rows(part), int(graph.arrays["indptr"][first])
        edge = graph.edge_both_ways[begin : begin + rows.indices.size]
        found.append((first, rows, np.asarray(edge)))
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", KINDS)
def test_forests_of_parts(kind: str, emulator: Emulator) -> None:
    """The same edges, of which the same are decided; sparse graphs have long dead ends."""
    kinds = set()
    for seed, n, m in ((0, 60, 300), (1, 900, 1000), (2, 90, 20)):
        for first, (indptr, heads, weight), edge in parts_of(graph_of(kind, seed, n, m)):
            size = indptr.size - 1
            outside = near_far.arcs_outside(indptr, heads, first)
            border = np.zeros(size, np.bool_)
            border[np.searchsorted(indptr, outside, side="right") - 1] = True
            given = indptr, heads, weight, edge, first, border
            arcs, tails, undecided = forest_cuda.part_forest(*given, device=emulator)
            expected_arcs, _, expected = forest.part_forest(*given)
            assert ((indptr[tails] <= arcs) & (arcs < indptr[tails + 1])).all()
            order, other = np.argsort(edge[arcs]), np.argsort(edge[expected_arcs])
            np.testing.assert_array_equal(edge[arcs][order], edge[expected_arcs][other])
            np.testing.assert_array_equal(undecided[order], expected[other])
            kinds |= set(expected.tolist())
    assert kinds == {False, True}


def test_components_of_parts(emulator: Emulator) -> None:
    for seed, n, m in ((0, 60, 30), (1, 900, 1000), (2, 300, 5000)):
        graph = graph_of("int32", seed, n, m)
        for part, (first, rows, _) in enumerate(parts_of(graph)):
            position = graph.position[first : graph.bounds[part + 1]].astype(np.int64)
            given = rows.indptr, rows.indices, first, position
            found = components_cuda.part_components(*given, device=emulator)
            for one, other in zip(found, components.part_components(*given), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)


def open_parts(graph: Graph, part: int, most: Any, device: Emulator) -> tuple[list[Any], Any]:
    """A part on the CPU and on the device, with two searches, and the vertices beyond it."""
    first, last = graph.bounds[part : part + 2]
    own, (indptr, indices, weight) = last - first, graph.part_rows(part)
    outside = near_far.arcs_outside(indptr, indices, first)
    beyond, number = np.unique(indices[outside], return_inverse=True)
    local = (indices - indices.dtype.type(first)).astype(np.uint32)
    local[outside] = own + number
    indptr = np.append(indptr, np.full(beyond.size, local.size, indptr.dtype))
    dtype = np.dtype(np.float64 if weight.dtype.kind == "f" else np.int64)
    width, nothing = dtype.type(graph.mean_weight), unreached(dtype)
    sources = [np.array([0, 5]), np.array([], np.int64)]
    given = (indptr, local, weight), own, sources, dtype, width, min(most, nothing)
    host = near_far.HostPart(*given)
    return [host, near_far_cuda.DevicePart(*given, device=device)], nothing


@pytest.mark.diagonal
@pytest.mark.parametrize("kind", ["int32", "int64", "float64"])
def test_searches_in_a_part_go_on(
    kind: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to costs that rise and fall, from costs that arrive, and from what another part saved."""
    monkeypatch.setattr(near_far_cuda, "THREADS", 32)
    rng = np.random.default_rng(5)
    for seed, n, m, most in ((0, 60, 300, np.inf), (1, 400, 500, np.inf), (2, 90, 200, 0)):
        graph = graph_of(kind, seed, n, m)
        longest = 10 * graph.weight_range[1]
        parts, nothing = open_parts(graph, 1, most and 2 * longest, emulator)
        dtype, own = nothing.dtype, graph.bounds[2] - graph.bounds[1]
        vertices = rng.integers(0, own, 8)
        for turn in range(6):
            upto = dtype.type(rng.random() * longest if turn < 5 else nothing)
            costs = np.full(8, nothing)
            news = rng.integers(0, 8, 3)
            costs[news] = (rng.random(3) * longest).astype(dtype)
            for number in range(2):
                for part in parts:  # one goes farther than asked, the other not
                    _, least = part.go_on(number, vertices, costs, upto)
                    assert least > upto or least == nothing
                    assert (part.cost[number, vertices] <= costs).all()
            if turn == 5:
                np.testing.assert_array_equal(parts[1].cost, parts[0].cost)
                np.testing.assert_array_equal(parts[1].beyond(), parts[0].beyond())
                assert parts[1].reached() == parts[0].reached()
                assert not any(waiting.size for part in parts for waiting in part.save()[1])
            if turn == 3:
                saved = parts[1].save()
                parts, _ = open_parts(graph, 1, most and 2 * longest, emulator)
                for part in parts:
                    part.restore(saved[0].copy(), saved[1])
        assert parts[1].reached() > own // 2 or most == 0
        assert parts[1].nbytes > 0
