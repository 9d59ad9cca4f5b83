"""Labels of one tile by label.cu, in the emulator, against Numba and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, find_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from orograph.kernels.label import tile as label
from orograph.kernels.label.cuda import find_components, label_tile

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: install g++")

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
STRUCTURE = {4: ndimage.generate_binary_structure(2, 1), 8: np.ones((3, 3), bool)}


def check(
    cells: np.ndarray, device: Emulator, nodata: float | None = None, scipy: bool = True
) -> label.TileLabels:
    """Compare with the Numba kernel, and with SciPy's labels of each class; return those for 8."""
    for connectivity in (4, 8):
        found = label_tile(cells, nodata, connectivity, device=device)
        expected = label.label_tile(cells, nodata, connectivity)
        for name, one, other in zip(expected._fields, expected, found):
            assert one.dtype == other.dtype, name
            np.testing.assert_array_equal(other, one, err_msg=f"{name}, {connectivity}")
        if not scipy:
            continue
        valid = np.isfinite(cells) & (cells != 0) & (cells != nodata)
        count = 0
        for value in np.unique(cells[valid]):
            mask = valid & (cells == value)
            labels, more = ndimage.label(mask, STRUCTURE[connectivity])
            pairs = np.unique(np.stack([labels[mask], found.labels[mask]]), axis=1)
            assert pairs.shape[1] == more == np.unique(pairs[1]).size
            count += more
        assert count == found.first.size
        assert not found.labels[~valid].any()
    return found


def noise(shape: tuple[int, int], share: float, classes: int = 1) -> np.ndarray:
    """Independent cells."""
    rng = np.random.default_rng(7)
    return (rng.integers(1, classes + 1, shape) * (rng.random(shape) < share)).astype(np.uint8)


def spiral(h: int, w: int) -> np.ndarray:
    """One arm, one cell wide, with one cell of background between its turns."""
    cells = np.zeros((h, w), np.uint8)
    y, x, dy, dx, turns = 0, 0, 0, 1, 0
    cells[0, 0] = 1
    while turns < 2:
        v, u = y + 2 * dy, x + 2 * dx
        ahead = 0 <= y + dy < h and 0 <= x + dx < w
        if ahead and not (0 <= v < h and 0 <= u < w and cells[v, u]):
            y, x = y + dy, x + dx
            cells[y, x] = 1
            turns = 0
        else:
            dy, dx = dx, -dy
            turns += 1
    return cells


def comb(h: int, w: int) -> np.ndarray:
    """Teeth that only the last row joins."""
    cells = np.zeros((h, w), np.uint8)
    cells[:, ::2] = 1
    cells[-1] = 1
    return cells


def checkerboard(h: int, w: int) -> np.ndarray:
    """Ones and zeros."""
    return (np.add.outer(np.arange(h), np.arange(w)) % 2).astype(np.uint8)


def blobs(h: int, w: int) -> np.ndarray:
    """Four classes with smooth outlines."""
    smooth = ndimage.gaussian_filter(np.random.default_rng(3).random((h, w)), 3)
    return np.digitize(smooth, np.quantile(smooth, [0.25, 0.5, 0.75])).astype(np.uint8)


PATTERNS: dict[str, np.ndarray] = {
    "one cell of background": np.zeros((1, 1), np.uint8),
    "one cell": np.ones((1, 1), np.uint8),
    "all zeros": np.zeros((70, 130), np.uint8),
    "all ones": np.ones((70, 130), np.uint8),
    "just one block of ones": np.ones((32, 64), np.uint8),
    "four blocks of ones": np.ones((64, 128), np.uint8),
    "a spiral": spiral(101, 163),
    "what a spiral leaves": 1 - spiral(101, 163),
    "checkerboard": checkerboard(67, 129),
    "two classes that cross at every corner": checkerboard(67, 129) + 1,
    "comb": comb(65, 200),
    "comb with teeth up": comb(65, 200)[::-1].copy(),
    "comb on its side": np.ascontiguousarray(comb(65, 150).T),
    "every other cell of every other row": np.kron(
        np.ones((30, 40), np.uint8), np.array([[1, 0], [0, 0]], np.uint8)
    ),
    "one row": noise((1, 300), 0.6),
    "one column": noise((300, 1), 0.6),
    "two columns": noise((150, 2), 0.6),
    "one cell more than blocks": noise((65, 129), 0.6),
    "one cell less than blocks": noise((63, 127), 0.6),
    "single cells": noise((100, 150), 0.05),
    "noise": noise((110, 200), 0.6),
    "noise where four neighbours percolate": noise((110, 200), 0.593),
    "noise where eight neighbours percolate": noise((110, 200), 0.407),
    "dense noise": noise((100, 130), 0.95),
    "noise of five classes": noise((100, 150), 0.9, 5),
    "blobs": blobs(100, 150),
    "stripes down": np.tile(np.arange(131, dtype=np.uint8) % 5, (50, 1)),
    "every cell another value": np.arange(1, 5001, dtype=np.uint16).reshape(50, 100),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str, emulator: Emulator) -> None:
    check(PATTERNS[name], emulator, scipy=np.unique(PATTERNS[name]).size < 10)


