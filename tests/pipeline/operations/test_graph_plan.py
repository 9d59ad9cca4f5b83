"""What an operation on a graph takes is told before it runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import orograph as og
from orograph.plans.plan import CLIENT_BYTES
from orograph.tiles.graph import graph as graph_module


def mesh(side: int, parts: int = 1, directed: bool = False) -> og.Graph:
    """A square mesh, whose edges lead both ways."""
    cells = np.arange(side * side).reshape(side, side)
    first = np.concatenate([cells[:, 1:].ravel(), cells[1:].ravel()])
    second = np.concatenate([cells[:, :-1].ravel(), cells[:-1].ravel()])
    weight = np.random.default_rng(1).integers(1, 100, first.size)
    if directed:
        first, second = np.append(first, second), np.append(second, first)
        weight = np.append(weight, weight)
    matrix = scipy.sparse.coo_array((weight, (first, second)), shape=(cells.size,) * 2)
    return og.read_graph(matrix, directed=directed, parts=parts)


OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "one source": (og.shortest_paths, (0,), {}),
    "three sources": (og.shortest_paths, ([0, 5, 9],), {"predecessors": True}),
    "forest": (og.minimum_spanning_forest, (), {}),
    "components": (og.connected_components, (), {}),
    "hops": (og.hop_distance, (0,), {"predecessors": True}),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("directed", [False, True], ids=["edges", "arcs both ways"])
@pytest.mark.parametrize("case", OPERATIONS)
def test_memory_is_what_a_run_takes_or_somewhat_more(case: str, directed: bool) -> None:
    operation, arguments, options = OPERATIONS[case]
    operation(mesh(3, directed=directed), *(0 for _ in arguments), **options)  # compiles
    graph = mesh(200, directed=directed)
    planned = operation.plan(graph, *arguments, **options)
    held = sum(array.nbytes for array in graph.arrays.values())
    tracemalloc.start()
    result = operation(graph, *arguments, **options)
    peak = tracemalloc.get_traced_memory()[1] + held
    tracemalloc.stop()
    bytes_of_result = sum(v.nbytes for v in result.data_vars.values())
    assert peak / 3 < planned.memory_client - CLIENT_BYTES
    assert planned.memory_client - CLIENT_BYTES + held > peak
    assert planned.bytes_written == pytest.approx(bytes_of_result, rel=0.01)


@pytest.fixture
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of few arcs, whose parts are joined else, stay in parts."""
    monkeypatch.setattr(graph_module, "JOINED_ARCS", 0)


@pytest.mark.usefixtures("_in_parts")
def test_every_operation_on_a_graph_is_planned() -> None:
    graph = mesh(20, parts=4)
    operations = [thing for thing in map(og.__getattr__, og.__all__) if hasattr(thing, "estimates")]
    for operation in operations:
        if not operation.estimates[1] or operation is og.all_pairs:
            continue
        planned = operation.plan(graph)
        assert planned.operation == operation.__name__
        assert planned.tiles == 4
        assert "400 vertices and 1520 arcs" in str(planned)
        assert "4 parts" in str(planned)
    assert og.all_pairs.plan(graph).shape == (400, 400)


@pytest.mark.usefixtures("_in_parts")
def test_parts_are_tasks_and_a_graph_in_one_part_is_one() -> None:
    graph = mesh(20, parts=4)
    assert og.minimum_spanning_forest.plan(graph).tasks == 2 * 4 + 2 + 1  # the root merges all
    assert og.minimum_spanning_forest.plan(mesh(20)).tasks == 1
    many = mesh(20, parts=40)
    one, two, none = (og.minimum_spanning_forest.plan(many, workers=n) for n in (1, 2, 0))
    assert one.tasks == 2 * (20 + 10 + 5 + 3 + 2 + 1) + 1
    assert two.tasks == none.tasks == one.tasks + 2 * 40
    assert og.shortest_paths.plan(graph, sources=list(range(9))).tasks == 2 * 4
    assert og.shortest_paths.plan(mesh(20), sources=list(range(9))).tasks == 1
    assert og.hop_distance.plan(graph).tasks == 2 * 4


@pytest.mark.parametrize("option", [{"nodata": 0}, {"band": 1}, {"variable": "z"}])
def test_options_of_rasters_are_refused_for_a_graph(option: dict[str, Any]) -> None:
    graph = mesh(3)
    for call in (og.hop_distance.plan, og.connected_components.plan):
        with pytest.raises(og.InputError, match=rf"{next(iter(option))}: of no use for a graph"):
            call(graph, **option)
