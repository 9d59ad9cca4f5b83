"""Paths end on whatever they are given, and corridors and masks refuse what does not fit."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
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


def test_directions_that_xarray_decoded_are_followed() -> None:
    whole = og.cost_distance(located(np.ones((3, 4))), [(500, 100)], outputs=BOTH)
    decoded = whole.assign(back_direction=whole["back_direction"].astype(np.float32))
    decoded["back_direction"][2, 3] = np.nan
    del decoded["back_direction"].attrs["_FillValue"]
    at = [(530, 90)]
    assert og.least_cost_path(decoded, at) == og.least_cost_path(whole, at)
    with pytest.raises(og.InputError, match="lies on cells that were not reached"):
        og.least_cost_path(decoded, [(530, 80)])
    wrong = whole.assign(back_direction=whole["back_direction"].astype(np.int64))
    with pytest.raises(og.InputError, match="back_direction is int64, not uint8 nor a float"):
        og.least_cost_path(wrong, at)


def test_a_path_is_short_to_read_and_equals_itself() -> None:
    where = located(np.ones((1, 300))).rio.write_crs("EPSG:32633")
    whole = og.cost_distance(where, [(500, 100)], outputs=BOTH)
    (path, same, other) = og.least_cost_path(whole, [(3490, 100), (3490, 100), (3480, 100)])
    assert repr(path) == (
        "<orograph.LeastCostPath: cost 2990, 300 cells, length 2990, from (3490, 100) to "
        "(500, 100)>"
    )
    assert path == same
    assert path != other
    assert {path, same, other} == {path, other}
    assert path.crs is not None
    assert path != dataclasses.replace(path, crs=None)


def test_a_path_over_degrees_is_as_long_as_its_cost() -> None:
    """Along the ellipsoid, in metres."""
    globe = located(np.ones((4, 5))).assign_coords(
        y=45 - 0.01 * np.arange(4), x=7 + 0.01 * np.arange(5)
    )
    result = og.cost_distance(globe.rio.write_crs("EPSG:4326"), [(7, 45)], outputs=BOTH)
    for path in og.least_cost_path(result, [(7.04, 45), (7, 44.97), (7.03, 44.97)]):
        assert path.length == pytest.approx(path.cost, rel=1e-6)


def test_a_point_that_nothing_reached_does_not_lie_on_nodata() -> None:
    with pytest.raises(og.InputError, match=r"not reached: .*max_cost") as caught:
        og.least_cost_path(directed([[0, 255]]), [(1, 0)])
    assert "nodata" not in str(caught.value)


# --- corridors -------------------------------------------------------------------------------


def result(**attrs: Any) -> xr.Dataset:
    """A result as `cost_distance` gives it back."""
    dtype = attrs.get("dtype", "float64")
    said = {
        "cost_model": "friction",
        "travel": "from",
        "connectivity": 8,
        "cell_size": [10.0, 10.0],
        "dtype": "float64",
        **attrs,
    }
    cost = located(np.arange(12).reshape(3, 4).astype(dtype))
    return xr.Dataset({"cost": cost}, attrs=said)


PACE, SLOW = [0.6], [0.7]
UNLIKE: dict[str, tuple[xr.Dataset, xr.Dataset, str]] = {
    "cell sizes": (result(), result(cell_size=[1.0, 1.0]), r"cell_size is \[10.0, 10.0\] and"),
    "lengths on the globe": (result(), result(cell_size="geodesic"), "cell_size .*'geodesic'"),
    "connectivities": (result(), result(connectivity=4), "connectivity is 8 and 4"),
    "models": (result(), result(cost_model="absolute_difference"), "cost_model"),
    "integers and floats": (result(), result(dtype="int64"), "dtype is 'float' and 'int64'"),
    "coefficients": (
        result(cost_model="tobler", coefficients=PACE),
        result(cost_model="tobler", coefficients=SLOW, travel="to"),
        r"coefficients is 0\.6 and 0\.7",
    ),
    "both from": (
        result(cost_model="walk"),
        result(cost_model="walk"),
        "travel is 'from' and 'from'; .*'to'",
    ),
    "both to": (
        result(cost_model="walk", travel="to"),
        result(cost_model="walk", travel="to"),
        "travel is 'to' and 'to'",
    ),
    "a shifted grid": (
        result(),
        result().assign_coords(x=result().x + 20),
        "x coordinate 0 is 520, .* 500",
    ),
    "a part": (result(), result().isel(x=slice(2)), "3 x 2 cells, but .*3 x 4"),
    "another CRS": (
        result().rio.write_crs("EPSG:3310"),
        result().rio.write_crs("EPSG:5070"),
        "CRS is .*Albers",
    ),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_a_corridor_refuses_unlike(case: str) -> None:
    first, second, says = UNLIKE[case]
    for one, other in ((first, second), (second, first)):
        with pytest.raises(og.InputError, match=says if one is first else "corridor"):
            og.corridor(one, other)


def test_a_corridor_of_what_fits() -> None:
    there = result(cost_model="tobler", coefficients=PACE)
    back = result(cost_model="tobler", coefficients=0.6, travel="to")  # as NetCDF has it
    doubled = 2.0 * np.arange(12).reshape(3, 4)
    assert og.corridor(there, back).values.tolist() == doubled.tolist()
    rounded = back.assign_coords(x=back.x + 1e-9)
    summed = og.corridor(there, rounded)
    assert summed.values.tolist() == doubled.tolist()
    assert summed.x.equals(there.x)
    lazy = og.corridor(there.chunk(2), back.chunk(2))
    assert lazy.chunks is not None
    assert lazy.values.tolist() == doubled.tolist()


def test_unreached_cells_of_integers_are_not_added() -> None:
    one, other = result(dtype="int64"), result(dtype="int64")
    one["cost"][0, 0] = -1
    one["cost"][1, 1] = other["cost"][1, 1] = -1
    other["cost"][2, 2] = -1
    summed = og.corridor(one, other)
    assert (summed.dtype, summed.attrs["_FillValue"]) == (np.int64, -1)
    assert np.argwhere(summed.values == -1).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert summed.values[summed.values >= 0].min() == 2
    one["cost"][0, 1] = 2**53 + 1
    assert og.corridor(one, other).values[0, 1] == 2**53 + 2


def test_a_tobler_corridor_is_what_the_path_costs() -> None:
    """Up one side of a ridge and down the other, which costs something else the other way."""
    heights = located(np.random.default_rng(3).integers(0, 9, (9, 11)).astype(float))
    start, end = [(500, 100)], [(600, 20)]
    there = og.walking_time(heights, start, outputs=("time", "back_direction"))
    back = og.walking_time(heights, end, travel="to")
    assert (there.attrs["travel"], back.attrs["travel"]) == ("from", "to")
    assert there.attrs["coefficients"] == [0.6]
    (path,) = og.least_cost_path(there, end)
    ways = og.corridor(there, back).values
    assert ways.min() == pytest.approx(path.cost, rel=1e-12)
    assert ways[tuple(path.cells.T)] == pytest.approx(path.cost, rel=1e-12)
    with pytest.raises(og.InputError, match="travel"):
        og.corridor(there, og.walking_time(heights, end))


def test_a_stored_result_says_what_its_costs_are_of(tmp_path: Path) -> None:
    cells = located(np.ones((4, 5)))
    og.cost_distance(cells, [(500, 100)], travel="to", out=tmp_path / "a.zarr", tile=2)
    attrs = og.open(tmp_path / "a.zarr").attrs
    assert (attrs["travel"], attrs["dtype"]) == ("to", "float64")
    assert list(attrs["cell_size"]) == [10.0, 10.0]
    globe = located(np.ones((4, 5)) , 7.0, 45.0).rio.write_crs("EPSG:4326")  # fmt: skip
    globe = globe.assign_coords(y=45 - 0.01 * np.arange(4), x=7 + 0.01 * np.arange(5))
    assert og.cost_distance(globe, [(7, 45)]).attrs["cell_size"] == "geodesic"
    counted = og.cost_distance(cells, [(500, 100)], cell_size=(2, 3))
    assert counted.attrs["cell_size"] == [2.0, 3.0]


# --- masks of paths --------------------------------------------------------------------------


def test_a_path_is_not_put_onto_another_grid() -> None:
    codes = directed([[0, WEST, WEST]]).assign_coords(y=[100.0], x=[500.0, 510.0, 520.0])
    paths = og.least_cost_path(codes, [(520, 100), (510, 100)])
    assert og.path_mask(paths, codes).values.tolist() == [[2, 2, 1]]
    assert og.path_mask(paths, codes[["back_direction"]]).values.tolist() == [[2, 2, 1]]
    with pytest.raises(og.InputError, match=re.escape("path 0 has row 0, column 2 at (520.0")):
        og.path_mask(paths[:1], codes.assign_coords(x=[500.0, 510.0, 521.0]))
    with pytest.raises(og.InputError, match="path 0 passes row 0, column 2, but like has 1 x 2"):
        og.path_mask(paths, codes.isel(x=slice(2)))
    with pytest.raises(og.InputError, match="path 0 has row 0, column 2 at"):
        og.path_mask(paths, directed([[0, WEST, WEST]]))
