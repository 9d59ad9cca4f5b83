"""An independent answer to "what does it cost to get here from the nearest source?".

Written from the contract alone, with NumPy and SciPy. Every step from a cell to a neighbour is an
edge of an explicit directed graph, and SciPy's Dijkstra does the rest:

- one more vertex stands before all sources, its edges have their initial costs;
- an edge is *tight* if the cost of its tail plus its own is the cost of its head, to the bit. The
  tight edges are the shortest paths; over them a second Dijkstra, whose keys are the ranks of the
  labels and then numbers of steps, says who serves a cell and in how many steps.

`heap_distance` is a Dijkstra in plain Python, in any type, that shares no step with the first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyproj import Geod
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

STEPS = {
    **{1: (0, 1), 2: (1, 1), 3: (1, 0), 4: (1, -1)},
    **{5: (0, -1), 6: (-1, -1), 7: (-1, 0), 8: (-1, 1)},
    **{9: (1, 2), 10: (2, 1), 11: (2, -1), 12: (1, -2)},
    **{13: (-1, -2), 14: (-2, -1), 15: (-2, 1), 16: (-1, 2)},
}
"""(dy, dx) of each code: Esri's 1 east, then clockwise; 9 to 16 the knight's moves, clockwise."""

CODES = {4: (1, 3, 5, 7), 8: tuple(range(1, 9)), 16: tuple(range(1, 17))}
MODELS = ("friction", "absolute_difference", "tobler", "walk")
UNREACHED = 255
WALK = {"a": 0.72, "b": 6.0, "c": 1.9998, "d": -1.9998, "slope_factor": -0.2125, "lambda": 1.0}

Source = tuple[int, int, int, float]
"""Row, column, label, initial cost."""


def back(code: int) -> int:
    """The code of the step the other way."""
    return (code + 3) % 8 + 1 if code < 9 else (code - 9 + 4) % 8 + 9


@dataclass(frozen=True)
class Message:
    """What is to be found."""

    cost: np.ndarray
    allocation: np.ndarray
    hops: np.ndarray
    """Steps back to the source, by the shortest way of the label that serves; -1 if unreached."""


@dataclass(frozen=True)
class Steps:
    """The steps of one code: from ``tail`` to ``head``, row-major indices; ``weight`` of each."""

    code: int
    tail: np.ndarray
    head: np.ndarray
    weight: np.ndarray


def valid_cells(*rasters: np.ndarray | None) -> np.ndarray:
    return np.logical_and.reduce([np.isfinite(r) for r in rasters if r is not None])


def planar(cell_size: tuple[float, float]) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """Lengths of steps on a plane; a length function is called with dy, dx and rows of tails."""
    return lambda dy, dx, row: np.full(row.shape, math.hypot(dy * cell_size[0], dx * cell_size[1]))


def geodesic(
    latitudes: np.ndarray, degrees_east: float
) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """Lengths in metres between the centres of cells on the WGS 84 ellipsoid."""
    geod = Geod(ellps="WGS84")

    def length(dy: int, dx: int, row: np.ndarray) -> np.ndarray:
        per_row = np.full(len(latitudes), np.nan)
        for y in range(max(0, -dy), len(latitudes) - max(0, dy)):
            ends = (0.0, latitudes[y], dx * degrees_east, latitudes[y + dy])
            per_row[y] = geod.inv(*ends)[2]
        return per_row[row]

    return length


def middle_cells(dy: int, dx: int) -> tuple[tuple[int, int], ...]:
    """What a knight's move passes between: GRASS r.cost takes the mean of all four cells."""
    if abs(dy) + abs(dx) < 3:
        return ()
    return ((dy // 2, 0), (dy // 2, dx)) if abs(dy) == 2 else ((0, dx // 2), (dy, dx // 2))


def list_steps(
    friction: np.ndarray | None,
    elevation: np.ndarray | None = None,
    *,
    cost: str = "friction",
    connectivity: int = 8,
    lengths: Callable[[int, int, np.ndarray], np.ndarray] | None = None,
    coefficients: Mapping[str, float] | None = None,
    travel: str = "from",
    dtype: str = "float64",
) -> list[Steps]:
    """Every step between passable cells, in the direction that leads away from the sources.

    A nodata cell is a barrier, to a knight's move that would pass it too. ``float32`` computes
    in float32 throughout; the weights of ``int64`` must be whole.
    """
    lengths = planar((1, 1)) if lengths is None else lengths
    valid = valid_cells(friction, elevation)
    height, width = valid.shape
    y, x = np.indices(valid.shape)
    real = np.dtype("float64" if dtype == "int64" else dtype)
    f = None if friction is None else friction.astype(real).ravel()
    z = None if elevation is None else elevation.astype(real).ravel()
    found = []
    for code in CODES[connectivity]:
        dy, dx = STEPS[code]
        inside = (y + dy >= 0) & (y + dy < height) & (x + dx >= 0) & (x + dx < width) & valid
        tail = np.flatnonzero(inside)
        middle = [tail + my * width + mx for my, mx in middle_cells(dy, dx)]
        head = tail + dy * width + dx
        keep = np.logical_and.reduce([valid.ravel()[cells] for cells in (head, *middle)])
        tail, head, middle = tail[keep], head[keep], [cells[keep] for cells in middle]
        length = lengths(dy, dx, tail // width).astype(real)
        mean = None
        if f is not None:
            mean = (f[tail] + f[head]) / 2
            if middle:
                mean = (f[tail] + f[head] + f[middle[0]] + f[middle[1]]) / 4
        start, end = (tail, head) if travel == "from" else (head, tail)
        rise = None if z is None else z[end] - z[start]
        weight = price(cost, mean, rise, length, coefficients or {})
        assert weight.dtype == real
        if dtype == "int64":
            assert (weight == np.floor(weight)).all(), "frictions and lengths must be whole"
        found.append(Steps(code, tail, head, weight))
    return found


def price(
    cost: str,
    mean: np.ndarray | None,
    rise: np.ndarray | None,
    length: np.ndarray,
    coefficients: Mapping[str, float],
) -> np.ndarray:
    """Cost of steps of some mean friction, rise and length."""
    if cost == "friction":
        return mean * length
    if cost == "absolute_difference":
        return np.abs(rise)
    if cost == "tobler":
        pace = coefficients.get("pace", 0.6)  # 6 km/h, down a slope of 5 %
        walking = pace * length * np.exp(3.5 * np.abs(rise / length + 0.05))
        return walking if mean is None else walking * mean
    k = {**WALK, **coefficients}
    slope = rise / length
    per_height = np.where(slope >= 0, k["b"], np.where(slope >= k["slope_factor"], k["c"], k["d"]))
    walking = k["a"] * length + per_height * rise
    return walking if mean is None else walking + k["lambda"] * (mean * length)


def graph_of(steps: list[Steps], size: int, sources: Iterable[Source], width: int) -> csr_array:
    """The steps and one more vertex, the last, before all sources. SciPy keeps explicit zeros."""
    entries: dict[int, float] = {}
    for row, column, _, initial in sources:
        cell = row * width + column
        entries[cell] = min(initial, entries.get(cell, np.inf))
    tail = np.concatenate([s.tail for s in steps] + [np.full(len(entries), size)])
    head = np.concatenate([s.head for s in steps] + [np.array(list(entries), np.int64)])
    weight = np.concatenate([s.weight for s in steps] + [np.array(list(entries.values()))])
    return csr_array((weight, (tail, head)), shape=(size + 1, size + 1))


def cost_distance(
    steps: list[Steps],
    shape: tuple[int, int],
    sources: Iterable[Source],
    *,
    max_cost: float = np.inf,
    cost: np.ndarray | None = None,
) -> Message:
    """Cost, who serves and in how many steps; over a ``cost`` already known if it is given."""
    sources = list(sources)
    size = shape[0] * shape[1]
    if cost is None:
        found = dijkstra(graph_of(steps, size, sources, shape[1]), indices=size)[:size]
        found[found > max_cost] = np.inf
    else:
        found = np.where(np.isnan(cost), np.inf, cost).ravel()

    labels = sorted({label for _, _, label, _ in sources})
    far = size + 1.0
    tight = []
    for s in steps:
        with np.errstate(invalid="ignore"):
            on = np.isfinite(found[s.head]) & (tight_sum(found, s) == found[s.head])
        tight.append(Steps(s.code, s.tail[on], s.head[on], np.ones(on.sum())))
    first = [
        (row, column, label, far * (labels.index(label) + 1))
        for row, column, label, initial in sources
        if initial == found[row * shape[1] + column]
    ]
    key = dijkstra(graph_of(tight, size, first, shape[1]), indices=size)[:size]
    reached = np.isfinite(found)
    assert (np.isfinite(key) == reached).all(), "a cost that no path has"
    key[~reached] = far
    rank, hops = np.divmod(key, far)
    return Message(
        cost=np.where(reached, found, np.nan).reshape(shape),
        allocation=np.where(reached, np.array(labels)[rank.astype(int) - 1], -1).reshape(shape),
        hops=np.where(reached, hops, -1).astype(np.int64).reshape(shape),
    )


def tight_sum(found: np.ndarray, s: Steps) -> np.ndarray:
    """Cost of the tail and the step, rounded as the costs are."""
    return (found[s.tail] + s.weight).astype(found.dtype)


def heap_distance(
    steps: list[Steps], shape: tuple[int, int], sources: Iterable[Source], dtype: type = np.float64
) -> np.ndarray:
    """The costs by a heap in plain Python, each sum rounded to ``dtype``; -1 where unreached."""
    neighbours: dict[int, list[tuple[int, Any]]] = {}
    for s in steps:
        for tail, head, weight in zip(s.tail.tolist(), s.head.tolist(), s.weight):
            neighbours.setdefault(tail, []).append((head, weight))
    cost: dict[int, Any] = {}
    queue = [(dtype(initial), row * shape[1] + column) for row, column, _, initial in sources]
    heapq.heapify(queue)
    while queue:
        reached, cell = heapq.heappop(queue)
        if cell in cost:
            continue
        cost[cell] = reached
        for head, weight in neighbours.get(cell, ()):
            if head not in cost:
                heapq.heappush(queue, (dtype(reached + weight), head))
    whole = np.full(shape[0] * shape[1], -1, dtype)
    whole[list(cost)] = list(cost.values())
    return whole.reshape(shape)


def follow(
    back_direction: np.ndarray, steps: list[Steps], cost: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From every cell back to its source, step by step.

    Returns, for each cell in row-major order, the row-major index of the source it comes to, how
    many steps that takes, and the sum of the steps' costs, added from the source outwards in the
    type of ``cost``, which gives what the sources start with. A way that never ends raises; so
    does one that leaves the grid or takes a step that is none.
    """
    shape, size = back_direction.shape, back_direction.size
    codes = back_direction.ravel()
    parent, weight = np.arange(size), np.zeros(size)
    by_code = {s.code: s for s in steps}
    for code in np.unique(codes[(codes != 0) & (codes != UNREACHED)]).tolist():
        cells = np.flatnonzero(codes == code)
        dy, dx = STEPS[code]
        s = by_code[back(code)]
        place = np.minimum(np.searchsorted(s.head, cells), s.head.size - 1)
        if not (s.head[place] == cells).all():
            raise AssertionError(f"code {code} takes a step that is none")
        assert (s.tail[place] == cells + dy * shape[1] + dx).all()
        parent[cells], weight[cells] = s.tail[place], s.weight[place]
    # the way to the source by doubling: a cycle never comes to rest
    hops, root = (parent != np.arange(size)).astype(np.int64), parent.copy()
    for _ in range(size.bit_length()):
        hops, root = hops + hops[root], root[root]
    if (parent[root] != root).any():
        raise AssertionError("back_direction has a cycle")
    total = cost.ravel().tolist()
    rounded = cost.dtype.type
    for cell in np.argsort(hops, kind="stable").tolist():
        if parent[cell] != cell:
            total[cell] = rounded(total[parent[cell]] + weight[cell]).item()
    return root, hops, np.array(total, cost.dtype)
