"""Boundary propagation against plain NumPy, and with vectors of other lengths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config

from orograph.kernels.boundary.propagate import (
    lane_columns,
    no_arrivals,
    no_costs,
    pack_panels,
    relax_edges,
    rounding,
    unreached,
    visit,
)
from orograph.kernels.minplus.lanes import VECTOR_BYTES

Array = npt.NDArray[Any]
DTYPES = ("float64", "float32", "int64")


def some_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, gaps: float) -> Array:
    """Random costs, zeros and unreached ones among them."""
    values = rng.uniform(0, 100, shape) * (rng.random(shape) > 0.1)
    found = values.astype(dtype)
    found[rng.random(shape) < gaps] = unreached(dtype)
    return found


@given(
    st.sampled_from(DTYPES),
    st.integers(1, 60),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.integers(0, 2**32),
)
@settings(max_examples=80, deadline=None)
def test_a_visit_and_the_edges_behind_it(
    dtype: str, cells: int, lanes: int, symmetric: bool, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = some_values(rng, (cells, cells), dtype, 0.2)
    if symmetric:
        matrix = np.minimum(matrix, matrix.T)
    np.fill_diagonal(matrix, 0)
    stored = matrix[np.tri(cells, dtype=bool)] if symmetric else matrix.reshape(-1)
    wide = lane_columns(dtype)
    held = no_costs(lanes, cells, dtype)
    held[:, :cells] = some_values(rng, (lanes, cells, wide), dtype, 0.3)
    arrived, fresh = no_arrivals(lanes, cells, dtype)
    arrived[...] = some_values(rng, arrived.shape, dtype, 0.3)
    fresh[...] = rng.random(fresh.shape) < share
    before, new = held[:, :cells].copy(), fresh.astype(bool)

    lowered = visit(pack_panels(stored, cells, symmetric), cells, held, arrived, fresh)

    assert not fresh.any()
    expected = before.copy()
    for lane, k in np.argwhere(new):
        for j in np.flatnonzero(matrix[k] < unreached(dtype)):
            reached = arrived[lane, k] < unreached(dtype)
            sums = np.where(reached, arrived[lane, k] + matrix[k, j], unreached(dtype))
            expected[lane, j] = np.minimum(expected[lane, j], sums)
    np.testing.assert_array_equal(held[:, :cells], expected)
    changed = (expected < before).any(axis=2)
    np.testing.assert_array_equal(lowered[:, :cells].astype(bool), changed)

    # edges from cells that have not changed are not looked at
    count = 5
    ends = rng.integers(0, cells, (count, 2))
    costs = some_values(rng, (count,), dtype, 0.0)
    bound = some_values(rng, (lanes, wide), dtype, 0.5)
    known = no_costs(lanes, cells, dtype)
    known[:, :cells] = some_values(rng, (lanes, cells, wide), dtype, 0.5)
    other, new_there = no_arrivals(lanes, cells, dtype)
    other[...] = some_values(rng, other.shape, dtype, 0.3)
    relative, absolute = limits = np.dtype(dtype).type(dtype != "int64"), known.dtype.type(2)
    expected = other.copy()
    least = unreached(dtype)
    flags = np.zeros_like(new_there)
    for (start, end), cost in zip(ends.tolist(), costs, strict=True):
        for lane in np.flatnonzero(changed[:, start]).tolist():
            value = held[lane, start] + cost
            better = (value < expected[lane, end]) & (value < bound[lane])
            better &= value < known[lane, end] + (known[lane, end] * relative + absolute)
            expected[lane, end][better] = value[better]
            flags[lane, end] |= better.any()
            least = min(least, value[better].min(initial=least))
    found = relax_edges(
        held, lowered, (ends, costs), slice(0, count), bound, limits, known, other, new_there
    )
    np.testing.assert_array_equal(other, expected)
    np.testing.assert_array_equal(new_there, flags)
    assert min(found, unreached(dtype)) == least


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_roundings_can_carry(dtype: str) -> None:
    stored = np.array([3, unreached(dtype), 5, 0], dtype)
    relative, absolute = rounding(stored, 10, 12, 0)
    assert (type(relative), type(absolute)) == (stored.dtype.type,) * 2
    if dtype == "int64":
        assert (relative, absolute) == (0, 0)
        return
    unit = np.finfo(dtype).eps
    assert 8 * (10 + 12) * unit < relative < 1e3 * unit
    assert absolute == 5 * relative
    assert rounding(stored, 100, 120, 1)[0] > 100 * 120 * unit
    assert rounding(stored[1:2], 10, 12, 0)[1] == 0


# Two blocks, joined by edges, that costs cross several times; a product and closures.
PROGRAM = """
import sys
import numpy as np
from llvmlite import binding

