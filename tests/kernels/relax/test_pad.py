"""Costs with their halo, and results read out: against NumPy, on both backends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.kernels.label.renumber import renumber
from orograph.kernels.relax import pad as surface
from orograph.kernels.relax import pad_cuda as surface_cuda
from orograph.kernels.relax.models import BARRIER, CostModel
from orograph.kernels.relax.tile import tile_state
from orograph.tiles.nodata import valid_cells

DTYPES = ["uint8", "int16", "int32", "int64", "uint64", "float32", "float64"]
BACKENDS = ["numba", "cuda"]


def on(backend: str) -> tuple[Any, dict[str, Any]]:
    if backend == "numba":
        return surface, {}
    if find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    return surface_cuda, {"device": Emulator("forward")}


def cells_of(dtype: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 6, shape).astype(dtype)
    if cells.dtype.kind == "f":
        cells[rng.random(shape) < 0.2] = np.nan
        cells[rng.random(shape) < 0.1] = np.inf
        cells[rng.random(shape) < 0.1] = -0.0
        cells[rng.random(shape) < 0.1] = 1e-40  # of single precision subnormal
    elif cells.dtype.itemsize == 8:
        cells[rng.random(shape) < 0.2] = 2**57 + 1
    return cells


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    target=st.sampled_from(["float64", "float32", "int64"]),
    height=st.integers(1, 9),
    width=st.integers(1, 40),
    margins=st.tuples(*[st.integers(0, 2)] * 4),
    nodata=st.sampled_from([None, 0, 3, float("nan")]),
    unit=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 2**16),
)
def test_costs_are_laid_into_a_halo_of_barriers(
    backend: str,
    dtype: str,
    target: str,
    height: int,
    width: int,
    margins: tuple[int, int, int, int],
    nodata: float | None,
    unit: int,
    seed: int,
) -> None:
    kernels, options = on(backend)
    cells = cells_of(dtype, (height, width), seed)
    if nodata is not None and np.isnan(nodata) and cells.dtype.kind != "f":
        nodata = None
    top, bottom, left, right = margins
    shape = height + top + bottom, width + left + right
    where = np.s_[top : top + height, left : left + width]
    barrier = BARRIER if target == "int64" else np.nan
    valid = valid_cells(cells, nodata)
    costs = np.where(valid, cells, 0).astype(target)
    if target == "int64":
        costs //= unit
    else:
        unit = 1
    for mask, inside in (
        (False, costs),
        (True, np.ones(cells.shape, target)),
    ):
        known = valid & (cells != 0) if mask else valid
        expected = np.full(shape, barrier, target)
        np.copyto(expected[where], inside, where=known)
        found = kernels.pad_costs(
            *(cells, nodata, shape, (top, left), np.dtype(target), mask, 1 if mask else unit),
            **options,
        )
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(found), expected)


@settings(max_examples=80, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    nodata=st.sampled_from([None, 0, 5, float("inf"), float("nan")]),
    most=st.floats(0, 7),
    seed=st.integers(0, 2**16),
)
def test_the_first_cell_out_of_range_is_found(
    dtype: str, nodata: float | None, most: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cells = cells_of(dtype, (7, 11), seed)
    if cells.dtype.kind != "u":
        cells[rng.random(cells.shape) < 0.05] = -1
    elif nodata is not None and not np.isfinite(nodata):
        nodata = None
    if cells.dtype.kind != "f" and nodata is not None and not np.isfinite(nodata):
        nodata = None
    with np.errstate(invalid="ignore"):
        bad = ((cells < 0) | (cells > most)) & np.isfinite(cells)  # others are barriers
    if nodata is not None and not np.isnan(nodata):
        bad &= cells != cells.dtype.type(nodata)
    expected = int(bad.argmax()) if bad.any() else -1
    assert surface.first_outside(cells, nodata, most) == expected


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("dtype", "model", "connectivity"),
    [
        ("float64", "friction", 8),
        ("float32", "tobler", 16),
        ("float32", "absolute_difference", 4),
        ("int64", "friction", 4),
        ("int64", "absolute_difference", 8),
    ],
)
def test_what_is_written_of_a_tile(backend: str, dtype: str, model: str, connectivity: int) -> None:
    kernels, options = on(backend)
    rng = np.random.default_rng(3)
    reach = 2 if connectivity == 16 else 1
    shape, inner = (20, 33), np.s_[reach:-reach, reach:-reach]
    integer = dtype == "int64"
    nothing, barrier = (BARRIER, BARRIER) if integer else (np.inf, np.nan)
    dist = rng.integers(0, 100, shape).astype(dtype)
    dist[rng.random(shape) < 0.1] = 2**55 + 1 if integer else 1e-40
    dist[rng.random(shape) < 0.3] = nothing
    rasters = {}
    for name in {"friction": ["friction"], "tobler": ["friction", "elevation"]}.get(
        model, ["elevation"]
    ):
        rasters[name] = rng.integers(1, 9, shape).astype(dtype)
        rasters[name][rng.random(shape) < 0.2] = barrier
    more = {"model": CostModel(model), "connectivity": connectivity, **rasters}
    there = dist[inner] < nothing
    barred = np.zeros(there.shape, bool)
    for raster in rasters.values():
        barred |= (raster[inner] == BARRIER) if integer else np.isnan(raster[inner])
    for per, target, blank in ((1, dtype, -1 if integer else np.nan), (2, "int32", -1)):
        if per == 2 and not integer:
            continue
        state = tile_state(dist.copy(), **more)
        found = kernels.read_out(state, np.dtype(target), blank, per, **options)
        own = np.where(there, dist[inner], 0)
        expected = np.where(there, own // per if per > 1 else own, blank).astype(target)
        assert found.values.dtype == target
        np.testing.assert_array_equal(np.asarray(found.values), expected)
        assert found.reached == there.sum()
        assert found.barriers == barred.sum()
        assert found.cut_off == (~there & ~barred).sum()


def test_labels_are_looked_up() -> None:
    rng = np.random.default_rng(0)
    labels, table = rng.integers(0, 50, (13, 7)).astype(np.int32), rng.integers(0, 9**9, 50)
    out = np.empty(labels.shape, np.int64)
    renumber(labels, table, out.reshape(-1), 7)
    np.testing.assert_array_equal(out, table[labels])
