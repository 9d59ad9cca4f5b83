"""Labels of one tile against SciPy, and components of graphs against SciPy."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from orograph.kernels.label.labels import CellLabels
from orograph.kernels.label.tile import TileLabels, compile_kernels, find_components, label_tile
from orograph.kernels.label.union_find import rem_components

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
STRUCTURE = {4: ndimage.generate_binary_structure(2, 1), 8: np.ones((3, 3), bool)}


def expected_labels(classes: np.ndarray, nodata: float | None, connectivity: int) -> np.ndarray:
    """SciPy's labels of each class, renumbered by first cell."""
    valid = np.isfinite(classes) & (classes != 0)
    if nodata is not None:
        valid &= classes != nodata
    joint = np.zeros(classes.shape, np.int64)
    count = 0
    for value in np.unique(classes[valid]):
        labels, more = ndimage.label(valid & (classes == value), STRUCTURE[connectivity])
        joint[labels > 0] = labels[labels > 0] + count
        count += more
    order: dict[int, int] = {0: 0}
    return np.array([order.setdefault(k, len(order)) for k in joint.ravel().tolist()]).reshape(
        classes.shape
    )


def check(classes: np.ndarray, nodata: float | None = None) -> TileLabels:
    """Compare everything in the answer with SciPy, for both connectivities; return that of 8."""
    before = classes.copy()
    for connectivity in (4, 8):
        found = label_tile(classes, nodata, connectivity)
        expected = expected_labels(classes, nodata, connectivity)
        assert found.labels.dtype == np.int32
        np.testing.assert_array_equal(found.labels, expected)
        n = expected.max()
        numbers, firsts = np.unique(expected, return_index=True)
        assert found.first.dtype == np.int64
        np.testing.assert_array_equal(found.first, firsts[numbers > 0])
        assert found.size.dtype == np.int64
        np.testing.assert_array_equal(found.size, np.bincount(expected.ravel())[1:])
        boxes = [
            (rows.start, columns.start, rows.stop, columns.stop)
            for rows, columns in ndimage.find_objects(expected)
        ]
        assert found.box.dtype == np.int32
        assert found.box.shape == (n, 4)
        np.testing.assert_array_equal(found.box, np.array(boxes, np.int32).reshape(-1, 4))
    np.testing.assert_array_equal(classes, before)
    return found


def spiral(side: int) -> np.ndarray:
    """One arm, one cell wide, with one cell of background between its turns."""
    cells = np.zeros((side, side), np.uint8)
    y, x, dy, dx = 0, 0, 0, 1
    cells[0, 0] = 1
    turns = 0
    while turns < 2:
        v, u = y + 2 * dy, x + 2 * dx
        ahead = 0 <= y + dy < side and 0 <= x + dx < side
        if ahead and not (0 <= v < side and 0 <= u < side and cells[v, u]):
            y, x = y + dy, x + dx
            cells[y, x] = 1
            turns = 0
        else:
            dy, dx = dx, -dy
            turns += 1
    return cells


def comb(h: int, w: int) -> np.ndarray:
    """Teeth that only the last row joins: every column is a component until then."""
    cells = np.zeros((h, w), np.uint8)
    cells[:, ::2] = 1
    cells[-1] = 1
    return cells


def checkerboard(h: int, w: int) -> np.ndarray:
    """Ones and zeros."""
    return (np.add.outer(np.arange(h), np.arange(w)) % 2).astype(np.uint8)


def noise(shape: tuple[int, int], share: float, classes: int = 1) -> np.ndarray:
    """Independent cells."""
    rng = np.random.default_rng(7)
    return (rng.integers(1, classes + 1, shape) * (rng.random(shape) < share)).astype(np.uint8)


