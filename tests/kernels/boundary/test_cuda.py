"""Boundary distances by boundary.cu, in the emulator, against the Numba kernel and SciPy."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from any_model import build
from boundary_cases import all_pairs, assert_same, costs_of, expected_matrix, rasters
from cuda_on_cpu.emulator import Emulator, find_compiler, in_orders
from hypothesis import given, settings
from hypothesis import strategies as st

from orograph.kernels.boundary import cuda as boundary_cuda
from orograph.kernels.boundary.blocks import block_matrix
from orograph.kernels.boundary.dissection import LEAF, Rectangle, elimination_plan
from orograph.kernels.boundary.elimination import BlockCosts, block_costs
from orograph.kernels.boundary.steps import last_uses, peak_elements, steps_of
from orograph.kernels.minplus import closure as minplus_closure
from orograph.kernels.relax.models import BARRIER, CostModel, edge_lengths
from orograph.tiles.errors import BackendError

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")

CASES = {
    "friction": ("float64", "friction", False),
    "friction, four neighbours, single precision": ("float32", "friction", True),
    "friction in integers": ("int64", "friction", False),
    "height differences, four neighbours": ("int64", "absolute_difference", True),
    "tobler, single precision": ("float32", "tobler", False),
    "walk, four neighbours": ("float64", "walk", True),
}
PARTS = [
    Rectangle(0, 0, 33, 40),
    Rectangle(2, 1, 9, 9),
    Rectangle(3, 20, 17, 3),
    Rectangle(20, 30, 9, 9),
    Rectangle(32, 39, 1, 1),
    Rectangle(4, 0, 1, 40),
    Rectangle(11, 11, 4, 4),
    Rectangle(11, 12, 4, 4),
]


def some_costs(dtype: str, model: str, four: bool, seed: int = 0, gaps: float = 0.15) -> BlockCosts:
    """Costs whose sums are rounded."""
    shape = PARTS[0].height, PARTS[0].width
    friction, elevation = rasters(np.random.default_rng(seed), shape, dtype, gaps)
    return costs_of(friction if dtype == "int64" else friction / 7, elevation, dtype, model, four)


def check(costs: BlockCosts, parts: list[Rectangle], block: int | None, device: Emulator) -> None:
    """Every bit equals that of the Numba kernel."""
    found = boundary_cuda.block_matrices(costs, parts, block, device=device)
    for part, mine in zip(parts, found, strict=True):
        expected = block_matrix(costs, part, block or max(part.height, part.width))
        assert mine.dtype == expected.dtype
        assert mine.shape == expected.shape
        assert mine.tobytes() == expected.tobytes(), (part, block, (mine != expected).sum())


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("case", "emulator"), in_orders(CASES, {"friction"}), indirect=["emulator"]
)
def test_many_parts_of_a_raster(case: tuple[str, str, bool], emulator: Emulator) -> None:
    costs = some_costs(*case)
    for block in (None, 8, 1):
        check(costs, PARTS, block, emulator)


@needs_compiler
@given(
    case=st.sampled_from(sorted(CASES.values())),
    shape=st.tuples(st.integers(1, 33), st.integers(1, 40)),
    block=st.one_of(st.none(), st.integers(1, 12)),
    gaps=st.sampled_from((0.0, 0.1, 0.45)),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_any_block(
    case: tuple[str, str, bool],
    shape: tuple[int, int],
    block: int | None,
    gaps: float,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    top, left = rng.integers(0, 34 - shape[0]), rng.integers(0, 41 - shape[1])
    part = Rectangle(int(top), int(left), *shape)
    check(some_costs(*case, seed, gaps), [part], block, Emulator("random", seed=seed % 97))


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_against_scipy(dtype: str, emulator: Emulator) -> None:
    shape = (24, 31)
    friction, elevation = rasters(np.random.default_rng(3), shape, dtype, gaps=0.2)
    costs = costs_of(friction, elevation, dtype, "friction", four=False)
    expected = expected_matrix(all_pairs(friction, elevation, dtype, "friction", False), shape)
    assert_same(boundary_cuda.boundary_matrix(costs, device=emulator), expected)
    whole = Rectangle(0, 0, *shape)
    for block in (5, 16):
        assert_same(
            boundary_cuda.block_matrices(costs, [whole], block, device=emulator)[0], expected
        )


LINES = {
    name: CASES[name] for name in ("friction", "friction in integers", "tobler, single precision")
}


@pytest.mark.parametrize(
    ("case", "emulator"), in_orders(LINES, {"friction"}), indirect=["emulator"]
)
def test_lines_of_several_steps(case: tuple[str, str, bool], emulator: Emulator) -> None:
    """A line of more than 64 cells is closed tile by tile."""
    dtype, model, four = case
    friction, elevation = rasters(np.random.default_rng(5), (66, 80), dtype, 0.1)
    scale = 1 if dtype == "int64" else 7
    costs = costs_of(friction / scale, elevation, dtype, model, four)
    for block in (None, 40):
        check(costs, [Rectangle(0, 0, 66, 80)], block, emulator)


def lines(n: int, dtype: str) -> npt.NDArray[np.generic]:
    rng = np.random.default_rng(n)
    cells = rng.integers(1, 1000, (n, n)).astype(dtype)
    cells = cells if dtype == "int64" else cells / cells.dtype.type(7)
    cells[rng.random((n, n)) < 0.97] = BARRIER if dtype == "int64" else np.inf
    np.fill_diagonal(cells, 0)
    return cells


LENGTHS = {
    f"{n}-{dtype}": (n, dtype) for n in (1, 63, 64, 65, 130, 530) for dtype in ("float64", "int64")
}
ROUNDED = {name for name in LENGTHS if name.endswith("float64")}


@pytest.mark.diagonal
@pytest.mark.parametrize(("case", "emulator"), in_orders(LENGTHS, ROUNDED), indirect=["emulator"])
def test_a_line_is_closed_as_minplus_does(case: tuple[int, str], emulator: Emulator) -> None:
    n, dtype = case
    kind = np.ones((3, 3), dtype)
    costs = block_costs(kind, lengths=np.ones((5, 3)))
    resident = boundary_cuda.ResidentCosts(costs, emulator)
    cells = lines(n, dtype)
    two = np.stack([cells, cells.T])
    found = emulator.upload(two.reshape(-1))
    resident.close_lines(found, 2, n)
    for k, line in enumerate((cells, np.ascontiguousarray(cells.T))):
        minplus_closure.floyd_warshall_block(line)
        np.testing.assert_array_equal(found.reshape(two.shape)[k], line)


@needs_compiler
def test_batches_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = some_costs("int64", "friction", False)
    parts = [Rectangle(y, x, 9, 9) for y in range(0, 24, 5) for x in range(0, 31, 7)]
    device = Emulator()
    steps = steps_of(9, 9, 5)
    monkeypatch.setattr(boundary_cuda, "BYTES_AT_ONCE", 3 * 8 * peak_elements(steps) + 1)
    assert boundary_cuda.blocks_at_once(steps, np.dtype("int64")) == 3
    check(costs, parts, 5, device)
    in_batches = device.launches
    monkeypatch.undo()
    check(costs, parts, 5, device)
    assert in_batches == 9 * (device.launches - in_batches)


@needs_compiler
def test_costs_beyond_the_barrier() -> None:
    """Integers whose product with a length passes what counts as a barrier."""
    rng = np.random.default_rng(1)
    friction = rng.integers(2**56, 2**59, (20, 20))
    low = rng.random(friction.shape) < 0.5
    friction[low] = rng.integers(1, 9, low.sum())
    costs = block_costs(friction, lengths=np.full((5, 20), 7.0))
    for block in (None, 2, 7):
        check(costs, [Rectangle(0, 0, 18, 18), Rectangle(1, 1, 3, 3)], block, Emulator())


@needs_compiler
def test_lengths_that_differ_from_row_to_row() -> None:
    rng = np.random.default_rng(2)
    raster = np.pad(rng.random((2, 20, 30)), ((0, 0), (1, 1), (1, 1)), constant_values=np.nan)
    lengths = edge_lengths(22) * np.linspace(1, 2, 22)
    for model in (CostModel("friction"), CostModel("walk", reverse=True)):
        elevation = None if model.name == "friction" else raster[1] * 3
        costs = block_costs(raster[0], elevation, lengths=lengths, model=model)
        for block in (None, 6):
            check(costs, [Rectangle(0, 0, 20, 30)], block, Emulator("reversed"))
    # the same without friction
    costs = block_costs(None, raster[1] * 3, lengths=lengths, model=CostModel("tobler"))
    check(costs, [Rectangle(2, 3, 18, 20)], 6, Emulator("reversed"))


@needs_compiler
def test_a_block_of_barriers() -> None:
    nothing = np.full((6, 6), np.nan)
    costs = costs_of(nothing, nothing, "float64", "friction", four=False)
    matrix = boundary_cuda.boundary_matrix(costs, device=Emulator())
    np.testing.assert_array_equal(matrix, np.where(np.eye(20, dtype=bool), 0, np.inf))


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (64, 64), (65, 127)])
def test_steps_are_those_of_the_plan(shape: tuple[int, int]) -> None:
    plan = elimination_plan(*shape)
    steps = steps_of(*shape)
    mine = sorted((*step.shape, *node[:2]) for step in steps for node in step.nodes.tolist())
    kinds = plan.shapes[plan.nodes[:, 0], :2]
    assert mine == sorted(map(tuple, np.hstack([kinds, plan.nodes[:, 1:]]).tolist()))
    assert steps[-1].shape == shape
    # halves come first, and each matrix goes once
    assert all(max(step.halves) < number for number, step in enumerate(steps))
    gone = [half for done in last_uses(steps) for half in done]
    assert sorted(gone) == list(range(len(steps) - 1))


@needs_compiler
def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = block_costs(np.ones((5, 7)))
    device = Emulator()
    with pytest.raises(ValueError, match="lies outside the raster of 3 x 5"):
        boundary_cuda.block_matrices(costs, [Rectangle(0, 0, 3, 6)], device=device)
    with pytest.raises(ValueError, match="block=0"):
        boundary_cuda.block_matrices(costs, [], 0, device=device)
    assert boundary_cuda.block_matrices(costs, [], device=device) == []
    with monkeypatch.context() as patch:
        patch.setattr(boundary_cuda, "MAX_BORDER", 11)
        with pytest.raises(BackendError, match="parts of 12 border cells"):
            boundary_cuda.boundary_matrix(costs, device=device)
    with monkeypatch.context() as patch:
        patch.setattr(boundary_cuda, "MAX_CELLS", 34)
        with pytest.raises(BackendError, match="5 x 7 cells"):
            boundary_cuda.boundary_matrix(costs, device=device)


def test_both_files_agree() -> None:
    source = Path(boundary_cuda.__file__).with_name("boundary.cu").read_text(encoding="utf-8")
    values = dict(re.findall(r"^constexpr int (\w+) = (\d+);", source, re.MULTILINE))
    assert int(values["LEAF"]) == LEAF
    assert int(values["LEAVES"]) == boundary_cuda.LEAVES
    assert int(values["SPAN"]) == boundary_cuda.SPAN
    assert int(values["STEP"]) == minplus_closure.STEP
    assert int(values["LARGE_STEP"]) == minplus_closure.LARGE_STEP
    across = boundary_cuda.MAX_BORDER // (16 * boundary_cuda.SPAN)
    assert across * across < 2**16


@pytest.mark.parametrize(
    ("cost", "dtype"), [("friction", "float64"), ("tobler", "float32"), ("friction", "int64")]
)
def test_an_index_built_on_a_gpu_is_that_of_numba(
    cost: str, dtype: str, emulated_gpu: Emulator, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    friction = 2.0 * rng.integers(1, 9, (45, 70))
    friction[rng.random(friction.shape) < 0.1] = np.nan
    elevation = None if cost == "friction" else rng.uniform(0, 5, friction.shape)
    for backend in ("numba", "cuda"):
        launches = emulated_gpu.launches
        build(
            friction,
            tmp_path / backend,
            elevation=elevation,
            cost=cost,
            dtype=dtype,
            connectivity=4 if dtype == "int64" else 8,
            cell_size=1,
            block=8,
            levels=1,
            backend=backend,
        )
        assert (emulated_gpu.launches > launches) == (backend == "cuda")
    for path in (tmp_path / "numba").rglob("c/**/*"):
        if path.is_file():
            built = tmp_path / "cuda" / path.relative_to(tmp_path / "numba")
            assert built.read_bytes() == path.read_bytes(), path
