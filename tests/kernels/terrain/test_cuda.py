"""The basins of a tile on a GPU: equal to those of the Numba kernel, and whole runs as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from cuda_on_cpu.emulator import ORDERS, Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st

import orograph as og
from orograph.kernels.terrain import basins as host
from orograph.kernels.terrain.cuda import raise_cells, tile_basins

Array = np.ndarray[Any, Any]
DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64"),
)
# as wide and as narrow ones, with and without a sign, are worked out alike
BETWEEN = ("int8", "int32", "uint16", "uint32")

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler; install g++")


def check(
    values: Array,
    nodata: float | None = None,
    connectivity: int = 8,
    upside_down: bool = False,
    device: Emulator | None = None,
) -> host.TileBasins:
    """Compare the basins, edges and raised cells with those of the Numba kernels."""
    device = device or Emulator("random", 1)
    arguments = values, nodata, connectivity, upside_down
    found, expected = tile_basins(*arguments, device=device), host.tile_basins(*arguments)
    for name, ours, theirs in zip(host.TileBasins._fields, found, expected):
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    levels = np.random.default_rng(3).choice(values.ravel(), expected.pits.size + 1)
    raised = device.download(raise_cells(values, found.labels, levels, device=device))
    wanted = host.raise_cells(values, expected.labels, levels)
    assert raised.dtype == wanted.dtype
    assert raised.tobytes() == wanted.tobytes()
    return expected


def fractal(h: int, w: int) -> Array:
    """Terrain-like heights: sums of coarser and coarser noise."""
    rng = np.random.default_rng(3)
    heights = np.zeros((h, w))
    for size in (1, 2, 4, 8, 16, 32):
        coarse = rng.normal(0, size, (h // size + 2, w // size + 2))
        heights += np.kron(coarse, np.ones((size, size)))[:h, :w]
    return heights


def serpentine(h: int, w: int) -> Array:
    """A valley that falls all the way, to and fro, between walls."""
    heights = np.full((h, w), 1e6)
    y, x = np.mgrid[0:h:2, 0:w]
    heights[::2] = -(y * w + np.where(y % 4, w - 1 - x, x))
    heights[1::4, -1] = heights[:-1:4, -1] - 0.5
    heights[3::4, 0] = heights[2:-1:4, 0] - 0.5
    return heights


NOISE = np.random.default_rng(0).uniform(-500, 1000, (70, 101))
GRIDS = {
    "noise": NOISE,
    "terrain": fractal(97, 70),
    "plateaus": np.floor(fractal(80, 66) / 20),
    "all equal": np.ones((69, 70)),
    "a slope": np.add.outer(np.arange(66) * 100.0, np.arange(65)),
    "a slope the other way": np.add.outer(np.arange(66) * -100.0, -np.arange(65)),
    "a serpentine": serpentine(71, 90),
    "holes": np.where(NOISE < 0, np.nan, NOISE),
    "all nodata": np.full((33, 34), np.nan),
    "one row": NOISE[:1],
    "one column": NOISE[:, :1],
    "two by two": NOISE[:2, :2],
    "one cell": NOISE[:1, :1],
    "one block": NOISE[:32, :32],
    "a row and a column more than blocks": NOISE[:65, :97],
}


@pytest.mark.diagonal
@pytest.mark.parametrize("name", GRIDS)
def test_a_tile_has_the_basins_of_the_numba_kernel(emulator: Emulator, name: str) -> None:
    check(GRIDS[name].astype(np.float32), device=emulator)


@pytest.mark.diagonal
@pytest.mark.parametrize("upside_down", [False, True])
@pytest.mark.parametrize("connectivity", [8, 4])
@pytest.mark.parametrize("name", ["noise", "plateaus", "holes", "all equal"])
def test_neighbours_and_order(name: str, connectivity: int, upside_down: bool) -> None:
    check(GRIDS[name].astype(np.float32), 1.0, connectivity, upside_down)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(dtype, marks=pytest.mark.long if dtype in BETWEEN else ()) for dtype in DTYPES],
)
def test_every_dtype_to_its_ends(dtype: str) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 120, (35, 40)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        limits = np.finfo(np.dtype(dtype))
        special = [-0.0, np.nan, np.inf, -np.inf, limits.smallest_subnormal, limits.max, limits.min]
    else:
        info = np.iinfo(dtype)
        special = [info.min, info.min + 1, info.max - 1, info.max]
    where = rng.random(values.shape) < 0.2
    values[where] = rng.choice(np.array(special, dtype), where.sum())
    for nodata in (None, 7, values.flat[np.flatnonzero(where)[0]].item()):
        for upside_down in (False, True):
            check(values, nodata, 8, upside_down)


def test_more_basins_than_labels_of_16_bits() -> None:
    heights = np.indices((363, 363)).sum(axis=0) % 2  # by 4 neighbours each low cell is a pit
    assert check(heights.astype(np.int8), None, 4).pits.size > 2**16


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**32),
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.sampled_from([1, 2, 5, 30_000]),
    st.sampled_from([None, 0, -1]),
    st.sampled_from([8, 4]),
    st.booleans(),
    st.sampled_from(ORDERS),
)
def test_any_tile_in_any_order(
    seed: int,
    shape: tuple[int, int],
    levels: int,
    nodata: int | None,
    connectivity: int,
    upside_down: bool,
    order: str,
) -> None:
    values = np.random.default_rng(seed).integers(-levels, levels, shape).astype(np.int16)
    check(values, nodata, connectivity, upside_down, Emulator(order, seed))


PLACES = [(3, 4), (60, 20), (50, 66)]
OPERATIONS: dict[str, Callable[..., xr.Dataset]] = {
    "filling": lambda dem, **o: og.fill_depressions(
        dem, outputs=("filled", "depth", "depression"), **o
    ),
    "flood": lambda dem, **o: og.flood_level(dem, PLACES[:2], **o),
    "passes": lambda dem, **o: og.pass_elevation(dem, PLACES, paths=True, **o),
    "peaks": og.peaks,
    "depressions": lambda dem, **o: og.depressions(dem, labels=True, **o),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_run_on_a_gpu_has_the_result_of_one_on_a_cpu(name: str, emulated_gpu: Emulator) -> None:
    heights = np.floor(fractal(90, 80)).astype(np.float32)
    heights[30:40, 20:50] = np.nan
    theirs = OPERATIONS[name](heights, tile=64, backend="numba")
    assert emulated_gpu.launches == 0
    ours = OPERATIONS[name](heights, tile=64, backend="cuda")
    assert emulated_gpu.launches > 0
    xr.testing.assert_identical(ours, theirs)
