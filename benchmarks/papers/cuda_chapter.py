"""A chapter on CUDA graph algorithms: breadth-first search, connectivity and shortest paths.

Roads of New York are his where the file of the 9th DIMACS challenge is at hand, else generated like
those of Northwest: planar, connected, with the counts of the table. The two small graphs, whose
edges are not printed, are drawn at random with their counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import orograph as og
from papers.graphs import NEW_YORK, roads
from papers.rows import NEEDS_GPU, Paper, timed

SIZES = ((6, 20), (9, 16), (264_346, 733_846), (1_207_945, 2_840_208))
PRINTED = {  # milliseconds: Athlon II, GT 520, GT 730
    "3.3": [(5, 62.982, 118), (7, 71.047, 121), (3520, 1380, 341), (10_600, 1930, 1060)],
    "3.4": [(6, 60.455, 116), (7, 61.41, 119), (1810, 833.37, 145), (4640, 1667, 580)],
    "3.5": [(10, 59.724, 121), (12, 64.897, 124), (427_000, 4712, 825), (9_060_000, 42_025, 1060)],
}
NAMES = {"3.3": "breadth-first search", "3.4": "connectivity of two", "3.5": "shortest paths"}
GPUS = "python benchmarks/gpu.py graph --only speed"


def graphs() -> Iterator[tuple[str, og.Graph]]:
    """Yield the graphs, with what they are."""
    for n, arcs in SIZES[:2]:
        yield "drawn at random with its counts", drawn(n, arcs // 2)
    n, arcs = SIZES[2]
    if NEW_YORK.is_file():
        yield "New York, the DIMACS file", og.read_graph(NEW_YORK)
    else:
        yield "generated with New York's counts", generated(n, arcs // 2)
    n, arcs = SIZES[3]
    yield "generated with Northwest's counts: planar, connected", generated(n, arcs // 2)


def drawn(n: int, edges: int) -> og.Graph:
    """Return a path and random edges besides."""
    rng = np.random.default_rng(0)
    ends = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    ends = np.concatenate([ends, rng.integers(0, n, (max(edges - n + 1, 0), 2))])[:edges]
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1]})
    return og.read_graph(table.assign(weight=rng.integers(1, 10, len(ends))), directed=False)


def generated(n: int, edges: int) -> og.Graph:
    """Return a graph like a network of roads."""
    place, ends, weight = roads(n, edges)
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1], "weight": weight})
    return og.read_graph(table, directed=False, coordinates=place)


def repeat(paper: Paper) -> None:
    """Repeat the tables."""
    with og.config.set(threads=1, progress=False):
        for place, (note, graph) in enumerate(graphs()):
            first, last = graph.ids[[0, -1]].tolist()
            calls: dict[str, Callable[[], Any]] = {
                "3.3": lambda graph=graph, first=first: og.hop_distance(graph, first),
                "3.4": lambda graph=graph, first=first, last=last: og.is_connected(
                    graph, first, last
                ),
                "3.5": lambda graph=graph, first=first: og.shortest_paths(graph, first),
            }
            for table, call in calls.items():
                rows(paper, table, call, place, note)


def rows(paper: Paper, table: str, call: Callable[[], Any], place: int, note: str) -> None:
    """Measure one operation on one graph."""
    n, arcs = SIZES[place]
    cpu, older, newer = PRINTED[table][place]
    what = f"{NAMES[table]}, {n} vertices, {arcs} arcs"
    paper.add(
        table,
        what,
        timed(call, 7),
        size=n,
        unit="ms",
        printed=cpu,
        by="Athlon II x4 630",
        note=note,
    )
    for gpu, printed in (("GT 520", older), ("GT 730", newer)):
        paper.absent(
            table,
            f"{what}, GPU",
            size=n,
            unit="ms",
            printed=printed,
            by=gpu,
            why=NEEDS_GPU,
            command=GPUS,
        )
