"""Bad input to `og.cost_distance` is refused by name: the value, the bound and the next step.

`refused` also sees to it that nothing was left on disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from any_model import distance
from cuda_on_cpu.emulator import Emulator

import orograph as og
from orograph.distance.costs.surface import model_coefficients
from orograph.kernels.relax.models import MODELS

NEXT_STEP = re.compile(
    r"\b(use|pass|give|select|choose|pick|set|mark|move|raise|leave|bring|convert|cast|name|check)\b"
    r"|must be|must not be|are sources|it has|\?$",
    re.IGNORECASE,
)
SHAPE = (6, 7)


@contextmanager
def refused(
    *says: str, folder: Path | None = None, kind: type[Exception] = og.InputError
) -> Iterator[None]:
    """Expect ``kind`` with a message that has all of ``says`` and a next step."""
    before = sorted(folder.rglob("*")) if folder else None
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    missing = [part for part in says if not re.search(part, message)]
    assert not missing, f"the message lacks {missing}: {message}"
    assert NEXT_STEP.search(message), f"the message names no next step: {message}"
    if folder:
        assert sorted(folder.rglob("*")) == before


def ones(*changes: tuple[int, int, float]) -> np.ndarray:
    grid = np.ones(SHAPE)
    for y, x, value in changes:
        grid[y, x] = value
    return grid


def located(grid: np.ndarray, x0: float = 500.0, y0: float = 100.0) -> xr.DataArray:
    height, width = grid.shape
    coords = {"y": y0 - 10.0 * np.arange(height), "x": x0 + 10.0 * np.arange(width)}
    return xr.DataArray(grid, dims=("y", "x"), coords=coords)


def labels(*cells: tuple[int, int]) -> np.ndarray:
    raster = np.zeros(SHAPE, np.int32)
    for label, cell in enumerate(cells, 1):
        raster[cell] = label
    return raster


# --- friction -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-2.0, -1e-300], ids=str)
@pytest.mark.parametrize("tile", [2, 7])
@pytest.mark.parametrize("how", ["array", "dask", "store"])
def test_refuses_friction_that_is_negative_and_says_where(
    value: float, tile: int, how: str, tmp_path: Path
) -> None:
    """The first in rows, wherever the raster is and whichever tile finds one."""
    grid: Any = ones((1, 5, value), (5, 0, value))
    if how == "dask":
        grid = located(grid).chunk(3)
    elif how == "store":
        og.ingest(grid, tmp_path / "friction.zarr", tile=tile)
        grid = tmp_path / "friction.zarr"
    source = [(500, 100)] if how == "dask" else [(0, 0)]
    with refused("friction", re.escape(str(value)), r"row 1, column 5\b", r"\b0\b"):
        og.cost_distance(grid, source, tile=tile, out=tmp_path / "cost.zarr")
    assert not (tmp_path / "cost.zarr").exists()


def test_refuses_negative_friction_in_integers() -> None:
    grid = ones((3, 4, -7)).astype(np.int16)
    with refused("friction", "-7", r"row 3\b", r"column 4\b"):
        og.cost_distance(grid, [(0, 0)])


def test_a_nodata_value_may_be_negative() -> None:
    cost = og.cost_distance(ones((3, 4, -7)), [(0, 0)], nodata=-7)["cost"].values
    assert np.argwhere(np.isnan(cost)).tolist() == [[3, 4]]


def test_refuses_friction_whose_halves_integers_would_drop() -> None:
    """0.5 is not 0."""
    with refused("friction", r"0\.5|float64|integer", "int64"):
        og.cost_distance(np.full(SHAPE, 0.5), [(0, 0)], dtype="int64", cell_size=1, connectivity=4)


def test_refuses_or_says_when_integers_overflow() -> None:
    """A sum past 2**63 must not come out negative."""
    with pytest.raises((og.InputError, og.RunError, OverflowError), match=r"int64|2\*\*6|overflow"):
        og.cost_distance(
            np.full((2, 5), 2**62 + 1), [(0, 0)], dtype="int64", cell_size=1, connectivity=4
        )


@pytest.mark.parametrize("label", [2**62, 2**63 - 1, -1])
def test_refuses_labels_that_would_stand_for_no_source(label: int) -> None:
    sources = np.zeros((3, 4), np.int64)
    sources[1, 2] = label
    with pytest.raises(og.InputError, match=f"sources: {label} at row 1, column 2 is not a label"):
        og.cost_distance(np.ones((3, 4)), sources, cell_size=1, outputs=("cost", "allocation"))


BOUNDS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "friction times the length of a step": (
        np.full((3, 3), 1e306), {"cell_size": 1e3}, ("friction", r"1e\+306", "1414")
    ),
    "integers times the length of a step": (
        np.full((3, 3), 2**56), {"dtype": "int64", "cell_size": 100, "connectivity": 4},
        ("friction", str(2**56), "int64"),
    ),
    "initial costs that float32 does not hold": (
        ones(), {"initial_cost": 1e39, "dtype": "float32"}, ("initial_cost", r"1e\+39", "float32")
    ),
    "heights that float32 does not hold": (
        ones((2, 3, 1e39)),
        {"cost": "absolute_difference", "dtype": "float32"},
        ("elevation", r"1e\+39", "row 2, column 3", "nodata"),
    ),
    "heights that integers do not hold": (
        ones((2, 3, -1e30)),
        {"cost": "absolute_difference", "dtype": "int64", "connectivity": 4, "cell_size": 1},
        ("elevation", r"-1e\+30", "row 2, column 3"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BOUNDS)
def test_refuses_what_would_overflow(case: str) -> None:
    friction, options, says = BOUNDS[case]
    with refused(*says):
        og.cost_distance(friction, [(0, 0)], **options)


def cliff(height: float) -> np.ndarray:
    heights = np.zeros((6, 8))
    heights[3:] = height
    return heights


@pytest.mark.parametrize("tile", [3, 8])
def test_a_cost_that_overflows_is_not_called_unreached(tile: int) -> None:
    """On the border of tiles, and inside one; what may cost no more than a bound need not exist."""
    with refused("row 3", "row 2", "float64", "heights 0 and 1000", kind=og.RunError):
        og.walking_time(cliff(1000), [(0, 0)], tile=tile)
    bounded = og.walking_time(cliff(1000), [(0, 0)], tile=tile, max_cost=1e300)
    assert bounded.attrs["unreached_cells"] == 24


def test_a_cost_that_overflows_on_a_gpu_is_not_called_unreached(emulated_gpu: Emulator) -> None:
    """Where the step leads from one tile, in the GPU's memory, to another."""
    with refused("row 3", "row 2", "float64", "heights 0 and 1000", kind=og.RunError):
        og.walking_time(cliff(1000), [(0, 0)], backend="cuda", tile=3)