@pytest.mark.parametrize("dtype", DTYPES)
@needs_compiler
def test_every_dtype(dtype: str) -> None:
    values = np.array([0, 1, 2, 100] if dtype != "bool" else [0, 1], dtype)
    if dtype.startswith(("int", "float")):
        values = np.concatenate([values, -values])  # with -0.0
    kind = np.dtype(dtype)
    if kind.kind == "f":
        limits = np.finfo(kind)
        extra = [np.nan, np.inf, -np.inf, limits.max, limits.smallest_subnormal]
        values = np.concatenate([values, np.array(extra, kind)])
    elif kind.kind != "b":
        limits = np.iinfo(kind)
        values = np.concatenate([values, np.array([limits.min, limits.max], kind)])
    cells = np.random.default_rng(3).choice(values, (34, 70))
    device = Emulator("random", seed=2)
    check(cells, device)
    for nodata in (1, values[-1].item(), 7.5):
        check(cells, device, nodata)
    check(cells[::2, ::-1], device)
    if kind.itemsize > 1:
        check(cells.astype(kind.newbyteorder()), device)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 70), st.integers(1, 140)),
    share=st.floats(0, 1),
    classes=st.integers(1, 4),
    order=st.sampled_from(["forward", "reversed", "random"]),
)
def test_any_noise(
    seed: int, shape: tuple[int, int], share: float, classes: int, order: str
) -> None:
    rng = np.random.default_rng(seed)
    cells = (rng.integers(1, classes + 1, shape) * (rng.random(shape) < share)).astype(np.uint8)
    check(cells, Emulator(order, seed), scipy=False)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(
    corner=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    bits=st.integers(0, 3**16 - 1),
)
def test_what_meets_where_four_blocks_meet(corner: tuple[int, int], bits: int) -> None:
    cells = np.zeros((36, 70), np.uint8)
    window = np.array([bits // 3**k % 3 for k in range(16)], np.uint8).reshape(4, 4)
    y, x = 32 - corner[0], 64 - corner[1]
    cells[y : y + 4, x : x + 4] = window
    check(cells, Emulator("reversed"), scipy=False)


@pytest.mark.diagonal
@pytest.mark.parametrize("measure", [True, False], ids=["measured", "not measured"])
@pytest.mark.parametrize("share", [0.0, 0.6], ids=["none", "many"])
def test_components_of_a_tile(measure: bool, share: float, emulator: Emulator) -> None:
    cells = noise((90, 140), share, 3)
    expected = label.find_components(cells, None, measure=measure)
    found = find_components(cells, None, measure=measure, device=emulator)
    every = np.arange(cells.size)
    np.testing.assert_array_equal(found.labels.at(every), expected.labels.at(every))
    firsts = [one.labels.first_cells(one.first) for one in (found, expected)]
    np.testing.assert_array_equal(*firsts)
    for name in ("rows", "size", "box"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.diagonal
@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 3000])
def test_sums_of_counts(n: int, emulator: Emulator) -> None:
    # More than one thread block's worth of them: tiles of more than eight million cells.
    counts = np.random.default_rng(n).integers(0, 2**13, n + 1, np.uint32)
    expected = np.cumsum(np.concatenate([[0], counts[:-1]]))
    emulator.launch("label/label.cu", "add_counts", (1,), (1024,), (counts, np.int32(n)))
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize(
    ("cells", "connectivity", "error", "message"),
    [
        pytest.param(np.ones((2, 2)), 6, ValueError, "connectivity: 6", id="six neighbours"),
        pytest.param(np.ones(4), 8, ValueError, r"shape \(4,\)", id="one dimension"),
        pytest.param(np.ones((0, 4)), 8, ValueError, r"shape \(0, 4\)", id="no cells"),
        pytest.param(np.ones((2, 2), "c8"), 8, TypeError, "complex64", id="complex"),
        pytest.param(
            np.broadcast_to(np.uint8(1), (2**16, 2**15)),
            8,
            ValueError,
            "65536 x 32768 cells are 2\\*\\*31 or more",
            id="too many cells",
        ),
    ],
)
def test_refusals_are_those_of_numba(
    cells: Any, connectivity: int, error: type[Exception], message: str
) -> None:
    for function in (label_tile, label.label_tile):
        with pytest.raises(error, match=message):
            function(cells, None, connectivity)


def test_connected_components_of_a_grid_with_backend_cuda(emulated_gpu: Emulator) -> None:
    import orograph as og

    cells = noise((90, 150), 0.6, 2)
    how = {"tile": 48, "outputs": ("labels", "component_size", "component_box"), "dtype": "int32"}
    found = og.connected_components(cells, backend="cuda", **how)
    expected = og.connected_components(cells, backend="numba", **how)
    assert emulated_gpu.launches > 0
    for name in how["outputs"]:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name].values, expected[name].values)
    assert found.labels.attrs == expected.labels.attrs


def test_narrow_labels_are_those_of_numba(emulator: Emulator) -> None:
    cells = (np.random.default_rng(4).random((50, 70)) < 0.5).astype(np.uint8)
    expected = label.label_tile(cells, None, narrow=True)
    found = label_tile(cells, None, narrow=True, device=emulator)
    assert found.labels.dtype == expected.labels.dtype == np.uint16
    np.testing.assert_array_equal(found.labels, expected.labels)