real = binding.get_host_cpu_features
wide = sys.argv[1] == "wide"
binding.get_host_cpu_features = lambda: {"avx512f": wide}
from orograph.kernels.minplus import lanes
binding.get_host_cpu_features = real
assert (lanes.VECTOR_BYTES, lanes.TILE_ROWS) == ((64, 12) if wide else (32, 6))

from orograph.kernels.boundary.propagate import *
from orograph.kernels.minplus.closure import floyd_warshall_block
from orograph.kernels.minplus.product import minplus

cells, sources = 100, 40
rng = np.random.default_rng(0)
matrices = np.full((2, cells, cells), np.inf)
at = np.arange(cells)
for matrix in matrices:
    matrix[at, at] = 0
    matrix[at, at - 1] = rng.uniform(0, 1, cells)
    matrix[at - 1, at] = rng.uniform(0, 1, cells)
    floyd_warshall_block(matrix)
panels = [pack_panels(matrix.reshape(-1), cells, False) for matrix in matrices]
edges = [(rng.integers(0, cells, (30, 2)), rng.uniform(0, 1, 30)) for _ in range(2)]
columns = lane_columns("float64")
count = -(-sources // columns)
held = [no_costs(count, cells, "float64") for _ in range(2)]
there = [no_arrivals(count, cells, "float64") for _ in range(2)]
limits = [rounding(matrix.reshape(-1), cells, 1, 0) for matrix in matrices]
bound = np.full((count, columns), np.inf)
for source in range(sources):
    lane, column = divmod(source, columns)
    seeds = rng.integers(0, cells, 3)
    there[source % 2][0][lane, seeds, column] = rng.uniform(0, 1, 3)
    there[source % 2][1][lane, seeds] = 1
turns = 0
while any(fresh.any() for _, fresh in there):
    for here in (0, 1):
        far = 1 - here
        lowered = visit(panels[here], cells, held[here], *there[here])
        to = bound, limits[far], held[far], *there[far]
        relax_edges(held[here], lowered, edges[here], slice(0, 30), *to)
    turns += 1
assert turns > 2
table = [some[:, :cells].transpose(0, 2, 1).reshape(-1, cells)[:sources] for some in held]
np.save(sys.argv[2], np.concatenate([*table, *matrices, minplus(*matrices)]))
"""


def test_bits_do_not_depend_on_the_length_of_vectors(tmp_path: Path) -> None:
    found = []
    for width in ("wide", "narrow"):
        out = tmp_path / f"{width}.npy"
        env = dict(os.environ)
        if (width == "wide") != (VECTOR_BYTES == 64):
            # the cache does not know what it pretends: it takes one of its own, beside the other
            env["NUMBA_CACHE_DIR"] = str(Path(config.CACHE_DIR or tmp_path) / f"vectors-{width}")
        subprocess.run([sys.executable, "-c", PROGRAM, width, str(out)], env=env, check=True)
        found.append(np.load(out))
    assert np.isfinite(found[0]).all()
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize(("features", "bytes_a_vector"), [("+avx2", 32), ("+avx2,+avx512f", 64)])
def test_vectors_are_those_that_numba_compiles_for(
    features: str, bytes_a_vector: int, tmp_path: Path
) -> None:
    program = "from orograph.kernels.minplus import lanes; print(lanes.VECTOR_BYTES)"
    env = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) == bytes_a_vector