@pytest.mark.parametrize("backend", ["numba", "cuda"])
def test_of_costs_that_overflow_in_a_tile_the_first_in_its_order_is_named(
    backend: str, emulated_gpu: Emulator
) -> None:
    heights = np.random.default_rng(0).integers(-30, 30, (20, 25)).astype(np.int16)
    heights[0, 0] = heights[0, 20] = heights[9, 4] = heights[19, 8] = 300
    bounded = og.walking_time(heights, [(3, 12)], dtype="float32", max_cost=3e38)["time"].values
    row, column = np.argwhere(bounded < 0 if (bounded < 0).any() else np.isnan(bounded))[0]
    with refused(f"at row {row}, column {column} it", "float32", kind=og.RunError):
        og.walking_time(heights, [(3, 12)], dtype="float32", backend=backend)


@pytest.mark.parametrize("backend", ["numba", "cuda"])
@pytest.mark.parametrize("tile", [8, 16, 64])
def test_of_costs_that_overflow_the_first_in_the_raster_is_named(
    tile: int, backend: str, emulated_gpu: Emulator
) -> None:
    """In tiles further down, or of the same row, there are others, which are written earlier."""
    heights = np.zeros((48, 64), np.int16)
    for row, column in ((5, 2), (3, 50), (40, 3), (20, 20), (9, 60)):
        heights[row, column] = 300
    with og.config.set(field=0), refused("row 3, column 50 it", "float32", kind=og.RunError):
        og.walking_time(heights, [(30, 30)], dtype="float32", backend=backend, tile=tile)


def test_a_way_round_a_step_that_overflows_is_found() -> None:
    heights = cliff(1000)
    heights[:, 7] = np.linspace(0, 1000, 6)
    heights[0] = np.linspace(0, heights[0, 7], 8)
    heights[3:, 6] = heights[3:, 7]
    heights[3:, :6] = heights[3:, 6:7]
    result = og.walking_time(heights, [(0, 0)], cell_size=10)
    assert result.attrs["unreached_cells"] == 0
    assert np.isfinite(result["time"].values).all()


