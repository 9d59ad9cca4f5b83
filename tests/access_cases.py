"""Random grids with facilities, for the operations on access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle_access
import oracle_distance as oracle
import xarray as xr


@dataclass
class Case:
    """A grid stored in some orientation, and what plain loops find within reach."""

    friction: xr.DataArray
    population: xr.DataArray
    points: list[tuple[float, float]]
    most: float
    options: dict[str, Any]
    reaches: list[oracle_access.Reach]
    people: dict[int, Any]
    sides: tuple[int, int]

    def turned(self, raster: xr.DataArray) -> np.ndarray:
        """The cells of a raster from north to south and from west to east."""
        return raster.sortby("y", ascending=False).sortby("x").values


def random_case(seed: int, facilities: int = 6) -> Case:
    """Return a case with many ties and barriers, heights, fractions of people, any orientation."""
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(2, 15, 2).tolist())
    connectivity = (8, 4)[seed % 2]
    walks = seed % 5 == 3
    cells = random.integers(1, 4, shape).astype(np.float64)
    if seed % 7 == 2:
        cells[random.random(shape) < 0.2] = 0.0
    cells[random.random(shape) < 0.15] = np.nan
    cells[0, 0] = 1.0
    travel = ("to", "from")[seed // 2 % 2]
    given = {"connectivity": connectivity, "travel": travel}
    steps = oracle.list_steps(
        *((None, cells * 5) if walks else (cells,)),
        cost="walk" if walks else "friction",
        **given,
    )
    people = random.integers(0, 5, shape) * random.choice([1.0, 0.3, 2.0**-19], shape)
    people[random.random(shape) < 0.1] = -9
    raster = {"y": 100.0 - np.arange(shape[0]), "x": 10.0 + np.arange(shape[1])}
    valid = np.argwhere(np.isfinite(cells))
    chosen = valid[random.integers(0, len(valid), facilities)]
    most = float(random.choice([0.0, 2.5, 6.0, 9.0, np.inf])) * (1 if not walks else 2)
    reaches = oracle_access.reaches(steps, [[y * shape[1] + x] for y, x in chosen.tolist()], most)
    sides = tuple(random.choice([-1, 1], 2).tolist())

    def stored(values: np.ndarray, **attrs: Any) -> xr.DataArray:
        array = xr.DataArray(values, raster, ("y", "x"), attrs=attrs)
        return array.sortby("y", ascending=sides[0] < 0).sortby("x", ascending=sides[1] > 0)

    options = {**given, "tile": int(random.integers(1, 9)), "cost": "walk" if walks else "friction"}
    return Case(
        stored(cells * 5 if walks else cells),
        stored(people, _FillValue=-9),
        [(10.0 + x, 100.0 - y) for y, x in chosen.tolist()],
        most,
        options,
        reaches,
        oracle_access.people(people, -9),
        sides,
    )
