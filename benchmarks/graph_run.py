"""Operations on a graph in memory, on one core, beside SciPy's in the same run.

    python benchmarks/graph_run.py USA-road-d.NY.gr.xz --repeat 7

Runs are interleaved; figures are medians of the processor's time in milliseconds and the ratio of
the medians. Both have the graph in memory, and the kernels are compiled. SciPy's graph has no
parallel edges. The signed weights are those of a random graph of 4000 vertices with 8 edges into
each, made of potentials.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from forest_kernel import time_interleaved
from record import Record, add_option
from scipy import sparse
from scipy.sparse import csgraph

import orograph as og


def least_matrix(n: int, tail: Any, head: Any, weight: Any) -> Any:
    """Return a sparse matrix with the least weight of parallel edges."""
    order = np.lexsort((weight, head, tail))
    key = tail[order] * n + head[order]
    kept = order[np.append(True, key[1:] != key[:-1])]
    ends = tail[kept], head[kept]
    return sparse.csr_array((weight[kept].astype(np.float64), ends), shape=(n, n))


def signed_graph(n: int = 4000, degree: int = 8) -> tuple[Any, Any]:
    """Return a graph with negative weights and no negative cycle, for SciPy and for us."""
    rng = np.random.default_rng(1)
    head, tail = np.repeat(np.arange(n), degree), rng.integers(0, n, n * degree)
    potential = rng.integers(0, 1000, n)
    weight = rng.integers(1, 100, n * degree) + potential[head] - potential[tail]
    matrix = least_matrix(n, tail, head, weight)
    return matrix, og.read_graph(matrix.astype(np.int64).tocoo(), directed=True)


def compare(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any], repeat: int, record: Record
) -> None:
    """Print one line."""
    seconds = time_interleaved({"orograph": ours, "SciPy": theirs}, repeat)
    for who, spent in seconds.items():
        record.add(name, who, "ms", [1e3 * each for each in spent], peer=who == "SciPy")
    here, there = (1e3 * median for median, _, _ in seconds.values())
    print(f"{name:28} {here:9.2f} {there:9.2f} {there / here:6.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", help=".gr file, edges both ways")
    parser.add_argument("--repeat", type=int, default=7)
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    graph = og.read_graph(options.graph)
    n, rows = graph.vertex_count, graph.rows
    place = graph.position[graph.tails], graph.position[rows.indices]
    matrix = least_matrix(n, *place, rows.weight)
    first = graph.ids[0].item()
    pairs = np.random.default_rng(1).integers(0, n, (20, 2))
    s, t = graph.ids[pairs].T
    signed, ours = signed_graph()
    print(f"{graph}\n{'':28} {'ours ms':>9} {'SciPy ms':>9}")
    repeat = options.repeat
    compare(
        "shortest paths",
        lambda: og.shortest_paths(graph, first),
        lambda: csgraph.dijkstra(matrix, indices=0),
        repeat,
        record,
    )
    compare(
        "hops",
        lambda: og.hop_distance(graph, first),
        lambda: csgraph.breadth_first_order(matrix, 0),
        repeat,
        record,
    )
    compare(
        "components",
        lambda: og.connected_components(graph),
        lambda: csgraph.connected_components(matrix, directed=False),
        repeat,
        record,
    )
    compare(
        "forest",
        lambda: og.minimum_spanning_forest(graph),
        lambda: csgraph.minimum_spanning_tree(matrix),
        repeat,
        record,
    )
    compare(
        "20 pairs, peer: 20 searches",
        lambda: og.st_connected(graph, s, t),
        lambda: [csgraph.breadth_first_order(matrix, start) for start in pairs[:, 0]],
        repeat,
        record,
    )
    compare(
        "Bellman-Ford, signed",
        lambda: og.shortest_paths(ours, 0),
        lambda: csgraph.bellman_ford(signed, indices=0),
        repeat,
        record,
    )
    record.write()


if __name__ == "__main__":
    main()
