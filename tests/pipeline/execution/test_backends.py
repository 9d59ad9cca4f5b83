"""Which backend a run takes: that of the processes that will do its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.execution import backends
from orograph.execution.backends import choose_backend
from orograph.execution.options import RunOptions
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
    return choose_backend(stage, (RASTER,), RunOptions(client=client, backend=backend))


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
    with pytest.raises(og.BackendError, match="dijkstra has no CUDA kernel yet"):
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
    monkeypatch.setattr("orograph.execution.options.current_client", lambda: workers)
    monkeypatch.setattr("orograph.kernels.backends.missing_gpu", lambda: NO_GPU)
    assert choose_backend("tile_forest", (RASTER,), RunOptions(backend="auto")) == "numba"
    assert workers.asked == 0
    stored = RunOptions(out="here.zarr", backend="auto")
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
