"""Paths end on whatever they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import orograph as og

BOTH = ("cost", "back_direction")


def located(cells: np.ndarray, x0: float = 500.0, y0: float = 100.0) -> xr.DataArray:
    axes = {
        "y": y0 - 10.0 * np.arange(cells.shape[0]),
        "x": x0 + 10.0 * np.arange(cells.shape[1]),
    }
    return xr.DataArray(cells, axes, ("y", "x"))


def directed(codes: Any) -> xr.Dataset:
    """A result with these back directions."""
    back = np.array(codes, np.uint8)
    return xr.Dataset(
        {"cost": (("y", "x"), np.ones(back.shape)), "back_direction": (("y", "x"), back)}
    )


# --- paths end -------------------------------------------------------------------------------


EAST, SOUTH, WEST, NORTH = 1, 3, 5, 7
ASTRAY: dict[str, tuple[Any, tuple[str, ...]]] = {
    "east off the grid": ([[EAST, EAST, EAST]], ("leaves it", "row 0, column 2", "column 3")),
    "south off the grid": ([[SOUTH], [SOUTH]], ("leaves it", "row 1, column 0", "row 2")),
    "north off the grid": ([[NORTH]], ("leaves it", "row -1")),
    "west off the grid": ([[WEST]], ("leaves it", "column -1")),
    "two cells that point at each other": ([[EAST, WEST]], ("lead nowhere",)),
    "onto a cell without a direction": ([[EAST, 255]], ("lead nowhere", "row 0, column 1")),
    "a code that is none": ([[EAST, 200]], ("lead nowhere", "row 0, column 1")),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", ASTRAY)
def test_directions_that_lead(case: str) -> None:
    codes, says = ASTRAY[case]
    with pytest.raises(og.InputError) as caught:
        og.least_cost_path(directed(codes), [(0, 0)])
    for part in (*says, "point 0"):
        assert part in str(caught.value)


@pytest.mark.timeout(120)
def test_a_circle_through_several_windows_is_found() -> None:
    """Round the corner where four windows of 512 cells meet."""
    codes = np.full((520, 520), 255)
    codes[511, 511:513] = EAST, SOUTH
    codes[512, 511:513] = NORTH, WEST
    with pytest.raises(og.InputError, match="lead nowhere"):
        og.least_cost_path(directed(codes), [(511, 511)])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("corner", [(0, 0), (0, 9), (9, 0), (9, 9)], ids=str)
def test_a_part_of_a_result_says_that_the_path_leaves_it(corner: tuple[int, int]) -> None:
    """Whichever way the source lies."""
    y, x = corner
    whole = og.cost_distance(located(np.ones((10, 10))), [(500 + 10 * x, 100 - 10 * y)],
                             outputs=BOTH)  # fmt: skip
    part = whole.isel(y=slice(3, 7), x=slice(3, 7))
    with pytest.raises(og.InputError, match=r"leaves it at row .*part of a result"):
        og.least_cost_path(part, [(540, 60)])
    near = whole.isel(y=slice(0, 7) if y == 0 else slice(3, 10),
                      x=slice(0, 7) if x == 0 else slice(3, 10))  # fmt: skip
    (path,), (same,) = (og.least_cost_path(result, [(540, 60)]) for result in (near, whole))
    assert path.coordinates.tolist() == same.coordinates.tolist()


def test_decoded_directions_are_refused() -> None:
    decoded = directed([[0, WEST]])
    decoded["back_direction"] = decoded["back_direction"].astype(np.float32)
    with pytest.raises(og.InputError, match=r"float32, not uint8; open .*mask_and_scale=False"):
        og.least_cost_path(decoded, [(1, 0)])


def test_a_point_that_nothing_reached_does_not_lie_on_nodata() -> None:
    with pytest.raises(og.InputError, match=r"not reached: .*max_cost") as caught:
        og.least_cost_path(directed([[0, 255]]), [(1, 0)])
    assert "nodata" not in str(caught.value)