def test_barriers_are_no_overflow() -> None:
    grid = ones()
    grid[:, 3] = np.nan
    result = og.cost_distance(grid, [(0, 0)], tile=2)
    assert result.attrs["unreached_cells"] == 18


# --- sources ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_source_values_are_exact(dtype: Any) -> None:
    raster = np.zeros(SHAPE, dtype)
    raster[0, 0], raster[5, 6] = 2**53, 2**53 + 1
    for target, cell in ((2**53, [0, 0]), (2**53 + 1, [5, 6]), (np.uint64(2**53), [0, 0])):
        cost = og.cost_distance(ones(), raster, source_values=[target, 2**70])["cost"].values
        assert np.argwhere(cost == 0).tolist() == [cell]
    fractions = np.where(raster > 0, 0.5, 0.0)
    cost = og.cost_distance(ones(), fractions, source_values=[0.5, 2**53 + 1])["cost"].values
    assert np.argwhere(cost == 0).tolist() == [[0, 0], [5, 6]]


def test_lists_the_sources_outside_the_grid() -> None:
    with refused("sources", "point 1", "x=570", "point 3", "y=40", "495 to 565", "45 to 105") as _:
        og.cost_distance(located(ones()), [(500, 100), (570, 90), (510, 90), (500, 40)])


def test_snapping_does_not_bring_in_what_lies_outside() -> None:
    with refused("sources", "point 0", "outside"):
        og.cost_distance(ones(), [(1000, 0)], snap=True)


def test_lists_the_sources_on_nodata() -> None:
    with refused("sources", "point 1", "x=2", "y=3", "point 2", "x=1", "nodata", "snap=True"):
        og.cost_distance(ones((3, 2, np.nan), (0, 1, np.nan)), [(0, 0), (2, 3), (1, 0)])


def test_snap_moves_a_source_to_the_nearest_valid_cell() -> None:
    grid = np.full((30, 30), np.nan)
    grid[3, 4] = grid[20, 20] = 1.0
    result = og.cost_distance(grid, [(6, 3)], snap=True, outputs=("cost", "allocation"))
    assert np.argwhere(result["cost"].values == 0).tolist() == [[3, 4]]
    assert result["allocation"].values[3, 4] == 0


def test_snap_goes_no_farther_than_told() -> None:
    grid = np.full((40, 40), np.nan)
    grid[0, 0] = 1.0
    with refused("sources", "x=12", r"\b10 cells", "snap="):
        og.cost_distance(grid, [(12, 0)], snap=True)
    with refused("sources", "x=12", r"\b11 cells", "snap="):
        og.cost_distance(grid, [(12, 0)], snap=11)
    cost = og.cost_distance(grid, [(12, 0)], snap=12)["cost"].values
    assert cost[0, 0] == 0


NO_SOURCE: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "a raster of zeros": (labels(), {}, ("no source",)),
    "a raster of NaN": (np.full(SHAPE, np.nan), {}, ("no source",)),
    "a raster without the values that count": (
        labels((1, 1), (2, 2)),
        {"source_values": [5, 6]},
        ("no source", "5", "6"),
    ),
    "an empty list": ([], {}, ("at least one",)),
    "an empty array": (np.empty((0, 2)), {}, (r"\(0, 2\)", "at least one")),
    "points of three numbers": ([(1, 2, 3)], {}, (r"\(1, 3\)", "x, y")),
    "a point that is not a number": ([(0, 0), (np.nan, 1)], {}, ("point 1", "nan", "finite")),
    "a raster of another shape": (np.ones((5, 7), int), {}, ("5", "7", "6", "grid|raster")),
    "labels that are no whole numbers": (
        np.eye(*SHAPE) * 1.5,
        {"outputs": ("cost", "allocation")},
        (r"1\.5", "row 0", "column 0", "whole"),
    ),
    "a label that marks cells without a source": (
        np.where(np.eye(*SHAPE) > 0, -1, 0),
        {"outputs": ("cost", "allocation")},
        ("-1", "row 0", "column 0", "without a source", "renumber"),
    ),
    "a source value that is complex": (
        labels((1, 1)),
        {"source_values": [1j]},
        ("source_values", "1j", "numbers"),
    ),
    "a source value that is not a number": (
        labels((1, 1)),
        {"source_values": [np.nan]},
        ("source_values", "nan", "finite"),
    ),
    "one source value": (labels((1, 1)), {"source_values": 1}, ("source_values", "give a list")),
    "source values for points": ([(0, 0)], {"source_values": [1]}, ("source_values", "raster")),
    "initial costs for a raster": (labels((1, 1)), {"initial_cost": [1, 2]}, ("initial_cost",)),
    "an initial cost too many": ([(0, 0)], {"initial_cost": [1, 2]}, ("initial_cost", "2", "1")),
    "a negative initial cost": ([(0, 0)], {"initial_cost": -1}, ("initial_cost", "-1", "0")),
    "an infinite initial cost": ([(0, 0)], {"initial_cost": np.inf}, ("initial_cost", "inf")),
    "an initial cost that is not a number": ([(0, 0)], {"initial_cost": np.nan}, ("nan",)),
    "a snap below zero": ([(0, 0)], {"snap": -1}, ("snap", "-1")),
    "a half as initial cost in integers": (
        [(0, 0)],
        {"initial_cost": 0.5, "dtype": "int64", "connectivity": 4, "cell_size": 1},
        ("initial_cost", r"0\.5"),
    ),
}


