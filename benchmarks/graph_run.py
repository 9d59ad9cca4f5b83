"""Operations on a graph in memory, on one core, beside SciPy's in the same run.

    python benchmarks/graph_run.py USA-road-d.NY.gr.xz --repeat 7
    python benchmarks/graph_run.py --side 1536 --parts 16

Runs are interleaved; figures are medians of the processor's time in milliseconds and the ratio of
the medians. Both have the graph in memory, and the kernels are compiled.

- Ours is the whole public call: arguments are checked, vertices are looked up by their ids, the
  result is put into the order of the source and becomes a dataset.
- SciPy's is the call alone, on a matrix that is ready for it: CSR with weights of float64 and
  indices of int32, without parallel edges, so that nothing is converted. Its result is an array in
  the order of the matrix. For hops its breadth-first search returns the order and the predecessors
  of vertices, from which the counts would have to be made; ``dijkstra(unweighted=True)`` returns
  counts, as ours.

The signed weights are those of a random graph of 4000 vertices with 8 edges into each, made of
potentials.

With ``--side`` the graph is a square mesh with random weights from 1 to 99, and the peer is
orograph on the same mesh in one part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from forest_kernel import time_interleaved
from record import Record, add_option
from scipy import sparse
from scipy.sparse import csgraph

import orograph as og
from orograph.tiles.graph.graph import make_graph


def least_matrix(n: int, tail: Any, head: Any, weight: Any) -> Any:
    """Return a sparse matrix with the least weight of parallel edges."""
    order = np.lexsort((weight, head, tail))
    key = tail[order] * n + head[order]
    kept = order[np.append(True, key[1:] != key[:-1])]
    ends = tail[kept].astype(np.int32), head[kept].astype(np.int32)
    matrix = sparse.csr_array((weight[kept].astype(np.float64), ends), shape=(n, n))
    assert (matrix.indices.dtype, matrix.indptr.dtype) == (np.int32, np.int32)
    return matrix


def mesh(side: int, parts: int) -> og.Graph:
    """Return a square mesh with random weights, cut into parts."""
    cells = np.arange(side * side).reshape(side, side)
    tail = np.append(cells[:, :-1], cells[:-1])
    head = np.append(cells[:, 1:], cells[1:])
    weight = np.random.default_rng(0).integers(1, 100, tail.size)
    y, x = np.divmod(cells.ravel().astype(np.float64), side)
    return make_graph(
        *(tail, head, weight, cells.ravel()), directed=False, coordinates=(x, y), parts=parts
    )


def compare_parts(side: int, parts: int, repeat: int, record: Record) -> None:
    """Print a line for each operation on a mesh in several parts and in one."""
    one, cut = mesh(side, 1), mesh(side, parts)
    middle = side * side // 2 + side // 2
    operations: dict[str, Callable[[og.Graph], Any]] = {
        "forest": og.minimum_spanning_forest,
        "components": og.connected_components,
        "shortest paths": lambda graph: og.shortest_paths(graph, middle),
        "with predecessors": lambda graph: og.shortest_paths(graph, middle, predecessors=True),
        "hops": lambda graph: og.hop_distance(graph, middle),
    }
    print(f"{cut}, {cut.arc_count} arcs\n{'':20} {'parts ms':>9} {'one ms':>9} parts / one")
    for name, operation in operations.items():
        calls = {f"{parts} parts": partial(operation, cut), "one part": partial(operation, one)}
        seconds = time_interleaved(calls, repeat)
        for who, spent in seconds.items():
            record.add(name, who, "ms", [1e3 * each for each in spent], peer=who == "one part")
        here, there = (1e3 * median for median, _, _ in seconds.values())
        print(f"{name:20} {here:9.1f} {there:9.1f} {here / there:6.2f}")


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
    parser.add_argument("graph", nargs="?", help=".gr file, edges both ways")
    parser.add_argument("--side", type=int, help="vertices a side of a mesh, in place of a file")
    parser.add_argument("--parts", type=int, default=16, help="parts of the mesh")
    parser.add_argument("--repeat", type=int, default=7)
    add_option(parser)
    options = parser.parse_args()
    record = Record(options.record)
    if options.side:
        compare_parts(options.side, options.parts, options.repeat, record)
        return record.write()
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
        "hops, peer: counts too",
        lambda: og.hop_distance(graph, first),
        lambda: csgraph.dijkstra(matrix, indices=0, unweighted=True),
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
        lambda: og.is_connected(graph, s, t),
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
