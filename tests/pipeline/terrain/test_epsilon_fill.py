"""Filling with a gradient is Priority-Flood+Epsilon on any tiling, to the bit."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from terrain_cases import fractal

import orograph as og

Cells = np.ndarray[Any, Any]
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
SEEDS = [*range(12), *(pytest.param(n, marks=pytest.mark.long) for n in range(12, 240))]
WORDS = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


def raised(height: Any, step: float | bool) -> Any:
    """The height a step above another: the sum as a fraction, rounded once, half to even."""
    kind = height.dtype
    if step is True:
        # float32 and float64 round a sum of their own once
        return height + np.spacing(max(abs(height), kind.type(1)))
    exact = Fraction(float(height)) + Fraction(step)
    near = kind.type(float(exact))
    around = [np.nextafter(near, kind.type(end)) for end in (-np.inf, np.inf)]
    return min(
        (near, *around),
        key=lambda v: (
            abs(Fraction(float(v)) - exact) if np.isfinite(v) else np.inf,
            int(v.view(WORDS[kind])) & 1,
        ),
    )


def flood(
    heights: Cells,
    connectivity: int,
    step: float | bool,
    outlets: Cells | None = None,
    wraps: bool = False,
) -> Cells:
    """Priority flood that adds a step to what it floods; heights are NaN where there are none."""
    height, width = heights.shape
    filled = np.full(heights.shape, np.inf, heights.dtype)

    def around(y: int, x: int) -> list[tuple[int, int]]:
        places = [(y + dy, x + dx) for dy, dx in STEPS[:connectivity]]
        return [(i, j % width if wraps else j) for i, j in places]

    def there(y: int, x: int) -> bool:
        return 0 <= y < height and 0 <= x < width and not np.isnan(heights[y, x])

    cells = [(int(y), int(x)) for y, x in np.argwhere(~np.isnan(heights))]
    if outlets is None:
        starts = [cell for cell in cells if not all(there(*other) for other in around(*cell))]
    else:
        starts = [cell for cell in cells if outlets[cell]]
    queue = []
    for cell in starts:
        filled[cell] = heights[cell]
        heapq.heappush(queue, (float(heights[cell]), cell))
    while queue:
        low, cell = heapq.heappop(queue)
        if low > filled[cell]:
            continue
        up = raised(filled[cell], step)
        for other in around(*cell):
            if there(*other) and (new := max(heights[other], up)) < filled[other]:
                filled[other] = new
                heapq.heappush(queue, (float(new), other))
    return np.where(np.isfinite(filled), filled, heights)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_tiling_fills_as_a_priority_flood_does(seed: int) -> None:
    random = np.random.default_rng(seed)
    kind = np.dtype(["f4", "f8", "i2", "u1", "i8"][seed % 5])
    shape = tuple(random.integers(1, 30, 2).tolist())
    heights = random.normal(size=shape) * random.choice([1, 9, 90]) + 99
    heights = heights.round(int(random.integers(0, 3))).clip(1, 254).astype(kind)
    valid = random.random(shape) < random.choice([0.7, 0.98, 1])
    nodata = None if kind.kind == "f" else 0
    heights[~valid] = np.nan if nodata is None else 0
    known = np.where(valid, heights, np.nan).astype(kind if kind.kind == "f" else "f8")
    outlets = (random.random(shape) < 0.05) & valid
    step = [True, 0.1, 1e-4, 3][seed // 5 % 4]
    given: dict[str, Any] = {
        "gradient": step,
        "connectivity": [4, 8][seed % 2],
        "wrap": bool(seed % 4 == 3 and shape[1] > 2),
        "outputs": ["filled", "depth"],
        "nodata": nodata,
    }
    if seed % 3 == 0 and outlets.any():
        given["outlets"] = outlets.astype(np.uint8)
    else:
        outlets = None
    expected = flood(known, given["connectivity"], step, outlets, given["wrap"])
    tile = int(random.choice([1, 3, 8, 64]))
    result = og.fill_depressions(heights, tile=tile, **given)
    filled = result["filled"].values
    assert filled.dtype == known.dtype
    np.testing.assert_array_equal(filled, expected)
    np.testing.assert_array_equal(result["depth"], expected.astype("f8") - known)
    again = og.fill_depressions(filled, **given | {"nodata": None})["filled"]
    np.testing.assert_array_equal(again, filled)


@pytest.mark.parametrize("flats", ["nearest", "gradient"])
def test_water_needs_no_rule_for_flats_on_the_filled_surface(flats: str) -> None:
    heights = np.round(fractal(60) / 20)
    filled = og.fill_depressions(heights, gradient=True)["filled"]
    kept = og.flow_direction(filled, depressions="keep", flats=flats)
    assert kept.attrs["sink_count"] == 0
    # its depressions are those that were filled level, or a hair above
    level = og.fill_depressions(heights)["filled"].values
    assert (filled >= level).all()
    assert float(abs(filled - level).max()) < 1e-2
    assert (np.diff(level) == 0).any()


def test_cells_from_which_no_path_leads_to_an_outlet_keep_their_heights() -> None:
    heights = np.array([[5.0, 1, np.nan, 4, 2, 7]])
    filled = og.fill_depressions(heights, outlets=[(0, 0)], gradient=0.5)["filled"]
    np.testing.assert_array_equal(filled, [[5, 5.5, np.nan, 4, 2, 7]])


@pytest.mark.parametrize(
    ("heights", "step", "message"),
    [
        ([[9, 3, 9]], 0, "gradient: 0; it must be a number, at least"),
        ([[9, 3, 9]], -1.0, "gradient: -1.0; it must be a number"),
        ([[9, 3, 9]], "x", "gradient: 'x'; it must be a number"),
        ([[9, 3, 9]], np.inf, "gradient: inf; it must be a number"),
    ],
)
def test_a_step_is_a_positive_number(heights: list[Any], step: Any, message: str) -> None:
    with pytest.raises(og.InputError, match=message):
        og.fill_depressions(np.array(heights), gradient=step)


@pytest.mark.parametrize("tile", [2, 8])
def test_the_cell_that_cannot_be_raised_is_named(tile: int) -> None:
    flat = np.full((5, 5), 2.0**24, np.float32)
    flat[2, 2] = 7
    with pytest.raises(
        og.InputError, match=r"row 1, column 1 is filled to no more .* step of 0\.5"
    ):
        og.fill_depressions(flat, gradient=0.5, tile=tile)
    high = np.full((5, 5), np.finfo(np.float32).max)
    with pytest.raises(og.InputError, match=r"elevation: 3\.4.* row 1, column 1 .* offset"):
        og.fill_depressions(high, gradient=True, tile=tile)
    with pytest.raises(og.InputError, match="row 0, column 0; with gradient= heights are float64"):
        og.fill_depressions(flat.astype(np.int64) + np.int64(2**53), gradient=True, tile=tile)


@pytest.mark.parametrize("other", [{"max_depth": 1.0}, {"outputs": "depression"}])
def test_what_a_gradient_leaves_without_meaning_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(og.InputError, match=f"{next(iter(other))}: of no use for gradient="):
        og.fill_depressions(np.ones((3, 3)), gradient=True, **other)


def test_two_workers_and_a_store_give_the_same_bits(
    tmp_path: Path, clients: Callable[[int], Client]
) -> None:
    heights = fractal(150)
    alone = og.fill_depressions(heights, gradient=True)
    og.fill_depressions(
        heights, gradient=True, out=tmp_path / "filled.zarr", tile=16, shard=64, client=clients(2)
    )
    stored = og.open(tmp_path / "filled.zarr")
    np.testing.assert_array_equal(stored["filled"], alone["filled"])
    assert stored.attrs["gradient"] == "spacing of floats"
