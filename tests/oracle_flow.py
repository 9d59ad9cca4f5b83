"""Flow by plain loops over the whole grid: slow, and nothing of orograph's in it."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import xarray as xr

STEPS = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
CODES = {
    "taudem": ((1, 2, 3, 4, 5, 6, 7, 8), 0, 255),
    "esri": ((1, 128, 64, 32, 16, 8, 4, 2), 0, 255),
    "grass": ((8, 1, 2, 3, 4, 5, 6, 7), 0, -128),
    "ldd": ((6, 9, 8, 7, 4, 1, 2, 3), 5, 255),
}
Cell = tuple[int, int]


def directions(
    surface: np.ndarray, valid: np.ndarray, size: tuple[float, float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """The step of each cell, 8 where there is none, and the cells that leave the grid by it.

    Those that flow into nodata are among these. ``size`` is (y, x).
    """
    step = np.full(surface.shape, 8)
    leaves = np.zeros(surface.shape, bool)
    lengths = [math.hypot(dy * size[0], dx * size[1]) for dy, dx in STEPS]
    cells = [tuple(cell) for cell in np.argwhere(valid).tolist()]

    def beside(cell: Cell, k: int) -> Cell | None:
        y, x = cell[0] + STEPS[k][0], cell[1] + STEPS[k][1]
        inside = 0 <= y < surface.shape[0] and 0 <= x < surface.shape[1]
        return (y, x) if inside and valid[y, x] else None

    for cell in cells:
        slopes = []
        for k in range(8):
            other = beside(cell, k)
            if other is None or not surface[other] < surface[cell]:
                slopes.append(-1.0)
            else:
                drop = float(surface[cell].item() - surface[other].item())
                slopes.append(drop * (1 / lengths[k]))
        if max(slopes) >= 0:
            step[cell] = slopes.index(max(slopes))
        else:
            outward = [k for k in range(8) if beside(cell, k) is None]
            if outward:
                step[cell], leaves[cell] = outward[0], True
    hops = {cell: 0 for cell in cells if step[cell] < 8}
    queue = deque(hops)
    while queue:
        cell = queue.popleft()
        for k in range(8):
            other = beside(cell, k)
            if other is not None and other not in hops and surface[other] == surface[cell]:
                hops[other] = hops[cell] + 1
                queue.append(other)
    for cell, count in hops.items():
        if count:
            for k in range(8):
                other = beside(cell, k)
                same = other is not None and surface[other] == surface[cell]
                if same and hops[other] == count - 1:
                    step[cell] = k
                    break
    return step, leaves


def with_gradients(
    surface: np.ndarray, valid: np.ndarray, size: tuple[float, float] = (1.0, 1.0)
) -> tuple[np.ndarray, np.ndarray]:
    """As `directions`, but over flats as Barnes, Lehman and Mulla have it, with their mask."""
    nearest, leaves = directions(surface, valid, size)
    cells = [tuple(cell) for cell in np.argwhere(valid).tolist()]

    def around(cell: Cell) -> list[tuple[int, Cell]]:
        places = [(k, (cell[0] + dy, cell[1] + dx)) for k, (dy, dx) in enumerate(STEPS)]
        inside = [(k, c) for k, c in places if 0 <= c[0] < len(surface) and c[1] >= 0]
        return [(k, c) for k, c in inside if c[1] < surface.shape[1] and valid[c]]

    def spread(hops: dict[Cell, int], among: set[Cell]) -> dict[Cell, int]:
        queue = deque(hops)
        while queue:
            cell = queue.popleft()
            for _, other in around(cell):
                if other in among and other not in hops and surface[other] == surface[cell]:
                    hops[other] = hops[cell] + 1
                    queue.append(other)
        return hops

    def lower(cell: Cell) -> bool:
        return any(surface[other] < surface[cell] for _, other in around(cell))

    drained = {cell for cell in cells if lower(cell) or len(around(cell)) < 8}
    flat = set(cells) - drained
    high = [c for c in cells if c in flat and any(surface[o] > surface[c] for _, o in around(c))]
    away = spread(dict.fromkeys(high, 1), flat)
    toward = spread(dict.fromkeys((cell for cell in cells if cell in drained), 1), set(cells))
    mask: dict[Cell, int] = {}
    for cell in flat:
        if cell in mask:
            continue
        members = spread({cell: 0}, flat)
        greatest = max((away.get(c, 0) for c in members), default=0)
        for c in members:
            mask[c] = 2 * toward.get(c, 0) + (greatest - away[c] if c in away else 0)
    step = nearest.copy()
    for cell in flat & toward.keys():
        same = [(k, other) for k, other in around(cell) if surface[other] == surface[cell]]
        best = min((2 if other in drained else mask[other], k) for k, other in same)
        step[cell] = best[1]
        assert best[0] < mask[cell]
    return step, leaves


def encode(step: np.ndarray, leaves: np.ndarray, valid: np.ndarray, encoding: str) -> np.ndarray:
    """The codes of steps."""
    codes, sink, nodata = CODES[encoding]
    found = np.array([*codes, sink])[step]
    if encoding == "grass":
        found[leaves] *= -1
    if encoding == "ldd":
        found[leaves] = sink
    found[~valid] = nodata
    return found


def accumulate(step: np.ndarray, leaves: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What passes each cell, of any type that adds."""
    found = weights.copy()
    flowing = (step < 8) & ~leaves

    def below(cell: Cell) -> Cell:
        dy, dx = STEPS[step[cell]]
        return cell[0] + dy, cell[1] + dx

    waiting = np.zeros(step.shape, int)
    for cell in map(tuple, np.argwhere(flowing).tolist()):
        waiting[below(cell)] += 1
    ready = [cell for cell in np.ndindex(step.shape) if not waiting[cell]]
    while ready:
        cell = ready.pop()
        if flowing[cell]:
            target = below(cell)
            found[target] += found[cell]
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    assert not waiting.any()
    return found


