"""Back directions and allocation on a GPU: the bits of the CPU, over several tiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from any_model import distance
from cuda_on_cpu.emulator import Emulator
from numpy.testing import assert_array_equal

import orograph as og
from orograph.distance.allocation import AllocationProblem
from orograph.distance.allocation_on_gpu import AllocationOnGpu
from orograph.engines import parts
from orograph.engines.frontier import driver
from orograph.engines.frontier.worker import visit_tiles
from orograph.kernels.relax.cuda import DeviceTile
from orograph.kernels.shortest_path_tree.pair_code import PairCode, code_of_run

OUTPUTS = ("cost", "back_direction", "allocation")
SHAPE = 66, 60


def surface() -> Any:
    """Plains of cost zero, ties, and walls."""
    rng = np.random.default_rng(3)
    friction = 2.0 * rng.integers(0, 4, SHAPE)
    friction[25:50, 20:55] = 0
    friction[10:62, 33] = np.nan
    friction[30, :33] = np.nan
    return friction


def labelled(dtype: Any, *labels: float) -> Any:
    """A raster of sources in several tiles, two of them with the same label."""
    sources = np.zeros(SHAPE, dtype)
    cells = (3, 4), (65, 50), (60, 3), (45, 45), (5, 58)
    for cell, label in zip(cells, [*labels, labels[0]], strict=True):
        sources[cell] = label
    return sources


def refuse(*_: Any) -> None:
    raise AssertionError("the work of another backend")


@pytest.fixture
def on_gpu_alone(monkeypatch: pytest.MonkeyPatch, emulated_gpu: Emulator) -> pytest.MonkeyPatch:
    """Let no allocation be computed on the CPU; undone by ``undo``."""
    monkeypatch.setattr(AllocationProblem, "open", refuse)
    return monkeypatch


POINTS = [(3, 5), (50, 64), (51, 64), (58, 2), (35, 45)]

CASES: dict[str, dict[str, Any]] = {
    "plains and ties": {},
    "knights in float32 to a limit": {"connectivity": 16, "dtype": "float32", "max_cost": 50.0},
    "whole numbers": {"connectivity": 4, "dtype": "int64", "max_cost": 60},
    "walking to the sources": {
        "cost": "walk",
        "elevation": np.random.default_rng(5).integers(0, 40, SHAPE).astype(float),
        "travel": "to",
    },
    "sources that others reach first": {"initial_cost": [0, 4, 90, 0, 2]},
    "equal and negative labels": {"sources": labelled(np.int16, 300, -9, -(2**15), 7)},
    "large labels": {"sources": labelled(np.int64, 2**62 - 1, -(2**63), 2**53 + 1, 2**53)},
    "labels in float32": {"sources": labelled(np.float32, 3, 2e18, -5, 8)},
    "some labels": {"sources": labelled(np.uint8, 1, 2, 3, 255), "source_values": [1, 255]},
    "directions alone": {"outputs": ("cost", "back_direction")},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_a_run_has_the_bits_of_one_on_the_cpu(
    options: dict[str, Any], on_gpu_alone: pytest.MonkeyPatch
) -> None:
    arguments = {"sources": POINTS, "cell_size": 1, "tile": 32, "snap": True, **options}
    arguments.setdefault("outputs", OUTPUTS)
    found = distance(surface(), backend="cuda", **arguments)
    on_gpu_alone.undo()
    expected = distance(surface(), backend="numba", **arguments)
    assert tuple(found) == arguments["outputs"]
    for name in expected:
        assert_array_equal(found[name], expected[name], strict=True)
    assert (expected["back_direction"] == 255).any()
    assert np.unique(expected["back_direction"]).size > 5


def test_larger_tiles_than_shards_read_in_parts_have_the_same_bits(
    tmp_path: Path, on_gpu_alone: pytest.MonkeyPatch
) -> None:
    sources = labelled(np.uint8, 3, 1, 2, 4)
    arguments = {"cell_size": 1, "tile": 8, "outputs": OUTPUTS}
    on_gpu_alone.setattr(parts, "PART", 16)
    with og.config.set(field=2):  # sixteen times as many on a GPU
        found = og.cost_distance(
            *(surface(), sources), backend="cuda", shard=16, out=tmp_path / "a", **arguments
        )
    assert og.verify(tmp_path / "a").ok
    on_gpu_alone.undo()
    expected = og.cost_distance(surface(), sources, backend="numba", **arguments)
    for name in OUTPUTS:
        assert_array_equal(found[name], expected[name], strict=True)


def test_tiles_leave_a_gpu_that_is_full(on_gpu_alone: pytest.MonkeyPatch) -> None:
    unpacked, unpack = [], DeviceTile.unpack

    def watched(tile: DeviceTile, *packed: Any) -> None:
        unpacked.append(tile.state.dist.dtype)
        unpack(tile, *packed)

    on_gpu_alone.setattr("orograph.kernels.backends.memory_for_tiles", lambda: 40_000)
    on_gpu_alone.setattr(DeviceTile, "unpack", watched)
    arguments = {"sources": POINTS, "cell_size": 1, "tile": 32, "outputs": OUTPUTS}
    found = og.cost_distance(surface(), backend="cuda", **arguments)
    assert np.int64 in unpacked  # the pairs
    on_gpu_alone.undo()
    expected = og.cost_distance(surface(), backend="numba", **arguments)
    for name in OUTPUTS:
        assert_array_equal(found[name], expected[name], strict=True)


@pytest.mark.parametrize("backend", ["cuda", "numba"])
def test_a_visit_that_only_reads_sends_what_a_lost_result_did_not(
    backend: str, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of each visit is lost, and one at a bound below zero follows."""
    handles = []
    settle, take_back = driver._Driver.settle, driver._Driver._take_back

    def settled(self: Any, workers: Any, handle: Any, cancelled: Any) -> None:
        handles.append(handle)
        settle(self, workers, handle, cancelled)

    def taken_back(self: Any, tile: Any, visit: Any) -> None:
        take_back(self, tile, None)
        if visit is not None:
            requests = [replace(r, key=-np.inf) for r in self._take_out([tile])]
            take_back(self, tile, visit_tiles(handles[-1], requests, -1.0)[tile])

    arguments = {"cell_size": 1, "tile": 32, "outputs": OUTPUTS}
    expected = og.cost_distance(surface(), POINTS[:1], backend=backend, **arguments)
    monkeypatch.setattr(driver._Driver, "settle", settled)
    monkeypatch.setattr(driver._Driver, "_take_back", taken_back)
    with og.config.set(field=0, threads=1):
        found = og.cost_distance(surface(), POINTS[:1], backend=backend, **arguments)
    for name in OUTPUTS:
        assert_array_equal(found[name], expected[name], strict=True)


