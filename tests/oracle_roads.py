"""Least costs over ground and roads by Dijkstra's algorithm on one graph of both.

It cuts lines by exact fractions, a segment at a time, and keeps every node and every vertex, also
those at which no one gets on or off. Slow, and it knows nothing of tiles.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np

Point = tuple[float, float]


@dataclass(frozen=True)
class Road:
    """A line in coordinates of columns and rows, with cell centres at whole numbers."""

    points: tuple[Point, ...]
    speed: float = 36.0
    oneway: int = 0
    access: str = "everywhere"


def segments(a: Point, b: Point) -> Iterator[tuple[tuple[int, int], float, Point]]:
    """The cell, the length and the end of what lies of a segment between borders of cells."""
    (u, v), (p, q) = ([Fraction(n + 0.5) for n in point] for point in (a, b))
    cuts = {Fraction(0), Fraction(1)}
    for begin, end in ((u, p), (v, q)):
        low, high = min(begin, end), max(begin, end)
        for border in range(math.floor(low), math.ceil(high) + 1):
            if low < border < high:
                cuts.add((border - begin) / (end - begin))
    ordered = sorted(cuts)
    for t, to in pairwise(ordered):
        middle = (t + to) / 2
        cell = math.floor(v + middle * (q - v)), math.floor(u + middle * (p - u))
        end = float(u + to * (p - u)) - 0.5, float(v + to * (q - v)) - 0.5
        yield cell, float(to - t) * math.dist(a, b), end


def cut(road: Road, nodes: dict[Point, int], name: int) -> Iterator[tuple[Any, ...]]:
    """Start, end, cells and time of each piece; ports are named by line and number."""
    ports, start, cells, time = 0, ("node", nodes[road.points[0]]), [], 0.0
    where = road.points[0]
    for a, b in pairwise(road.points):
        for cell, length, end in segments(a, b) if a != b else ():
            if cells and cell != cells[-1] and road.access == "everywhere":
                ports += 1
                port = ("port", (name, ports), where)
                yield start[:2], port[:2], cells, time, (where,)
                start, cells, time = port, [], 0.0
            cells.append(cell)
            time += length * 3.6 / road.speed
            where = end
        if b in nodes:
            if cells:
                yield start[:2], ("node", nodes[b]), cells, time, ()
            start, cells, time = ("node", nodes[b]), [], 0.0
        where = b


def union(friction: np.ndarray, roads: Sequence[Road]) -> nx.DiGraph:
    """Cells, vertices of roads in cells, and nodes as one graph."""
    graph = nx.DiGraph()
    height, width = friction.shape

    def add(a: Any, b: Any, weight: float, oneway: int = 0) -> None:
        for tail, head, way in ((a, b, 1), (b, a, -1)):
            if (
                oneway in (0, way)
                and graph.get_edge_data(tail, head, {"weight": math.inf})["weight"] > weight
            ):
                graph.add_edge(tail, head, weight=weight)

    def valid(cell: tuple[int, int]) -> bool:
        inside = 0 <= cell[0] < height and 0 <= cell[1] < width
        return inside and bool(np.isfinite(friction[cell]))

    for cell in np.ndindex(friction.shape):
        for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
            other = cell[0] + dy, cell[1] + dx
            if valid(cell) and valid(other):
                mean = (friction[cell] + friction[other]) / 2
                add(("cell", cell), ("cell", other), mean * math.hypot(dy, dx))

    once = [[p for p, before in zip(r.points, (None, *r.points)) if p != before] for r in roads]
    times = Counter(point for points in once for point in points)
    ends = {road.points[side] for road in roads for side in (0, -1)}
    nodes: dict[Point, int] = {}
    for road in roads:
        for point in road.points:
            if times[point] > 1 or point in ends:
                nodes.setdefault(point, len(nodes))
    sides: Counter[Point] = Counter()
    leave = set()
    for road in roads:
        last = len(road.points) - 1
        for i, point in enumerate(road.points):
            sides[point] += 1 if i in (0, last) else 2
            if road.access == "everywhere" or (road.access == "ends" and i in (0, last)):
                leave.add(point)
    leave |= {point for point in nodes if sides[point] == 1}
    may_leave = {("node", nodes[point]) for point in leave if point in nodes}
    at = {("node", number): point for point, number in nodes.items()}

    pieces = defaultdict(list)
    stretches = []
    for name, road in enumerate(roads):
        for start, end, cells, time, (*port,) in cut(road, nodes, name):
            if port:
                at[end] = port[0]
            if any(not (0 <= y < height and 0 <= x < width) for y, x in cells):
                continue
            short = len(set(cells)) == 1 and start in may_leave and end in may_leave
            if road.access == "everywhere" or short:
                pieces[cells[0]].append((start, end, time, road.oneway))
            else:
                stretches.append((start, end, time, road.oneway))
    met = defaultdict(list)  # by point: vertex, distance, whether one arrives there, and leaves
    for cell, within in pieces.items():
        inside = nx.MultiGraph()
        for start, end, time, _ in within:
            inside.add_edge(start, end, weight=time)
        for group in nx.connected_components(inside):
            points = {name: np.add(at[name], 0.5) for name in group}
            middle = np.mean(list(points.values()), axis=0)
            known = [name for name in group if name[0] == "node"]
            vertex = "vertex", cell, min(group)
            if known:
                chosen = min(
                    known,
                    key=lambda n: (
                        -inside.degree(n),
                        round(((points[n] - middle) ** 2).sum(), 9),
                        n[1],
                    ),
                )
                away = nx.single_source_dijkstra_path_length(inside, chosen)
            else:
                ((*both, time),) = inside.edges(group, data="weight")
                away = dict.fromkeys(both, time / 2)
            graph.add_node(vertex)
            if valid(cell):
                add(("cell", cell), vertex, 0.0)
            for name in group:
                arrives = any(
                    (end == name and way >= 0) or (start == name and way <= 0)
                    for start, end, _, way in within
                )
                leaves = any(
                    (start == name and way >= 0) or (end == name and way <= 0)
                    for start, end, _, way in within
                )
                met[name].append((cell, vertex, away[name], arrives, leaves))
    for there in met.values():
        for cell, vertex, distance, arrives, _ in there:
            for other, further, rest, _, leaves in there:
                if cell != other and arrives and leaves:
                    add(vertex, further, distance + rest, 1)
    for start, end, time, oneway in stretches:
        add(start, end, time, oneway)
        for name in {start, end} & may_leave:
            for _, vertex, distance, _, _ in met.get(name, ()):
                add(name, vertex, distance)
            cell = math.floor(at[name][1] + 0.5), math.floor(at[name][0] + 0.5)
            if name not in met and valid(cell):
                add(name, ("cell", cell), 0.0)
    return graph


def costs(graph: nx.DiGraph, shape: tuple[int, int], source: tuple[int, int]) -> np.ndarray:
    """The least cost from a cell to each cell; NaN where there is none."""
    found = np.full(shape, np.nan)
    graph.add_node(("cell", source))
    for name, cost in nx.single_source_dijkstra_path_length(graph, ("cell", source)).items():
        if name[0] == "cell":
            found[name[1]] = cost
    return found
