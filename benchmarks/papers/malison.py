"""Malison, Graph algorithms on graphical processing units: the shortest path problem (Reed 2012).

His figures are plots whose values the text does not name; what it says of them stands as printed.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from graph_run import signed_graph

import orograph as og
from orograph.kernels.graph.spread import unreached
from papers.bellman_ford import bellman_ford
from papers.rows import NEEDS_GPU, NEEDS_TIME, Paper, timed

MINPLUS = "python benchmarks/gpu.py minplus --only speed"
GRAPHS = "python benchmarks/gpu.py graph --only speed"


def dense(n: int) -> np.ndarray:
    """Return lengths from 0 to 400 between all vertices."""
    lengths = np.random.default_rng(0).uniform(0, 400, (n, n)).astype(np.float32)
    np.fill_diagonal(lengths, 0)
    return lengths


def quarter(n: int) -> np.ndarray:
    """Return lengths of n / 4 edges from each vertex."""
    rng = np.random.default_rng(0)
    lengths = np.full((n, n), np.inf, np.float32)
    columns = np.argpartition(rng.random((n, n), np.float32), n // 4, axis=1)[:, : n // 4]
    drawn = rng.uniform(0, 400, columns.shape).astype(np.float32)
    np.put_along_axis(lengths, columns, drawn, axis=1)
    np.fill_diagonal(lengths, 0)
    return lengths


def repeat(paper: Paper) -> None:
    """Repeat the figures."""
    with og.config.set(threads=1, progress=False):
        all_pairs(paper)
        one_source(paper)


def all_pairs(paper: Paper) -> None:
    """Repeat figure 6.1: all pairs by min-plus products, against the number of vertices."""
    sizes = (256, 512, 1024, 2048, 4096) if paper.full else (256, 512, 1024, 2048)
    plot = "a plot, up to about 4096 vertices"
    for n in sizes:
        turns = 3 if n < 2048 else 1
        for what, lengths in (("every edge", dense(n)), ("n/4 edges a vertex", quarter(n))):
            for method in ("squaring", "floyd-warshall"):
                spent = timed(
                    lambda lengths=lengths, method=method: og.all_pairs(
                        lengths, dtype="float32", no_edge=np.inf, method=method
                    ),
                    turns,
                )
                paper.add(
                    "figure 6.1", f"{what}, {method}", spent, size=n, printed=plot, by="AMD 6490M"
                )
        spent = timed(
            lambda n=n: og.all_pairs(dense(n), dtype="float32", no_edge=np.inf, predecessors=True),
            turns,
        )
        paper.add(
            "figure 6.1",
            "every edge, floyd-warshall, predecessors",
            spent,
            size=n,
            printed="described, not measured",
            by="AMD 6490M",
        )
    if not paper.full:
        paper.absent(
            "figure 6.1",
            "every edge, squaring",
            size=4096,
            printed=plot,
            by="AMD 6490M",
            why=NEEDS_TIME,
        )
    paper.absent(
        "figure 6.1",
        "every edge, on a GPU",
        printed=plot,
        by="AMD 6490M",
        why=NEEDS_GPU,
        command=MINPLUS,
    )


def costs_by(strategy: str, graph: og.Graph) -> np.ndarray:
    """Return the cost of each vertex from the first, by arcs that enter or as orograph does."""
    if strategy == "active":
        return og.shortest_paths(graph, 0)["cost"].values[0]
    cost = np.full(graph.vertex_count, unreached(np.dtype(np.int64)))
    cost[graph.stored[0]] = 0
    bellman_ford(graph.incoming, cost, strategy)
    return cost[graph.stored]


def one_source(paper: Paper) -> None:
    """Repeat figures 6.2 and 6.3: Bellman-Ford by output and by input, on random graphs."""
    sizes = (1000, 4000, 16_000, 64_000, 256_000)
    said = {
        "output": "a plot",
        "input": "described, not finished",
        "active": "the refinement of input: described, not finished",
    }
    for degree in (8, 32):
        for n in sizes if degree == 8 else sizes[:4]:
            _, graph = signed_graph(n, degree)
            for strategy, words in said.items():
                spent = timed(partial(costs_by, strategy, graph), 5 if n < 64_000 else 2)
                paper.add(
                    "figure 6.3",
                    f"{strategy}, in-degree {degree}",
                    spent,
                    size=n,
                    printed=words,
                    by="AMD 6490M",
                    note="ends early; some weights negative"
                    + "; the whole call" * (strategy == "active"),
                )
    paper.absent(
        "figure 6.2",
        "output, all |V| - 1 rounds",
        printed="a plot",
        by="AMD 6490M",
        why="orograph has no way to go on after the round that changes nothing",
        command="none",
    )
    paper.absent(
        "figures 6.2 and 6.3",
        "the same on a GPU",
        printed="a plot",
        by="AMD 6490M",
        why=NEEDS_GPU,
        command=GRAPHS,
    )
    paper.absent(
        "§4",
        "prefix sums",
        printed="described, not measured",
        by="AMD 6490M",
        why="a step inside the search with negative weights on GPUs, not an operation",
        command=GRAPHS,
    )
