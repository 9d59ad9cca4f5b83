"""Which backend a run takes: that of the processes that will do its work."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator

import orograph as og
from orograph.kernels.forest import weights
from orograph.kernels.relax import models
from orograph.kernels.stages import STAGES
from orograph.run import backends
from orograph.run.backends import choose_backend
from orograph.run.options import RunSpec
from orograph.tiles.raster.raster import open_raster

RASTER = open_raster(np.ones((4, 4)))
NO_GPU = "CuPy finds no CUDA device"


class Workers:
    """A client of workers of which some have a GPU."""

    def __init__(self, **reasons: str | None) -> None:
        self.reasons = reasons
        self.asked = 0

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": dict.fromkeys(self.reasons)}

    def run(self, function: Callable[..., Any], *_: Any, **__: Any) -> dict[str, Any]:
        if function is not backends.missing_gpu:  # whether they can take part: they all can
            return {}
        self.asked += 1
        return self.reasons


def choose(backend: str | None, client: Any, stage: str = "tile_forest") -> str:
    return choose_backend(stage, (RASTER,), RunSpec(client=client, backend=backend))


@pytest.mark.parametrize(
    ("reasons", "chosen"),
    [
        pytest.param({"a": None, "b": None}, "cuda", id="all have one"),
        pytest.param({"a": NO_GPU, "b": NO_GPU}, "numba", id="none has one"),
        pytest.param({}, "auto", id="there are none yet"),
    ],
)
def test_auto_follows_the_workers(reasons: dict[str, str | None], chosen: str) -> None:
    assert choose("auto", Workers(**reasons)) == chosen
    assert choose(None, Workers(**reasons)) == chosen


@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_a_mixed_cluster_is_refused_by_name(backend: str) -> None:
    workers = Workers(a=None, b=NO_GPU, c=None)
    with pytest.raises(og.BackendError, match=rf"1 of 3 workers.* b: {NO_GPU}.*'numba'"):
        choose(backend, workers)


def test_cuda_is_refused_where_no_worker_has_a_gpu_or_can_tell() -> None:
    with pytest.raises(og.BackendError, match=r"2 of 2 workers"):
        choose("cuda", Workers(a=NO_GPU, b=NO_GPU))
    with pytest.raises(og.BackendError, match=r"no worker.*wait_for_workers"):
        choose("cuda", Workers())


def test_a_stage_that_only_numba_does_is_not_promised_to_a_gpu() -> None:
    workers = Workers(a=None)
    assert choose("auto", workers, "dijkstra") == "numba"
    with pytest.raises(og.BackendError, match="Dijkstra's algorithm has no CUDA kernel yet"):
        choose("cuda", workers, "dijkstra")
    with pytest.raises(ValueError, match="no backend has 'dijsktra'"):
        choose("auto", workers, "dijsktra")
    assert workers.asked == 0


def test_numba_is_taken_at_its_word() -> None:
    workers = Workers(a=None, b=NO_GPU)
    assert choose("numba", workers) == "numba"
    assert workers.asked == 0


def test_a_cluster_that_does_not_do_the_work_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array without ``out`` is worked on by this process, whatever cluster is active."""
    workers = Workers(a=None)
    monkeypatch.setattr("orograph.run.options.current_client", lambda: workers)
    monkeypatch.setattr("orograph.kernels.backends.missing_gpu", lambda: NO_GPU)
    assert choose_backend("tile_forest", (RASTER,), RunSpec(backend="auto")) == "numba"
    assert workers.asked == 0
    stored = RunSpec(out="here.zarr", backend="auto")
    assert choose_backend("tile_forest", (RASTER,), stored) == "cuda"


def test_the_operations_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, mixed = np.ones((4, 4)), Workers(a=None, b=NO_GPU)
    for call in (
        lambda: og.minimum_spanning_forest(grid, client=mixed),
        lambda: og.cost_distance(grid, [(0, 0)], client=mixed),
        lambda: og.connected_components(grid, client=mixed),
        lambda: og.hop_distance(grid, [(0, 0)], client=mixed),
    ):
        with pytest.raises(og.BackendError, match="1 of 2 workers"):
            call()


