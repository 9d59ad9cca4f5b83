"""Both backends give the same bits, also of numbers that CuPy or a detour by float64 would change.

Subnormal numbers of single precision, uint64, and heights that float64 cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orograph as og

Array = np.ndarray[Any, Any]
KINDS = ("subnormal", "subnormal beside normal", "uint64", "beyond 2**53")
ours = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def numbers(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Values of few levels, so that there are ties."""
    levels = rng.integers(0, 9, shape)
    if kind == "uint64":
        return levels.astype(np.uint64) + np.uint64(2**64 - 10)
    if kind == "beyond 2**53":
        return levels + 2**56
    cells = (10.0 ** rng.uniform(-45, -37, 9)).astype(np.float32)[levels]
    if kind == "subnormal beside normal":
        cells[rng.random(shape) < 0.3] = 1
    cells[rng.random(shape) < 0.1] = np.nan
    return cells


@st.composite
def rasters(draw: st.DrawFn) -> tuple[Array, int]:
    """A raster and a side of tiles."""
    shape = draw(st.tuples(st.integers(2, 40), st.integers(2, 40)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return numbers(draw(st.sampled_from(KINDS)), shape, rng), draw(st.sampled_from([7, 16, 64]))


OPERATIONS: dict[str, Callable[..., xr.Dataset]] = {
    "forest": og.minimum_spanning_forest,
    "forest by differences": lambda cells, **o: og.minimum_spanning_forest(
        cells, weight="absolute_difference", **o
    ),
    "filling": lambda cells, **o: og.fill_depressions(cells, outputs=("filled", "depression"), **o),
    "flow": lambda cells, **o: og.flow_accumulation(cells, method="d8", **o),
    "components": lambda cells, **o: og.connected_components(
        cells, outputs=("labels", "component_size"), **o
    ),
    "components without one value": lambda cells, **o: og.connected_components(
        cells, nodata=cells.flat[0].item(), **o
    ),
}


def same_on_both(operation: Callable[..., xr.Dataset], device: Emulator) -> xr.Dataset:
    """The result, which has the same bits on both backends."""
    expected, launched = operation(backend="numba"), device.launches
    found = operation(backend="cuda")
    assert device.launches > launched
    assert set(found) == set(expected)
    for name in expected:
        ours, theirs = found[name].values, expected[name].values
        assert type(ours) is np.ndarray
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes(), name
    return expected


@pytest.mark.parametrize("name", OPERATIONS)
@ours
@given(drawn=rasters())
def test_sweeps(name: str, drawn: tuple[Array, int], emulated_gpu: Emulator) -> None:
    cells, tile = drawn
    if not np.isfinite(cells).any():
        cells[0, 0] = 1
    same_on_both(lambda **o: OPERATIONS[name](cells, tile=tile, **o), emulated_gpu)


@ours
@given(drawn=rasters(), data=st.data())
def test_distances(drawn: tuple[Array, int], data: st.DataObject, emulated_gpu: Emulator) -> None:
    cells, tile = drawn
    cells[0, 0] = cells[np.isfinite(cells)].max(initial=0)
    small = cells.dtype.kind == "f"
    sources: Any = [(0, 0), (0, 0)]
    how: dict[str, Any] = {"initial_cost": [3e-41, 1e-41]} if small else {}
    dtype = data.draw(st.sampled_from(["float64", "float32"]), label="dtype")
    if small:
        # both conversions, and the one that is none
        cells = cells.astype(data.draw(st.sampled_from(["float64", "float32"]), label="cells"))
        if data.draw(st.booleans(), label="raster of sources"):
            sources, how = (cells == cells[0, 0]).astype(np.uint8), {}
    elif data.draw(st.booleans(), label="whole numbers"):
        dtype = "int64"
        cells = cells >> np.uint64(8) if cells.dtype.kind == "u" else cells
    model = data.draw(st.sampled_from(["friction", "absolute_difference"]), label="cost")
    how |= {"cost": model, "dtype": dtype, "cell_size": 1, "connectivity": 8, "tile": tile}
    if dtype == "int64" and model == "friction":
        how["connectivity"] = 4
        cells = cells % cells.dtype.type(2**40) * cells.dtype.type(2)  # whole costs of half steps
    how["outputs"] = ("cost", "back_direction", "allocation")
    same_on_both(lambda **o: og.cost_distance(cells, sources, **how, **o), emulated_gpu)


def test_subnormal_costs_are_added_up_on_a_gpu(emulated_gpu: Emulator) -> None:
    friction = np.full((3, 5), 1e-40, np.float32)
    found = og.cost_distance(friction, [(0, 0)], cell_size=1, backend="cuda")["cost"].values
    assert found[0].tolist() == [float(friction[0, 0]) * n for n in range(5)]


def test_a_mask_of_subnormal_numbers_is_passable(emulated_gpu: Emulator) -> None:
    mask = np.array([[1e-40, 3e-39, 0, 1]], np.float32)
    found = og.hop_distance(mask, [(0, 0)], connectivity=4, backend="cuda")["hops"].values
    assert found.tolist() == [[0, 1, -1, -1]]