PATTERNS: dict[str, tuple[np.ndarray, int]] = {
    "one cell of background": (np.zeros((1, 1), np.uint8), 0),
    "one cell": (np.ones((1, 1), np.uint8), 1),
    "all zeros": (np.zeros((70, 130), np.uint8), 0),
    "all ones": (np.ones((70, 130), np.uint8), 1),
    "a spiral": (spiral(131), 1),
    "what a spiral leaves": (1 - spiral(131), 1),
    "checkerboard": (checkerboard(67, 129), 1),
    "checkerboard of two classes, which cross at every corner": (checkerboard(67, 129) + 1, 2),
    "comb": (comb(65, 200), 1),
    "comb with teeth up": (comb(65, 200)[::-1].copy(), 1),
    "comb on its side": (np.ascontiguousarray(comb(65, 200).T), 1),
    "every other cell of every other row": (
        np.kron(np.ones((30, 70), np.uint8), np.array([[1, 0], [0, 0]], np.uint8)),
        2100,
    ),
    "one row": (noise((1, 300), 0.6), -1),
    "one column": (noise((300, 1), 0.6), -1),
    "rows of just one word": (noise((90, 64), 0.6), -1),
    "rows of one cell more than two words": (noise((90, 129), 0.6), -1),
    "single cells": (noise((100, 150), 0.05), -1),
    "noise": (noise((150, 333), 0.6), -1),
    "dense noise": (noise((100, 200), 0.95), -1),
    "noise of five classes": (noise((150, 333), 0.9, 5), -1),
    "stripes down": (np.tile(np.arange(131, dtype=np.uint8) % 5, (50, 1)), 104),
    "every cell another value": (np.arange(1, 3001, dtype=np.uint16).reshape(30, 100), 3000),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    cells, count = PATTERNS[name]
    found = check(cells)
    assert count in (-1, found.first.size)


@pytest.mark.parametrize("connectivity", [4, 8])
def test_a_mask_is_numbered_as_scipy_numbers_it(connectivity: int) -> None:
    for share in (0.3, 0.5, 0.6, 0.8):
        mask = noise((400, 517), share)
        expected, count = ndimage.label(mask, STRUCTURE[connectivity])
        found = label_tile(mask, None, connectivity)
        np.testing.assert_array_equal(found.labels, expected)
        assert found.first.size == count


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    values = np.array([0, 1, 2, 3, 100] if dtype != "bool" else [0, 1], dtype)
    if dtype.startswith(("int", "float")):
        values = np.concatenate([values, -values])  # with -0.0
    kind = np.dtype(dtype)
    if kind.kind == "f":
        limits = np.finfo(kind)
        extra = [np.nan, np.inf, -np.inf, limits.max, limits.tiny, limits.smallest_subnormal]
        values = np.concatenate([values, np.array(extra, kind)])
    elif kind.kind != "b":
        limits = np.iinfo(kind)
        values = np.concatenate([values, np.array([limits.min, limits.max], kind)])
    cells = np.random.default_rng(3).choice(values, (20, 140))
    check(cells)
    for nodata in np.unique(values):
        check(cells, nodata.item())
    check(cells[::2, ::-1])
    if kind.itemsize > 1:
        check(cells.astype(kind.newbyteorder()))


@pytest.mark.parametrize(
    ("values", "nodata", "labels"),
    [
        pytest.param([1, 7, 1], 7.0, [1, 0, 2], id="a class that is nodata"),
        pytest.param([1, 7, 7], 7.5, [1, 2, 2], id="nodata that no integer has"),
        pytest.param([1, 7, 7], 1e300, [1, 2, 2], id="nodata beyond the dtype"),
        pytest.param([1, 7, 7], float("nan"), [1, 2, 2], id="nodata NaN with integers"),
        pytest.param([1, -1, -1], -1, [1, 0, 0], id="negative nodata"),
    ],
)
def test_nodata_of_integers(values: list[int], nodata: float, labels: list[int]) -> None:
    found = label_tile(np.array([values], np.int16), nodata)
    assert found.labels.tolist() == [labels]


def test_floats_compare_by_value() -> None:
    cells = np.array([[-0.0, 0.0, 1.5, np.nan, 1.5, 0.1, np.inf]], np.float32)
    assert label_tile(cells, None).labels.tolist() == [[0, 0, 1, 0, 2, 3, 0]]
    assert label_tile(cells, 0.1).labels.tolist() == [[0, 0, 1, 0, 2, 0, 0]]
    assert label_tile(cells, 0.0).labels.tolist() == [[0, 0, 1, 0, 2, 3, 0]]


def test_read_only_and_fortran_ordered_tiles() -> None:
    cells = np.asfortranarray(noise((50, 70), 0.6, 2))
    cells.flags.writeable = False
    check(cells)
    check(np.ascontiguousarray(cells)[3:, 5:])


@pytest.mark.parametrize(
    ("cells", "connectivity", "error", "message"),
    [
        pytest.param(np.ones((2, 2)), 6, ValueError, "connectivity: 6", id="six neighbours"),
        pytest.param(np.ones(4), 8, ValueError, r"shape \(4,\)", id="one dimension"),
        pytest.param(np.ones((0, 4)), 8, ValueError, r"shape \(0, 4\)", id="no cells"),
        pytest.param(np.ones((2, 2), "c8"), 8, TypeError, "complex64", id="complex"),
        pytest.param(np.ones((2, 2), "M8[D]"), 8, TypeError, "datetime64", id="dates"),
        pytest.param(
            np.broadcast_to(np.uint8(1), (2**16, 2**15)),
            8,
            ValueError,
            "65536 x 32768 cells are 2\\*\\*31 or more",
            id="too many cells",
        ),
    ],
)
def test_refusals(cells: Any, connectivity: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        label_tile(cells, None, connectivity)


@settings(max_examples=200, deadline=None)
@given(
    cells=hnp.arrays(
        st.sampled_from([np.uint8, np.int16, np.float32, np.int64]),
        st.tuples(st.integers(1, 12), st.integers(1, 150)),
        elements=st.integers(0, 3),
    ),
    nodata=st.none() | st.integers(0, 3),
)
def test_any_tile(cells: np.ndarray, nodata: int | None) -> None:
    check(cells, nodata)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 200)),
    share=st.floats(0, 1),
    classes=st.integers(1, 4),
)
def test_any_noise(seed: int, shape: tuple[int, int], share: float, classes: int) -> None:
    rng = np.random.default_rng(seed)
    check((rng.integers(1, classes + 1, shape) * (rng.random(shape) < share)).astype(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_compile_kernels_compiles_all_that_tiles_need(dtype: str) -> None:
    from orograph.kernels.label import runs

    compile_kernels(np.dtype(dtype))
    functions = (
        *(runs.find_runs, runs.number_components, runs.measure_runs, runs.find_cells),
        *(runs.read_labels, runs.write_runs),
    )
    before = [len(function.signatures) for function in functions]
    cells = (np.arange(600).reshape(20, 30) % 3).astype(dtype)
    label_tile(cells, None, 4)
    label_tile(cells, 1, 8)
    assert [len(function.signatures) for function in functions] == before


# --- graphs


def expected_roots(n: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """SciPy's components, named by their smallest vertex."""
    graph = coo_array((np.ones(a.size, np.int8), (a, b)), shape=(n, n))
    _, numbers = connected_components(graph, directed=False)
    _, smallest = np.unique(numbers, return_index=True)
    return smallest[numbers]


def read_graph(path: Path) -> tuple[int, np.ndarray, np.ndarray]:
    """Vertices and edges of a DIMACS, PACE, Matrix Market or plain edge list, xz or not."""
    data = path.read_bytes()
    data = lzma.decompress(data) if path.suffix == ".xz" else data
    lines = [line.split() for line in data.decode().splitlines()]
    # Of a DIMACS line "a u v weight", and of the others "u v" or "u v weight".
    edges = [line[1:3] if line[0] == "a" else line[:2] for line in lines if line[0] not in "cp%"]
    a, b = np.array(edges, np.int64).T
    return int(max(a.max(), b.max())) + 1, a, b


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("USA-road-d.NY.gr.xz", marks=pytest.mark.long),
        pytest.param("pace16_BAY.gr.xz", marks=pytest.mark.long),
        pytest.param("delaunay_n16.mtx.xz", marks=pytest.mark.long),
        "rome99.gr",
        "3elt.mtx.xz",
        "facebook_combined.txt.xz",
        "USPowerGrid.txt.xz",
    ],
)
def test_real_graphs(name: str, shared_data: Path) -> None:
    n, a, b = read_graph(shared_data / "graphs" / name)
    assert a.size > 4000
    keep = np.random.default_rng(5).random(a.size) < 0.4  # so that there are many components
    for ends in ((a, b), (b[::-1], a[::-1]), (a[keep], b[keep])):
        np.testing.assert_array_equal(rem_components(n, *ends), expected_roots(n, *ends))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    """A graph with loops and repeated edges."""
    n = draw(st.integers(1, 40))
    vertex = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex), max_size=60))
    dtype = draw(st.sampled_from([np.int32, np.int64, np.uint16]))
    ends = np.array(edges, dtype).reshape(-1, 2)
    return n, ends[:, 0], ends[:, 1]