@pytest.mark.parametrize("first", ["cuda", "numba"])
def test_a_run_goes_on_with_another_backend(
    first: str, tmp_path: Path, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"cuda": "numba", "numba": "cuda"}[first]
    problem = AllocationOnGpu if first == "cuda" else AllocationProblem
    monkeypatch.setattr(problem, "finish", refuse)
    arguments = {"sources": POINTS, "cell_size": 1, "tile": 32, "outputs": OUTPUTS}
    with pytest.raises(og.RunError, match="another backend"):
        og.cost_distance(surface(), backend=first, out=tmp_path / "a", **arguments)
    found = og.cost_distance(surface(), backend=other, out=tmp_path / "a", resume=True, **arguments)
    expected = og.cost_distance(surface(), backend=other, **arguments)
    for name in OUTPUTS:
        assert_array_equal(found[name], expected[name], strict=True)


@pytest.mark.parametrize("kind", ["links", "a stored raster of int64"])
def test_what_does_not_fit_is_done_on_the_cpu(
    kind: str, tmp_path: Path, emulated_gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AllocationOnGpu, "open", refuse)
    arguments: dict[str, Any] = {"sources": POINTS, "cell_size": 1, "tile": 32, "outputs": OUTPUTS}
    if kind == "links":
        width = SHAPE[1]
        edge = [1.0], ([4 * width + 3], [60 * width + 50])
        edges = scipy.sparse.coo_array(edge, shape=(SHAPE[0] * width,) * 2)
        arguments["links"] = og.read_graph(edges, directed=False)
    else:
        og.ingest(labelled(np.int64, 2**61, 5, 6, 7), tmp_path / "labels")
        arguments["sources"] = tmp_path / "labels"
    found = og.cost_distance(surface(), backend="cuda", **arguments)
    expected = og.cost_distance(surface(), backend="numba", **arguments)
    for name in expected:
        assert_array_equal(found[name], expected[name], strict=True)


@pytest.mark.parametrize(
    ("cells", "known", "dtype", "expected"),
    [
        (100, None, "uint8", PairCode(7, None, 0)),
        (100, None, "int8", PairCode(7, None, -128)),
        (2**40, None, "uint16", PairCode(41, None, 0)),
        (2**28 - 1, None, "int32", PairCode(28, None, -(2**31))),
        (2**28, None, "int32", None),
        (100, None, "int64", None),
        (100, None, "float32", None),
        (2**58 - 1, [5, 5, 4], "int64", PairCode(58, np.array([4, 5]))),
        (2**59 - 1, [5, 5, 4], "int64", PairCode(59, np.array([4, 5]))),
        (2**59 - 1, [5, 3, 4], "int64", None),
    ],
)
def test_labels_are_ranked_where_they_fit_beside_the_hops(
    cells: int, known: Any, dtype: str, expected: PairCode | None
) -> None:
    found = code_of_run(cells, None if known is None else np.array(known), np.dtype(dtype))
    if found is None or expected is None:
        assert found is expected
        return
    assert (found.hop_bits, found.least) == (expected.hop_bits, expected.least)
    assert_array_equal(found.labels, expected.labels)
