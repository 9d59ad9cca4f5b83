"""What benchmarks generate and foretell is what they say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "docs/extensions"))

import coordination
import reproduced
import scaling
from papers import graphs
from papers.rows import ONE_CORE, Paper, Spent


def graph_of(ends: Any) -> nx.Graph:
    return nx.Graph(list(map(tuple, np.asarray(ends).tolist())))


def test_roads_are_planar_and_connected_with_the_counts_asked_for() -> None:
    n, edges = 400, 470
    _, ends, weight = graphs.roads(n, edges)
    graph = graph_of(ends)
    assert (len(graph), graph.number_of_edges()) == (n, edges)
    assert nx.is_connected(graph)
    assert nx.check_planarity(graph)[0]
    place = graphs.points(n)
    whole = nx.Graph()
    for one, other in graphs.delaunay(n).tolist():
        whole.add_edge(one, other, weight=float(np.hypot(*(place[one] - place[other]))))
    tree = {frozenset(edge) for edge in nx.minimum_spanning_tree(whole).edges}
    assert tree <= {frozenset(edge) for edge in graph.edges}
    assert weight.min() >= 1


def test_a_mesh_joins_all_neighbours_of_a_cube() -> None:
    cells = np.array(list(np.ndindex(4, 4, 4)))
    apart = np.abs(cells[:, None] - cells[None]).max(axis=2)
    expected = {frozenset(pair) for pair in np.argwhere(apart == 1).tolist()}
    ends = graphs.mesh(64)
    assert len(ends) == len(expected)
    assert {frozenset(pair) for pair in ends.tolist()} == expected


def test_bubbles_have_three_edges_a_vertex_inside() -> None:
    graph = graph_of(graphs.bubbles(400))
    degrees = sorted(degree for _, degree in graph.degree)
    assert degrees[-1] == 3
    assert np.mean(degrees) > 2.7
    assert nx.is_connected(graph)
    assert nx.check_planarity(graph)[0]


def test_geometric_graphs_join_what_is_near() -> None:
    n = 200
    place = graphs.points(n)
    apart = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
    near = np.argwhere(np.triu(apart <= 0.55 * np.sqrt(np.log(n) / n), 1))
    assert {tuple(pair) for pair in graphs.geometric(n).tolist()} == set(map(tuple, near.tolist()))


def test_copies_are_apart() -> None:
    ends = graphs.bubbles(100)
    components = list(nx.connected_components(graph_of(graphs.copies(ends, 3))))
    assert len(components) == 3
    assert len({len(component) for component in components}) == 1


def test_a_row_compares_processors_on_one_core_and_clocks_on_several(tmp_path: Path) -> None:
    paper = Paper("gerritsen", full=False, folder=tmp_path)
    spent = Spent([4.0, 6.0, 5.0], [2.0, 1.0, 3.0])
    paper.add("1", "alone", spent, who=ONE_CORE, printed=10)
    paper.add("1", "together", spent, who="two workers", unit="ms", printed=10_000)
    paper.absent("1", "elsewhere", printed=3, why="no GPU")
    alone, together, elsewhere = paper.rows
    assert [alone[key] for key in ("median", "worst", "best", "clock", "cpu", "ratio")] == [
        "2", "3", "1", "5", "2", "5"
    ]  # fmt: skip
    assert (together["median"], together["cpu"], together["ratio"]) == ("5000", "2000", "2")
    assert (elsewhere["median"], elsewhere["note"]) == ("", "no GPU")
    assert elsewhere["command"].endswith("gerritsen --full")


@pytest.mark.parametrize("name", ["gerritsen", "malison", "cuda_chapter", "tricella", "hellas"])
def test_printed_figures_are_shown_with_all_their_digits(name: str) -> None:
    rows = reproduced.read(f"papers_{name}")
    lines = reproduced.body(rows)
    assert len(lines) == len(rows)
    for row, (_, _, printed, ours, *_) in zip(rows, lines, strict=True):
        assert row["printed"].replace(",", "") in printed.replace(",", "")
        assert bool(ours) == bool(row["median"])


def runs_of(operation: str, cell: float, aside: float, once: float) -> list[dict[str, str]]:
    """Runs that take what a model with these coefficients says."""
    rows = []
    for side in (4096, 8192, 12_288, 16_384, 24_576, 32_768):
        spent = once + cell * side**2 + aside * scaling.put_aside(operation, side**2, 2)
        row = {"side": side, "workers": 2, "workers_cpu": spent, "clock": spent, "load": 0}
        tasks = json.dumps({"x-tiles": 1.0, "x-merge": 0.5, "x-root": 0.1})
        row |= {"bytes_in": 4 * side**2, "bytes_out": side**2, "task_seconds": tasks}
        rows.append({key: str(value) for key, value in row.items()})
    return rows


@pytest.mark.parametrize(
    ("operation", "aside"), [("forest", 0.0), ("distance", 3e-8)], ids=["sweep", "distance"]
)
def test_the_model_finds_what_the_runs_were_made_of(operation: str, aside: float) -> None:
    runs = runs_of(operation, 2e-8, aside, 0.4)
    fitted, others = scaling.halves(runs)
    assert len(fitted) == len(others) == 3
    assert {run["side"] for run in fitted}.isdisjoint({run["side"] for run in others})
    model = scaling.fit(operation, fitted)
    found = (model.cell, model.aside, model.run, model.read, model.written)
    assert np.allclose(found, (2e-8, aside, 0.4, 4, 1), rtol=1e-6)
    told = list(scaling.errors(model, fitted, others))
    assert [abs(int(row["error, %"])) for row in told] == [0] * 6
    # one wrong coefficient is told as an error
    off = scaling.fit(operation, [run | {"workers_cpu": "1"} for run in fitted])
    assert any(abs(int(row["error, %"])) > 20 for row in scaling.errors(off, fitted, others))


def test_more_workers_are_no_slower_until_tasks_become_smaller() -> None:
    model = scaling.fit("filling", scaling.halves(runs_of("filling", 2e-8, 0, 0.4))[0])
    one, first = model.seconds(1e12, 1, 20e9)
    many, _ = model.seconds(1e12, 16, 20e9)
    assert first == "workers"
    assert one / 16 <= many < one
    assert model.seconds(1e12, 100_000, 20e9)[1] == "scheduler"


@pytest.mark.parametrize("source", coordination.SOURCES)
def test_simulated_workers_settle_and_write_all_tiles(source: str) -> None:
    costs = coordination.Costs(visits=0.25, write=0.15, read=0.05, client=6e-4, scheduler=1e-3)
    surface = coordination.Surface(8, source, 1.5)
    workers = coordination.Workers(3, surface, costs, budget=60)
    said = coordination.simulate(8, workers)
    assert said.startswith("     64 tiles,    3 workers: efficiency 0.")
    assert "given up" not in said
    assert workers.count_of("", 0) == 64