@pytest.fixture
def no_formulas_of_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let cost models and weights have no second file."""
    monkeypatch.setattr(models, "FOLDER", tmp_path / "models")
    monkeypatch.setattr(weights, "FOLDER", tmp_path / "weights")


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("a task has run")


BY_FORMULA: dict[str, Callable[..., Any]] = {
    "the cost model 'tobler'": lambda **o: og.walking_time(
        np.ones((4, 4)), [(0, 0)], cell_size=1, **o
    ),
    "the cost model 'tobler' of an index": lambda **o: og.DistanceIndex.build(
        np.ones((4, 4)), o.pop("out"), cost="tobler", cell_size=1, **o
    ),
    "weight='mean'": lambda **o: og.minimum_spanning_forest(np.ones((4, 4)), weight="mean", **o),
}


@pytest.mark.parametrize("name", BY_FORMULA)
def test_a_formula_that_a_gpu_lacks_is_refused_before_a_task(
    name: str,
    no_formulas_of_cuda: None,
    emulated_gpu: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orograph.operations.operation.launch", refuse)
    what = name.split(" of ", maxsplit=1)[0]
    with pytest.raises(og.BackendError, match=f"{what} has no CUDA kernel yet; use 'numba'"):
        BY_FORMULA[name](out=tmp_path / "out.zarr", backend="cuda")
    assert not list(tmp_path.iterdir())


def test_auto_leaves_a_formula_that_a_gpu_lacks_to_the_cpu(
    no_formulas_of_cuda: None, emulated_gpu: Emulator
) -> None:
    forest = BY_FORMULA["weight='mean'"]
    found = forest(backend="auto")
    assert emulated_gpu.launches == 0
    assert found.identical(forest(backend="numba"))


GRID = np.ones((64, 64))
LARGE_TILES: dict[str, Callable[..., Any]] = {
    "forest": lambda **o: og.minimum_spanning_forest(GRID, **o),
    "components": lambda **o: og.connected_components(GRID.astype(np.uint8), **o),
    "distances in float64": lambda **o: og.cost_distance(GRID, [(0, 0)], **o),
    "allocation": lambda **o: og.cost_distance(GRID, [(0, 0)], outputs="allocation", **o),
    "hops": lambda **o: og.hop_distance(GRID, [(0, 0)], **o),
    "filling": lambda **o: og.fill_depressions(GRID, **o),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "on disk"])
@pytest.mark.parametrize("name", LARGE_TILES)
def test_a_gpu_without_memory_is_told_in_a_sentence(
    name: str, stored: bool, emulated_gpu: Emulator, tmp_path: Path
) -> None:
    where: dict[str, Any] = {"out": tmp_path / "out.zarr"} if stored else {}
    emulated_gpu.largest = GRID.size  # bytes of a cell, or none
    with pytest.raises(og.BackendError) as caught:
        LARGE_TILES[name](backend="cuda", **where)
    text = str(caught.value)
    assert re.fullmatch(r"the memory of the GPU is full \(Out of memory .*\); .*", text), text
    assert "take a smaller tile" in text


def test_what_has_no_cuda_kernel_is_named_in_the_words_of_users() -> None:
    lacking = {name: stage.work for name, stage in STAGES.items() if stage.cuda is None}
    assert all(work and name not in work for name, work in lacking.items())
    grid = np.ones((4, 4))
    for call, said in (
        (lambda: og.breach_depressions(grid, backend="cuda"), "breaching depressions"),
        (lambda: og.polygonize(grid.astype(int), backend="cuda"), "polygonize"),
    ):
        with pytest.raises(og.BackendError, match=f"^backend: {said} has no CUDA kernel yet"):
            call()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            "raise RuntimeError('cudaErrorInsufficientDriver: CUDA driver is too old')",
            r"finds no CUDA device \(RuntimeError: cudaErrorInsufficientDriver: CUDA driver",
        ),
        ("return 0", "finds no CUDA device; use 'numba'"),
    ],
    ids=["an old driver", "no device"],
)
def test_the_reason_why_there_is_no_device_is_told(
    answer: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("__init__", "from cupy import cuda\ndef is_available(): return False\n"),
        ("cuda", f"class runtime:\n    @staticmethod\n    def getDeviceCount(): {answer}\n"),
    ):
        (tmp_path / "cupy").mkdir(exist_ok=True)
        (tmp_path / f"cupy/{name}.py").write_text(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    backends.missing_gpu.cache_clear()
    try:
        with pytest.raises(og.BackendError, match=said):
            og.minimum_spanning_forest(np.ones((4, 4)), backend="cuda")
    finally:
        backends.missing_gpu.cache_clear()
        for name in ("cupy", "cupy.cuda"):
            sys.modules.pop(name, None)


@pytest.fixture
def broken_cupy(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A CuPy that is installed, but whose import raises."""
    (tmp_path / "cupy").mkdir()
    (tmp_path / "cupy/__init__.py").write_text(f"raise {request.param}\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    backends.missing_gpu.cache_clear()
    yield request.param.partition("(")[0]
    backends.missing_gpu.cache_clear()


@pytest.mark.parametrize(
    "broken_cupy",
    ["ImportError('libcudart.so.12: cannot open\\nit')", "OSError()", "RuntimeError('driver')"],
    indirect=True,
)
def test_a_cupy_that_cannot_be_imported_leaves_the_cpu(broken_cupy: str) -> None:
    assert og.connected_components(np.eye(3)).attrs["component_count"] == 1
    with pytest.raises(og.BackendError, match=rf"CuPy cannot be imported \({broken_cupy}.*'numba'"):
        og.connected_components(np.eye(3), backend="cuda")