def ends(step: np.ndarray, leaves: np.ndarray, stops: dict[Cell, int]) -> np.ndarray:
    """The label of the first of some cells on the way from each; -1 where it passes none."""
    found = np.full(step.shape, -1)
    for start in np.ndindex(step.shape):
        cell = start
        while cell not in stops and step[cell] < 8 and not leaves[cell]:
            dy, dx = STEPS[step[cell]]
            cell = cell[0] + dy, cell[1] + dx
        found[start] = stops.get(cell, -1)
    return found


def lengths(
    step: np.ndarray, leaves: np.ndarray, streams: np.ndarray | None, size: tuple[float, float]
) -> np.ndarray:
    """How far it is from each cell to its last, or to the first stream cell; NaN: to none."""
    found = np.full(step.shape, np.nan)
    for start in np.ndindex(step.shape):
        cell, length = start, 0.0
        while step[cell] < 8 and not leaves[cell] and (streams is None or not streams[cell]):
            dy, dx = STEPS[step[cell]]
            length += math.hypot(dy * size[0], dx * size[1])
            cell = cell[0] + dy, cell[1] + dx
        if streams is None or streams[cell]:
            found[start] = length
    return found


def random_steps(
    random: np.random.Generator, valid: np.ndarray, wrap: bool
) -> tuple[np.ndarray, dict[tuple[int, int], tuple[int, int] | None]]:
    """Return codes of TauDEM without circles, and the cell below each cell, None where it ends."""
    height, width = valid.shape
    rank = random.permutation(valid.size).reshape(valid.shape)
    codes, below = np.full(valid.shape, 255, np.uint8), {}
    for y, x in np.argwhere(valid).tolist():
        ways: list[tuple[int, tuple[int, int] | None]] = [(0, None)]
        for code, (dy, dx) in zip(CODES["taudem"][0], STEPS, strict=True):
            to = y + dy, (x + dx) % width if wrap else x + dx
            if not (0 <= to[0] < height and 0 <= to[1] < width) or not valid[to]:
                ways.append((code, None))  # what flows out or into nodata ends
            elif rank[to] < rank[y, x]:
                ways += [(code, to)] * 3
        codes[y, x], below[y, x] = ways[random.integers(len(ways))]
    return codes, below


def random_values(random: np.random.Generator, shape: tuple[int, int]) -> xr.DataArray:
    """Return values of any dtype and either sign, with ties and nodata."""
    dtype = np.dtype(random.choice(["u1", "i2", "i8", "u8", "f4", "f8"]))
    if dtype.kind == "f":
        values = random.normal(size=shape) * 10.0 ** random.integers(-12, 9, shape)
        values[random.random(shape) < 0.2] = random.choice([np.nan, np.inf, -np.inf])
        values[random.random(shape) < 0.2] = random.choice([0.0, -0.0, 0.1])
    else:
        low, high = {"u1": (0, 9), "i2": (-9, 9)}.get(dtype.str[1:], (2**45, 2**46))
        values = random.integers(low, high, shape)
        if dtype == np.int64:
            values = -values
    values = values.astype(dtype)
    return xr.DataArray(values, dims=("y", "x"), attrs={"_FillValue": values[0, 0]})