@pytest.mark.parametrize("case", NO_SOURCE)
def test_refuses_as_sources(case: str, tmp_path: Path) -> None:
    sources, options, says = NO_SOURCE[case]
    name = "initial_cost|source_values|snap" if options else "sources"
    with refused(*says, name if "sources" in name else ".", folder=tmp_path):
        og.cost_distance(ones(), sources, out=tmp_path / "cost.zarr", **options)


def test_a_raster_whose_sources_all_lie_on_nodata_has_none() -> None:
    with refused("source", "nodata"):
        og.cost_distance(ones((2, 2, np.nan)), labels((2, 2)))


def test_nothing_starts_on_nodata() -> None:
    """A barrier is no vertex: it is refused as a source, or is none."""
    grid = ones((2, 2, np.nan))
    try:
        result = og.cost_distance(grid, labels((0, 0), (2, 2)), outputs=("cost", "allocation"))
    except og.InputError:
        with refused("sources", "row 2", "column 2", "nodata"):
            og.cost_distance(grid, labels((0, 0), (2, 2)))
        return
    assert np.isnan(result["cost"].values[2, 2])
    assert result["allocation"].values[2, 2] == -1
    assert result.attrs["reached_cells"] == grid.size - 1


# --- rasters that do not agree, or are missing ---------------------------------------------------


def away(grid: np.ndarray) -> xr.DataArray:
    return located(grid, x0=501.0)


UNLIKE: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "friction of another shape": (
        {"elevation": np.ones((7, 7)), "cost": "walk"},
        ("friction", "7", "6"),
    ),
    "friction somewhere else": (
        {"elevation": located(ones()), "friction": away(ones()), "cost": "walk"},
        ("friction", "x", "501", "500"),
    ),
    "sources somewhere else": (
        {"friction": located(ones()), "sources": located(labels((1, 1)), y0=250.0)},
        ("sources", "y", "250", "100"),
    ),
    "sources of another shape, with coordinates": (
        {"friction": located(ones()), "sources": located(np.ones((5, 7), int))},
        ("sources", "5", "6"),
    ),
    "no elevation to walk over": ({"cost": "walk"}, ("elevation", "None")),
    "no elevation to differ": (
        {"cost": "absolute_difference", "friction": None},
        ("friction", "None"),
    ),
    "no friction": ({"friction": None}, ("friction", "None")),
    "three dimensions": ({"friction": np.ones((2, 3, 4))}, ("2",)),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_refuses_rasters(case: str, tmp_path: Path) -> None:
    given, says = UNLIKE[case]
    first = [(500, 100)] if isinstance(given.get("friction"), xr.DataArray) else [(0, 0)]
    sent = {"friction": ones(), "sources": first, **given}
    with refused(*says, folder=tmp_path):
        distance(**sent, out=tmp_path / "cost.zarr")


def degrees(*names: str) -> xr.DataArray:
    coords = {names[0]: 45 - 0.01 * np.arange(6), names[1]: 7 + 0.01 * np.arange(7)}
    return xr.DataArray(ones(), dims=names, coords=coords)


