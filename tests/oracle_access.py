"""Access by plain loops: a Dijkstra in Python for each facility, and fractions for people."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import oracle_distance as oracle

UNIT = Fraction(1, 2**20)
Reach = list[tuple[float, int]]
"""Cost and number of each cell within reach, the nearest first."""


def reaches(
    steps: Sequence[oracle.Steps], facilities: Sequence[Sequence[int]], most: float
) -> list[Reach]:
    """The cells within reach of each facility, which stands in some cells."""
    edges: dict[int, list[tuple[int, float]]] = {}
    for some in steps:
        for tail, head, weight in zip(some.tail, some.head, some.weight, strict=True):
            edges.setdefault(int(tail), []).append((int(head), float(weight)))
    return [_dijkstra(edges, cells, most) for cells in facilities]


def _dijkstra(
    edges: dict[int, list[tuple[int, float]]], cells: Sequence[int], most: float
) -> Reach:
    known: dict[int, float] = {}
    queue = [(0.0, int(cell)) for cell in cells]
    heapq.heapify(queue)
    while queue:
        cost, cell = heapq.heappop(queue)
        if cell in known:
            continue
        known[cell] = cost
        for other, weight in edges.get(cell, ()):
            if other not in known and cost + weight <= most:
                heapq.heappush(queue, (cost + weight, other))
    return sorted((cost, cell) for cell, cost in known.items())


def people(values: np.ndarray, nodata: float | None) -> dict[int, Fraction]:
    """The people in each cell; none where there is no data."""
    found = {}
    for cell, value in enumerate(values.ravel().tolist()):
        there = np.isfinite(value) and value != nodata
        found[cell] = round(Fraction(value) / UNIT) * UNIT if there else Fraction(0)
    return found


def serve(
    found: Sequence[Reach],
    people: dict[int, Fraction],
    capacities: Sequence[float],
    order: Sequence[int],
) -> tuple[dict[int, int], dict[int, Fraction], dict[int, tuple[Fraction, float]]]:
    """Who serves each cell first, who is left, and people and farthest cost of each facility."""
    first: dict[int, int] = {}
    left = dict(people)
    served = {}
    for number in order:
        infinite = np.isinf(capacities[number])
        room = None if infinite else round(Fraction(capacities[number]) / UNIT) * UNIT
        total, farthest = Fraction(0), np.nan
        for cost, cell in found[number]:
            if room is not None and total == room:
                break
            taken = left[cell] if room is None else min(left[cell], room - total)
            first.setdefault(cell, number)
            left[cell] -= taken
            total += taken
            farthest = cost if taken else farthest
        served[number] = total, farthest
    return first, left, served


def cover(
    found: Sequence[Reach], people: dict[int, Fraction], count: int
) -> tuple[list[tuple[int, Fraction]], dict[int, int], dict[int, Fraction]]:
    """Greedy sites and what each gains, which site covers each cell first, and who is left."""
    left, first = dict(people), {}
    chosen: list[tuple[int, Fraction]] = []
    while len(chosen) < count:
        gains = [
            Fraction(-1) if n in dict(chosen) else sum((left[c] for _, c in cells), Fraction(0))
            for n, cells in enumerate(found)
        ]
        best = gains.index(max(gains))
        if gains[best] <= 0:
            break
        chosen.append((best, gains[best]))
        for _, cell in found[best]:
            first.setdefault(cell, best)
            left[cell] = Fraction(0)
    return chosen, first, left


def float_supply(
    found: Sequence[Reach], people: dict[int, Fraction], supply: Sequence[float]
) -> tuple[list[float], dict[int, float]]:
    """Supply by people within reach of each facility, and its sum over those of each cell."""
    ratios, access = [], dict.fromkeys(people, 0.0)
    for cells, own in zip(found, supply, strict=True):
        demand = sum((people[cell] for _, cell in cells), Fraction(0))
        ratios.append(own / float(demand) if demand else np.nan)
        for _, cell in cells if demand else ():
            access[cell] += ratios[-1]
    return ratios, access
