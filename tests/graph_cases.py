"""Graphs of random edges with weights of each kind, and costs before a search."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracle_graph import random_edges

from orograph.kernels.graph.spread import unreached
from orograph.tiles.graph.graph import Graph, make_graph

KINDS: dict[str, dict[str, bool]] = {
    "int32": {},
    "int64": {},
    "float64": {"floats": True},
    "negative": {"negative": True},
}


def graph_of(kind: str, seed: int, n: int = 60, m: int = 300, directed: bool = True) -> Graph:
    tail, head, weight = random_edges(seed, n, m, **KINDS[kind])
    weight = weight * 2**40 if kind == "int64" else weight
    return make_graph(tail, head, weight, np.arange(n), directed=directed)


def cost_from(graph: Graph, start: int) -> Any:
    dtype = np.dtype(np.float64 if graph.rows.weight.dtype.kind == "f" else np.int64)
    cost = np.full(graph.vertex_count, unreached(dtype))
    cost[start] = 0
    return cost