@pytest.mark.parametrize("names", [("lat", "lon"), ("latitude", "longitude")], ids="-".join)
def test_refuses_degrees_without_a_crs(names: tuple[str, str]) -> None:
    with refused(names[0], names[1], "CRS", "write_crs", "cell_size"):
        og.cost_distance(degrees(*names), [(7, 45)])


def test_refuses_units_of_degrees_without_a_crs() -> None:
    raster = degrees("y", "x")
    raster["y"].attrs["units"], raster["x"].attrs["units"] = "degrees_north", "degrees_east"
    with refused("degrees", "CRS", "cell_size"):
        og.cost_distance(raster, [(7, 45)])


def test_degrees_with_a_crs_or_a_cell_size_are_accepted() -> None:
    counted = og.cost_distance(degrees("lat", "lon"), [(7, 45)], cell_size=1)["cost"].values
    assert counted[0, 6] == 6
    metres = og.cost_distance(degrees("y", "x").rio.write_crs("EPSG:4326"), [(7, 45)])
    assert 6 * 780 < float(metres["cost"][0, 6]) < 6 * 800


# --- options ------------------------------------------------------------------------------------


OPTIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "an unknown model": ({"cost": "slope"}, ("model", "'slope'", "'tobler'", "'walk'")),
    "an unknown travel": ({"travel": "up"}, ("travel", "'up'", "'from'", "'to'")),
    "6 neighbours": ({"connectivity": 6}, ("connectivity", r"\b6\b", r"\b4\b", "8", "16")),
    "neighbours as a word": ({"connectivity": "8"}, ("connectivity", "'8'")),
    "an unknown dtype": ({"dtype": "int32"}, ("dtype", "'int32'", "'float64'", "'int64'")),
    "an unknown output": ({"outputs": ("cost", "hops")}, ("'hops'", "'allocation'")),
    "an unknown coefficient": (
        {"cost": "walk", "coefficients": {"q": 1}},
        ("coefficients", r"\bq\b", "slope_factor"),
    ),
    "a pace below zero": (
        {"cost": "tobler", "coefficients": {"pace": -1}},
        ("pace", r"-1", r"\b0\b"),
    ),
    "a pace that is not a number": (
        {"cost": "tobler", "coefficients": {"pace": np.nan}},
        ("pace", "nan"),
    ),
    "coefficients with which walking costs less than nothing": (
        {"cost": "walk", "coefficients": {"a": 0.1}},
        ("coefficients", r"0\.1", "negative"),
    ),
    "a coefficient that is not a number": (
        {"cost": "walk", "coefficients": {"a": np.nan}},
        ("coefficients", "nan"),
    ),
    **{
        f"{name} of {cost}: {value}": (
            {"cost": cost, "coefficients": {name: value}},
            ("coefficients", name, str(value)),
        )
        for cost, names in {
            "tobler": ("pace",),
            "walk": ("a", "b", "c", "d", "slope_factor", "lambda"),
        }.items()
        for name in names
        for value in (np.nan, np.inf, -np.inf)
    },
    "a coefficient that is a word": (
        {"cost": "walk", "coefficients": {"a": "x"}},
        ("coefficients", "a: 'x'", "number"),
    ),
    "a lambda below zero": ({"cost": "walk", "coefficients": {"lambda": -1}}, ("lambda", "-1")),
    "a bound below zero": ({"max_cost": -1}, ("max_cost", "-1", r"\b0\b")),
    "a bound that is not a number": ({"max_cost": np.nan}, ("max_cost", "nan")),
    "cells of no size": ({"cell_size": 0}, ("cell_size", r"\b0\b", "positive")),
    "cells of negative size": ({"cell_size": (1, -2)}, ("cell_size", "-2", "positive")),
    "cells of infinite size": ({"cell_size": np.inf}, ("cell_size", "inf")),
    "cells of three sides": ({"cell_size": (1, 2, 3)}, ("cell_size", "3")),
    "integers with 8 neighbours": (
        {"dtype": "int64", "cell_size": 1},
        ("int64", "connectivity=4", r"1\.41"),
    ),
    "integers with 16 neighbours": (
        {"dtype": "int64", "cell_size": 1, "connectivity": 16},
        ("int64", "connectivity=4"),
    ),
    "integers with half a cell": (
        {"dtype": "int64", "cell_size": 0.5, "connectivity": 4},
        ("int64", r"0\.5", "cell_size=1"),
    ),
    "integers for Tobler": ({"dtype": "int64", "cost": "tobler"}, ("int64", "float32")),
    "a tile of no cells": ({"tile": 0}, ("tile", r"\b0\b")),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_refuses(case: str, tmp_path: Path) -> None:
    options, says = OPTIONS[case]
    with refused(*says, folder=tmp_path):
        distance(ones(), [(0, 0)], elevation=ones(), out=tmp_path / "cost.zarr", **options)