@settings(max_examples=300, deadline=None)
@given(graph=graphs())
def test_any_graph(graph: tuple[int, np.ndarray, np.ndarray]) -> None:
    found = rem_components(*graph)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected_roots(*graph))


def test_long_paths_and_stars() -> None:
    n = 200_000
    path = np.arange(n - 1), np.arange(1, n)
    for a, b in (path, (path[0][::-1], path[1][::-1])):
        assert not rem_components(n, a, b).any()
    hub = np.full(n - 1, n - 1)
    assert not rem_components(n, hub, path[0][::-1]).any()


def test_no_vertices_and_no_edges() -> None:
    nothing = np.empty(0, np.int64)
    assert rem_components(0, nothing, nothing).tolist() == []
    assert rem_components(3, nothing, nothing).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        pytest.param([0, 1], [1], ValueError, "shapes", id="lists of two lengths"),
        pytest.param([0.0], [1.0], TypeError, "float64", id="ends that are no integers"),
        pytest.param([0, 1], [1, 3], ValueError, "edge 1 ends at 3", id="end too great"),
        pytest.param([0, -1], [1, 2], ValueError, "edge 1 ends at -1", id="negative end"),
    ],
)
def test_refused_edges(a: list[Any], b: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rem_components(3, np.array(a), np.array(b))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_labels_are_written_into_a_window_and_read_cell_by_cell(dtype: Any) -> None:
    cells = np.random.default_rng(6).integers(0, 3, (40, 150)).astype(np.uint8)
    expected = label_tile(cells, None)
    found = find_components(cells, None, measure=False)
    assert found.size.size == found.box.size == 0
    every = found.labels.at(np.arange(cells.size))
    np.testing.assert_array_equal(every, expected.labels.ravel())
    np.testing.assert_array_equal(found.labels.first_cells(found.first), expected.first)
    rows = np.searchsorted(expected.first, np.arange(41) * 150)
    np.testing.assert_array_equal(found.rows, rows)
    whole = np.full((60, 170), -1, dtype)
    table = np.arange(expected.first.size + 1) * 3
    for labels in (found.labels, CellLabels(expected.labels)):
        whole[5:45, 7:157] = 0
        labels.write(table, whole[5:45, 7:157])
        np.testing.assert_array_equal(whole[5:45, 7:157], table[expected.labels])
        whole[5:45, 7:157] = -1
        assert (whole == -1).all(), "cells beside the window were written"
    with pytest.raises(ValueError, match="out: strides"):
        found.labels.write(table, np.empty((150, 40), dtype).T)


def test_labels_are_narrow_where_that_is_asked_for_and_they_fit() -> None:
    chequers = (np.indices((362, 364)).sum(axis=0) % 2).astype(np.uint8)
    for cells in (chequers, chequers[:361]):  # 65,884 components, and 65,702
        wide = label_tile(cells, None, 4)
        assert label_tile(cells, None, 4, narrow=True).labels.dtype == np.int32
        assert wide.first.size >= 2**16
    wide, narrow = (label_tile(chequers[:360], None, 4, narrow=n) for n in (False, True))
    assert (wide.labels.dtype, narrow.labels.dtype) == (np.int32, np.uint16)
    assert wide.first.size == 65_520
    np.testing.assert_array_equal(narrow.labels, wide.labels)
