"""Distances in the plane: whole numbers by the definition, floats, scikit-fmm, and even ground."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_eikonal import SCALE, real, solve, whole
from scipy.sparse import csr_array

import orograph as og
from orograph.arguments.sources import Sources
from orograph.cli.main import main
from orograph.distance.eikonal.problem import Eikonal
from orograph.engines.frontier.protocol import Request
from orograph.kernels.eikonal.cuda import march as on_gpu
from orograph.kernels.eikonal.march import FAR, floor_root, march, update
from orograph.tiles.grid.quadtree import Node, Place, Sides
from orograph.tiles.grid.window import Window


def ground(seed: int, shape: tuple[int, int], barred: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    friction = rng.uniform(0.5, 10, shape)
    friction[rng.random(shape) < barred] = np.nan
    friction[0, 0] = 1
    return friction


def eikonal(friction: Any, sources: Any, **options: Any) -> xr.Dataset:
    return og.cost_distance(friction, sources, cost="eikonal", **options)


def wholes(friction: np.ndarray) -> np.ndarray:
    return np.rint(np.nan_to_num(friction) * SCALE).astype(np.int64)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    shape=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    tile=st.sampled_from([1, 3, 7, 64]),
    side=st.sampled_from([1.0, 30.0, 0.1]),
)
def test_the_numbers_are_those_of_the_definition_for_any_tiling(
    seed: int, shape: tuple[int, int], tile: int, side: float
) -> None:
    friction = ground(seed, shape)
    y, x = (int(n) - 1 for n in shape)
    friction[y, x] = 2
    starts = {(0, 0): 0.0, (y, x): 1.5 * side}
    points = [(x, y) for y, x in starts]
    found = eikonal(friction, points, initial_cost=list(starts.values()), cell_size=side, tile=tile)
    begin: dict[tuple[int, int], int] = {}
    for cell, cost in starts.items():
        begin[cell] = min(round(cost / side * SCALE), begin.get(cell, 2**60))
    expected = solve(wholes(friction), begin, whole)
    np.testing.assert_array_equal(found["cost"], expected * (side / SCALE))
    assert found.attrs["reached_cells"] == np.isfinite(expected).sum()
    assert found.attrs["nodata_cells"] == np.isnan(friction).sum()


def test_rounding_is_less_than_a_unit_a_cell() -> None:
    friction = ground(1, (30, 40))
    found = eikonal(friction, [(0, 0)])["cost"].values * SCALE
    expected = solve(np.nan_to_num(friction) * SCALE, {(0, 0): 0.0}, real)
    assert np.array_equal(np.isfinite(found), np.isfinite(expected))
    assert np.nanmax(np.abs(found - expected)) < friction.size


@pytest.mark.parametrize("smooth", [True, False])
def test_it_is_within_three_percent_of_scikit_fmm(smooth: bool) -> None:
    skfmm = pytest.importorskip("skfmm", reason="scikit-fmm is not installed: orograph[dev]")
    rows, columns = np.indices((120, 150))
    friction = 2 + np.sin(rows / 17) + np.cos(columns / 11) / 2 if smooth else ground(3, (120, 150))
    phi = np.ones(friction.shape)
    at = rows[60, 70], columns[60, 70]
    friction[at] = 1
    phi[at] = -1
    speed = np.ma.MaskedArray(1 / friction, np.isnan(friction))
    phi = np.ma.MaskedArray(phi, np.isnan(friction))
    theirs = np.ma.filled(skfmm.travel_time(phi, speed, order=1), np.nan)
    ours = eikonal(friction, [(70, 60)])["cost"].values
    far = np.hypot(rows - 60, columns - 70) > 40
    far &= np.isfinite(theirs) & np.isfinite(ours)
    assert far.sum() > 5000
    # they begin half a cell from the source
    assert np.max(np.abs(ours[far] / (theirs[far] + friction[at] / 2) - 1)) < 0.03


def test_distances_on_even_ground_are_nearly_round() -> None:
    side, middle = 401, 200
    found = eikonal(np.ones((side, side)), [(middle, middle)])["cost"].values
    rows, columns = np.indices(found.shape) - middle
    straight = np.hypot(rows, columns)
    far = straight > 50
    excess = found[far] / straight[far] - 1
    assert excess.min() > -1e-4
    assert excess.max() < 0.0241
    octagon = og.cost_distance(np.ones((side, side)), [(middle, middle)])["cost"].values
    assert (octagon[far] / straight[far] - 1).max() > 0.08


def test_workers_threads_and_rasters_of_sources_change_no_bit(
    tmp_path: Path, client: Client
) -> None:
    friction = ground(5, (70, 90))
    friction[69, 89] = 1
    sources = np.zeros(friction.shape, np.uint8)
    sources[0, 0], sources[69, 89] = 4, 9
    expected = eikonal(friction, [(0, 0), (89, 69)])
    og.ingest(friction, tmp_path / "friction.zarr", tile=16, shard=32)
    at = tmp_path / "friction.zarr"
    found = eikonal(at, sources, out=tmp_path / "cost.zarr", client=client)
    np.testing.assert_array_equal(found["cost"], expected["cost"])
    for name in ("reached_cells", "unreached_cells", "nodata_cells"):
        assert found.attrs[name] == expected.attrs[name]
    one = eikonal(friction, sources, source_values=[9], tile=8)
    np.testing.assert_array_equal(one["cost"], eikonal(friction, [(89, 69)])["cost"])


@pytest.mark.parametrize("tile", [5, 16, 64])
def test_a_gpu_gives_the_same_bits(tile: int, emulated_gpu: Emulator) -> None:
    friction = ground(9, (37, 50))
    barriers = np.random.default_rng(2).random(friction.shape) < 0.1
    barriers[0, 0] = False
    for bound in (math.inf, 60.0):
        how: dict[str, Any] = {"barriers": barriers, "max_cost": bound}
        before = emulated_gpu.launches
        found = eikonal(friction, [(0, 0)], backend="cuda", tile=tile, **how)
        assert emulated_gpu.launches > before
        assert found.identical(eikonal(friction, [(0, 0)], backend="numba", **how))


def test_a_tile_is_marched_to_the_same_values_in_any_order_of_threads(emulator: Emulator) -> None:
    costs = wholes(ground(11, (33, 41)))
    values = np.full((35, 43), FAR)
    values[1, 1], values[20, 0] = 0, 3 * SCALE  # a source, and a value in the halo
    results = []
    for run in (march, partial(on_gpu, device=emulator)):
        own, waiting = values.copy(), values < FAR
        settled = run(own, costs, waiting, math.inf, FAR - 1)[1]
        assert settled >= (own < FAR).sum() - 2 > 900
        assert not waiting.any()
        results.append(own)
    np.testing.assert_array_equal(*results)


def test_a_tile_goes_on_from_what_was_saved() -> None:
    """A visit that ends at a bound, is packed, and goes on in a state that is opened anew."""
    friction = ground(12, (20, 30))
    window = Window(0, 0, *friction.shape)
    place = Place(Node(0, 0), window, Sides(False, False, False, False), friction.shape)
    one = np.array([0])
    problem = Eikonal(
        *({"friction": None}, 1.0, np.dtype(np.float64)),
        sources=Sources(one, one, np.array([0.0]), one),
    )
    nothing = Request((0, 0), 0.0, [None] * 8, [None] * 8)
    bound = 40.0 * SCALE
    first = problem.open(place, [friction], window)
    visit = problem.visit(first, nothing, bound)
    assert bound < visit.pending < math.inf
    saved = problem.pack(first)
    again = problem.open(place, [friction], window)
    problem.unpack(again, saved)
    assert problem.visit(again, nothing, math.inf).pending == math.inf
    expected = eikonal(friction, [(0, 0)])["cost"]
    np.testing.assert_array_equal(problem.finish(again)[0]["cost"], expected)
    near = expected.values <= 40
    np.testing.assert_array_equal(first.values[1:-1, 1:-1][near] / SCALE, expected.values[near])


def test_bounds_barriers_and_dtype() -> None:
    friction = ground(6, (40, 50))
    whole_field = eikonal(friction, [(0, 0)])["cost"].values
    most = np.nanmedian(whole_field)
    bounded = eikonal(friction, [(0, 0)], max_cost=most, tile=8)
    near = np.where(whole_field <= most, whole_field, np.nan)
    np.testing.assert_array_equal(bounded["cost"], near)
    barriers = np.isnan(friction)
    filled = np.where(barriers, 3.0, friction)
    for travel in ("from", "to"):
        barred = eikonal(filled, [(0, 0)], barriers=barriers, tile=16, travel=travel)
        np.testing.assert_array_equal(barred["cost"], whole_field)
    single = eikonal(friction, [(0, 0)], dtype="float32")["cost"]
    np.testing.assert_array_equal(single, whole_field.astype(np.float32))


def path_of(result: xr.Dataset) -> np.ndarray:
    return og.least_cost_path(result, [(80, 41)])[0].line


def path_on(axes: dict[str, np.ndarray], line: np.ndarray) -> np.ndarray:
    """A line of columns and rows, in the coordinates of a grid of cells with a side of 2."""
    return np.array([axes["x"][0], axes["y"][0]]) + line * [2, -2]


def test_a_path_goes_down_the_field(tmp_path: Path) -> None:
    even = np.ones((60, 90))
    result = eikonal(even, [(3, 4)], out=tmp_path / "even.zarr", tile=16)
    (path,) = og.least_cost_path(result, [(80, 41)])
    assert path.cells[0].tolist() == [41, 80]
    assert path.cells[-1].tolist() == [4, 3]
    assert (np.abs(np.diff(path.cells, axis=0)).sum(axis=1) == 1).all()
    assert (np.diff(result["cost"].values[tuple(path.cells.T)]) < 0).all()
    # the straight line, along which no path of 8 neighbours lies
    assert path.line[[0, -1]].tolist() == [[80, 41], [3, 4]]
    share = (path.line[:, 0] - 3) / 77
    assert np.abs(path.line[:, 1] - 4 - 37 * share).max() < 1.5
    length = np.hypot(*np.diff(path.line, axis=0).T).sum()
    assert length == pytest.approx(math.hypot(77, 37), rel=0.005)
    friction = ground(7, (40, 50), barred=0.35)
    rough = eikonal(friction, [(0, 0)])
    reached = np.argwhere(np.isfinite(rough["cost"].values))
    for path in og.least_cost_path(rough, reached[::40, ::-1].astype(float)):
        assert path.cells[-1].tolist() == [0, 0]
        assert (np.abs(np.diff(path.cells, axis=0)).sum(axis=1) == 1).all()
        assert np.isfinite(friction[tuple(path.cells.T)]).all()
    axes = {"y": 100 - 2.0 * np.arange(60), "x": 7 + 2.0 * np.arange(90)}
    placed = eikonal(xr.DataArray(even, axes, ("y", "x")), [(7 + 6, 100 - 8)])
    (there,) = og.least_cost_path(placed, [(7 + 160, 100 - 82)])
    np.testing.assert_allclose(there.line, path_on(axes, path_of(result)), atol=1e-9)


def test_roots_and_updates_are_exact() -> None:
    rng = np.random.default_rng(0)
    numbers = [0, 1, 2, 3, 4, 2**62, 2 * (2**31 - 1) ** 2, *rng.integers(0, 2**62, 2000).tolist()]
    numbers += [n * n + d for n in (2**20, 2**30, 3037000498) for d in (-1, 0, 1)]
    for number in numbers:
        assert floor_root(np.int64(number)) == math.isqrt(number)
    for a, b, c in rng.integers(1, 2**31 - 1, (2000, 3)).tolist():
        assert update(a, b, c) == whole(a, b, c)
        assert max(a, min(b, a + c)) <= update(a, max(a, b), c) <= update(a + 1, max(a, b), c)


BRIDGE = og.read_graph(csr_array(np.ones((2, 2))), directed=False)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "connectivity": ({"connectivity": 16}, "connectivity: 16 with cost='eikonal'"),
    "back directions": ({"outputs": ("cost", "back_direction")}, "outputs: .*leave it out"),
    "allocation": ({"outputs": "allocation"}, "outputs: .*leave it out"),
    "links": (
        {"links": BRIDGE}, "links: a graph with cost='eik"),
    "integers": ({"dtype": "int64"}, "dtype: 'int64' with cost='eikonal'; use a float"),
    "cells that are not square": ({"cell_size": (1, 2)}, "cells of 1 by 2 with cost='eikonal'"),
    "too much friction": ({"friction": np.full((3, 3), 5000.0)}, "friction: 5000.0 at row 0, col"),
    "no friction": ({"friction": np.zeros((3, 3))}, "friction: 0.0 at row 0, .*multiply all"),
    "initial cost of a raster": (
        {"sources": np.eye(3), "initial_cost": 2.0}, "initial_cost: .* it is for points"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_calls_that_are_refused(case: str) -> None:
    given, message = BAD[case]
    with pytest.raises(og.InputError, match=message):
        eikonal(**{"friction": np.ones((3, 3)), "sources": [(0, 0)], **given})


def test_degrees_and_paths_that_are_refused() -> None:
    axes = {"lat": [10.0, 9.0, 8.0], "lon": [1.0, 2.0, 3.0]}
    degrees = xr.DataArray(np.ones((3, 3)), axes, ("lat", "lon")).rio.write_crs("EPSG:4326")
    with pytest.raises(og.InputError, match="cells of degrees are not squares"):
        eikonal(degrees, [(1, 10)])
    assert eikonal(degrees, [(1, 10)], cell_size=1)["cost"].values[0, 2] == 2
    single = eikonal(np.ones((3, 3)), [(0, 0)], dtype="float32")
    with pytest.raises(og.InputError, match="costs are float32, too coarse"):
        og.least_cost_path(single, [(1, 1)])


def test_the_plan_and_the_command(tmp_path: Path) -> None:
    friction = ground(8, (30, 40))
    plan = og.cost_distance.plan(friction, cost="eikonal")
    assert plan.memory_per_worker > 0
    og.ingest(friction, tmp_path / "friction.zarr")
    line = ["cost", str(tmp_path / "friction.zarr"), str(tmp_path / "cost.zarr")]
    line += ["--point", "0", "0", "--cost", "eikonal", "--workers", "1"]
    assert main(line) == 0
    expected = eikonal(friction, [(0, 0)])["cost"]
    np.testing.assert_array_equal(og.open(tmp_path / "cost.zarr")["cost"], expected)