def test_cost_is_there_whatever_is_asked() -> None:
    result = og.cost_distance(ones(), [(0, 0)], outputs=("back_direction",))
    assert set(result.data_vars) == {"cost", "back_direction"}


# --- outputs ------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_refuses_to_overwrite_unless_told_to(tmp_path: Path) -> None:
    out = tmp_path / "cost.zarr"
    og.cost_distance(ones(), [(0, 0)], out=out)
    before = tree(out)
    with refused(re.escape(str(out)), "overwrite=True", folder=tmp_path, kind=FileExistsError):
        og.cost_distance(ones(), [(3, 3)], out=out)
    assert tree(out) == before
    og.cost_distance(ones(), [(3, 3)], out=out, overwrite=True)
    assert float(og.open(out)["cost"][3, 3]) == 0


OVER_ITSELF: dict[str, Callable[[Path], object]] = {
    "friction": lambda s: og.cost_distance(s, [(0, 0)], out=s, overwrite=True),
    "elevation": lambda s: og.walking_time(s, [(0, 0)], friction=ones(), out=s, overwrite=True),
    "walker's friction": lambda s: og.walking_time(
        ones(), [(0, 0)], friction=s, out=s, overwrite=True
    ),
    "sources": lambda s: og.cost_distance(ones(), s, out=s, overwrite=True),
}


@pytest.mark.filterwarnings("ignore:.*all cells are sources")
@pytest.mark.parametrize("which", OVER_ITSELF)
def test_never_writes_over_its(which: str, tmp_path: Path) -> None:
    store = tmp_path / "input.zarr"
    og.ingest(ones(), store, tile=4)
    before = tree(tmp_path)
    with pytest.raises((ValueError, FileExistsError), match=re.escape(str(store))):
        OVER_ITSELF[which](store)
    assert tree(tmp_path) == before


def test_a_plan_of_distances_counts_cells_and_grows_with_tiles_not_with_the_grid() -> None:
    small, large, tiles = (
        og.cost_distance.plan(og.RasterSpec((n, n)), tile=tile, memory_limit="1 GiB")
        for n, tile in ((8192, 1024), (32768, 1024), (8192, 2048))
    )
    assert large.bytes_written == 16 * small.bytes_written == 32768**2 * 8
    assert small.memory_per_worker == large.memory_per_worker
    needed = [plan.memory_per_worker - plan.memory_kept for plan in (small, large, tiles)]
    assert needed[0] == needed[1] < needed[2]  # the rest is kept by choice, up to the same limit
    assert og.hop_distance.plan(og.RasterSpec((8192, 8192)), tile=1024).bytes_written == 8192**2 * 4


def test_a_model_may_have_a_table_of_coefficients(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(MODELS["tobler"], table="speed", vectors=None, check=None)
    monkeypatch.setitem(MODELS, "tobler", row)
    assert model_coefficients("tobler", {"speed": [3, 4.5]}) == (0.6, 3.0, 4.5)
    assert model_coefficients("tobler", {"speed": np.arange(2), "pace": 1}) == (1.0, 0.0, 1.0)
    for given, message in (
        (None, r"speed: \(\); the model 'tobler' needs a sequence of numbers"),
        ({"speed": []}, r"speed: \[\]; .* needs a sequence"),
        ({"speed": 3}, "speed: 3; .* needs a sequence"),
        ({"speed": [1, "x"]}, r"speed\[1\]"),
        ({"haste": 1}, "haste unknown"),
    ):
        with pytest.raises(og.InputError, match=message):
            model_coefficients("tobler", given)


def test_points_lie_on_cells_that_have_a_height_and_a_friction() -> None:
    heights, over = ones(), ones()
    heights[0, 0] = over[0, 1] = np.nan
    for point in ((0, 0), (1, 0)):
        with refused("sources", "point 0", "nodata", "snap"):
            og.walking_time(heights, [point], friction=over)
    snapped = og.walking_time(heights, [(0, 0)], friction=over, snap=True)["time"].values
    assert np.argwhere(snapped == 0).tolist() == [[1, 0]]
