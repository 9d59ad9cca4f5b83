"""Tables of an index by propagate.cu, in the emulator: the bits of those by Numba."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from any_model import build
from cuda_on_cpu.emulator import Emulator, in_orders

import orograph as og
from orograph.index.device import BlocksOnDevice
from orograph.index.distance_index import DistanceIndex
from orograph.kernels.boundary.propagate import BlockParts, unreached
from orograph.kernels.propagate.cuda import SOURCES, DeviceBlocks
from orograph.tiles.errors import BackendError

SHAPE = 45, 61
CASES: dict[str, dict[str, Any]] = {
    "float64": {},
    "float32": {"dtype": "float32"},
    "int64": {"dtype": "int64", "connectivity": 4},
    "walk": {"cost": "tobler"},
}


def rasters(gaps: float, even: bool) -> tuple[np.ndarray, np.ndarray]:
    """Friction and elevation with gaps; many paths cost the same but for roundings."""
    rng = np.random.default_rng(3)
    friction = 2.0 * rng.integers(0, 5, SHAPE) * (1 if even else 0.1)
    elevation = rng.integers(0, 40, SHAPE) / 4.0
    gone = rng.random(SHAPE) < gaps
    friction[gone] = elevation[gone] = np.nan
    return friction, elevation


def some_points(valid: np.ndarray, count: int) -> np.ndarray:
    rows, columns = np.nonzero(valid)
    chosen = np.random.default_rng(1).permutation(len(rows))[:count]
    return np.stack([columns, rows], axis=1)[chosen].astype(float)


def on(emulator: Emulator, index: DistanceIndex, slots: int | None = None) -> DistanceIndex:
    """The same index with its blocks on a device."""
    found = DistanceIndex.open(index._store.storage)
    found._on_device = BlocksOnDevice(found._blocks, emulator, slots)
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize(("case", "emulator"), in_orders(CASES, {"float64"}), indirect=["emulator"])
def test_tables_have_the_bits_of_the_cpu(
    case: dict[str, Any], emulator: Emulator, tmp_path: Path
) -> None:
    friction, elevation = rasters(0.2, case.get("dtype") == "int64")
    surface = {"elevation": elevation} if "cost" in case else {"friction": friction}
    index = build(store=tmp_path / "i", block=4, levels=2, **surface, **case)
    points = some_points(np.isfinite(friction), SOURCES + 9)
    there = on(emulator, index)
    for ends in ((points,), (points[:5], points[5:30]), (points[:2],)):
        expected = index.distance_matrix(*ends).values
        found = there.distance_matrix(*ends).values
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
    assert there.touched is not None
    assert 0 < there.touched.blocks <= there.blocks
    assert there.touched.visits >= there.touched.blocks


def test_links_and_updates(emulator: Emulator, tmp_path: Path) -> None:
    friction, _ = rasters(0.2, False)
    valid = some_points(np.isfinite(friction), 40)
    ends = valid[:, ::-1].astype(int)[:12]
    cells = SHAPE[0] * SHAPE[1]
    tail, head = (np.ravel_multi_index(tuple(half.T), SHAPE) for half in (ends[:6], ends[6:]))
    links = og.read_graph(
        scipy.sparse.coo_array((np.full(6, 0.25), (tail, head)), shape=(cells, cells)),
        directed=False,
    )
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0, links=links)
    there = on(emulator, index)
    points = valid[10:30]
    before = there.distance_matrix(points).values
    assert before.tobytes() == index.distance_matrix(points).values.tobytes()
    index.update((20, 20, 9, 9), np.where(np.isnan(friction[20:29, 20:29]), np.nan, 7.5))
    expected = index.distance_matrix(points).values
    there._answer(lambda: None)  # sees the update, and forgets the blocks
    assert there._on_device is None
    found = on(emulator, there).distance_matrix(points).values
    assert found.tobytes() == expected.tobytes() != before.tobytes()


def test_matrices_that_do_not_fit_together(emulator: Emulator, tmp_path: Path) -> None:
    friction = np.random.default_rng(0).uniform(1, 2, SHAPE)
    index = DistanceIndex.build(friction, tmp_path / "i", block=8, levels=0)
    points = np.array([[3.0, 3.0], [35.0, 30.0]])
    expected = index.distance_matrix(points).values
    for slots in (index.blocks - 9, 6):
        tight = on(emulator, index, slots)
        assert tight.distance_matrix(points).values.tobytes() == expected.tobytes()


def test_memory_that_is_too_small(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = DistanceIndex.build(np.ones((9, 9)), tmp_path / "i")
    monkeypatch.setattr(Emulator, "free_bytes", lambda self: 1000)
    with pytest.raises(BackendError, match="more than half of what is free on the GPU"):
        on(emulator, index).distance_matrix([(0.0, 0.0), (8.0, 8.0)])


def test_a_near_question_needs_few_blocks(emulator: Emulator, tmp_path: Path) -> None:
    friction = np.random.default_rng(0).uniform(1, 2, SHAPE)
    index = on(emulator, DistanceIndex.build(friction, tmp_path / "i", block=4, levels=0))
    index.distance_matrix([(30.0, 20.0), (33.0, 22.0)])
    assert index.touched is not None
    assert index.touched.blocks < 0.3 * index.blocks


def test_a_gpu_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orograph.kernels.backends.missing_gpu", lambda: "there is none")
    DistanceIndex.build(np.ones((9, 9)), tmp_path / "i")
    with pytest.raises(BackendError, match="there is none"):
        DistanceIndex.open(tmp_path / "i", backend="cuda")
    assert DistanceIndex.open(tmp_path / "i", backend="auto")._backend == "numba"


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("dtype", "emulator"),
    in_orders({name: name for name in ("float64", "float32", "int64")}, {"int64"}),
    indirect=["emulator"],
)
def test_costs_against_plain_numpy(dtype: str, emulator: Emulator) -> None:
    rng = np.random.default_rng(2)
    cells, nothing = np.array([5, 3, 140, 2]), unreached(dtype)
    first = np.concatenate([[0], np.cumsum(cells)])
    matrices = []
    for n in cells.tolist():
        matrix = rng.integers(0, 50, (n, n)).astype(dtype)
        matrix[rng.random((n, n)) < 0.3] = nothing
        np.fill_diagonal(matrix, 0)
        for k in range(n):
            np.minimum(matrix, matrix[:, [k]] + matrix[k], out=matrix)
        matrices.append(np.minimum(matrix, nothing))
    parts = []
    for number, n in enumerate(cells.tolist()):
        other = rng.choice([b for b in range(3) if b != number], 8)  # none leads to the last
        ends = np.stack([rng.integers(0, n, 8), other, rng.integers(0, cells[other])], axis=1)
        limits = matrices[0].dtype.type(0 if dtype == "int64" else 0.5), matrices[0].dtype.type(1)
        costs = rng.integers(1, 9, 8).astype(dtype)
        parts.append(BlockParts(matrices[number].reshape(-1), ends, costs, limits))
    sources = [
        (b := int(rng.integers(0, 4)), rng.integers(0, 99, cells[b]).astype(dtype))
        for _ in range(SOURCES + 5)
    ]
    for _, border in sources:
        border[rng.random(len(border)) < 0.5] = nothing
    targets = [(b, rng.integers(0, 99, cells[b]).astype(dtype)) for b in (0, 2, 3)]
    known = np.full((3, len(sources)), nothing)
    known[0, :4] = 7

    expected = known.copy()
    for i, (block, border) in enumerate(sources):
        arrived = np.full(first[-1], nothing)
        arrived[first[block] : first[block + 1]] = border
        before = None
        while before is None or (arrived < before).any():
            before, held = arrived.copy(), []
            for b, matrix in enumerate(matrices):
                own = arrived[first[b] : first[b + 1], None]
                held.append((own + matrix).min(axis=0))
                for (start, other, end), cost in zip(parts[b].edges.tolist(), parts[b].costs):
                    there = first[other] + end
                    arrived[there] = min(arrived[there], held[b][start] + cost)
        for t, (b, rest) in enumerate(targets):
            expected[t, i] = min(expected[t, i], (held[b] + rest).min(), nothing)
    blocks = DeviceBlocks(
        cells, np.dtype(dtype), 8, False, lambda numbers: [parts[n] for n in numbers], emulator
    )
    found, visits = blocks.spread(sources, targets, known)
    np.testing.assert_array_equal(found, expected)
    assert (expected < nothing).any()
    assert (expected == nothing).any()
    assert visits.sum() > len(cells)
