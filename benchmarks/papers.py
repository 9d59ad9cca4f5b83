"""The graphs of four papers, as far as they can be generated or are at hand, beside their figures.

    python benchmarks/papers.py --roads USA-road-d.NY.gr.xz --scale 16

Seconds are medians on one core, graph in memory; *printed* is what the paper says of its own
machine for its graph of that kind, so it stands beside ours for the order of magnitude alone. The
papers: a chapter on CUDA graph algorithms (New York's roads, GT 520 and GT 730); Hellås, Bergen
2018 (Delaunay, random geometric and Kronecker graphs of 2**scale vertices here, up to 2**24 there);
Malison, Reed 2012 (Bellman-Ford on random graphs of in-degree 8); Tricella 2023 (all pairs).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from graph_run import signed_graph
from scipy.spatial import Delaunay, cKDTree

import orograph as og


def delaunay(n: int) -> tuple[Any, Any]:
    """Return random points in the unit square and the edges of their triangulation."""
    points = np.random.default_rng(0).random((n, 2))
    corners = Delaunay(points).simplices
    ends = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    return points, np.unique(np.sort(ends, axis=1), axis=0)


def geometric(n: int) -> tuple[Any, Any]:
    """Return random points and the pairs nearer than 0.55 sqrt(ln n / n), as rgg_n_2."""
    points = np.random.default_rng(0).random((n, 2))
    near = 0.55 * np.sqrt(np.log(n) / n)
    return points, cKDTree(points).query_pairs(near, output_type="ndarray")


def kronecker(n: int) -> tuple[None, Any]:
    """Return 16 n edges between n vertices (a power of two), drawn as by Graph500."""
    rng = np.random.default_rng(0)
    ends = np.zeros((16 * n, 2), np.int64)
    for _ in range(n.bit_length() - 1):
        quarter = np.searchsorted([0.57, 0.76, 0.95], rng.random(16 * n))
        ends = 2 * ends + np.stack([quarter >> 1, quarter & 1], axis=1)
    return None, ends


def graph_of(points: Any, ends: Any) -> og.Graph:
    """Return the undirected graph of some edges."""
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    ids = np.unique(ends)
    where = None if points is None else points[ids]
    return og.read_graph(table, directed=False, coordinates=where)


def seconds(call: Callable[[], Any], repeat: int = 5) -> float:
    """Return the median time of a call, after a rehearsal."""
    spent = []
    for turn in range(repeat + 1):
        start = time.perf_counter()
        call()
        if turn:
            spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def line(graph: str, operation: str, call: Callable[[], Any], printed: str) -> None:
    """Print one line."""
    print(f"{graph:24} {operation:24} {seconds(call):9.4f} s   {printed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roads", help=".gr file of New York's roads")
    parser.add_argument("--scale", type=int, default=16)
    options = parser.parse_args()
    if options.roads:
        roads = og.read_graph(options.roads)
        first, last = roads.ids[[0, -1]].tolist()
        name = f"roads, {roads.vertex_count}"
        line(name, "hops", lambda: og.hop_distance(roads, first), "1.38 s, 0.341 s")
        line(name, "one pair", lambda: og.st_connected(roads, first, last), "0.833 s, 0.145 s")
        line(name, "shortest paths", lambda: og.shortest_paths(roads, first), "4.712 s, 0.825 s")
    for kind in (delaunay, geometric, kronecker):
        graph = graph_of(*kind(2**options.scale))
        name = f"{kind.__name__}, {graph.vertex_count}"
        for method in ("rem", "hook-atomic", "hook-non-atomic", "compress"):
            line(
                name,
                f"components, {method}",
                lambda graph=graph, method=method: og.connected_components(graph, method=method),
                "chapter 6, for its devices",
            )
        line(name, "forest", lambda graph=graph: og.minimum_spanning_forest(graph), "")
    for n in (1000, 4000):
        _, signed = signed_graph(n)
        for strategy in ("active", "output", "input"):
            line(
                f"in-degree 8, {n}",
                f"Bellman-Ford, {strategy}",
                lambda signed=signed, strategy=strategy: og.shortest_paths(
                    signed, 0, strategy=strategy
                ),
                "figures 6.2 and 6.3",
            )
    rng = np.random.default_rng(0)
    for n in (256, 1024, 2048):
        lengths = np.where(rng.random((n, n)) < 0.1, rng.integers(1, 100, (n, n)), 0)
        line(
            f"dense tenth, {n}",
            "all pairs",
            lambda lengths=lengths: og.all_pairs(lengths),
            "section 4.1, up to 1024",
        )


if __name__ == "__main__":
    main()
