"""Input that only a task finds to be bad: one error of ours, and nothing left that is of no use."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.run.cluster.workers import _is_news, keep_log_short


@pytest.fixture
def friction(tmp_path: Path) -> Path:
    """Store a raster whose last cell is below zero."""
    cells = np.ones((20, 20))
    cells[19, 19] = -2
    og.ingest(cells, tmp_path / "f.zarr", tile=5, shard=10)
    return tmp_path / "f.zarr"


def distance(friction: Path, out: Path, **options: Any) -> Any:
    return og.cost_distance(friction, [(0, 0)], out=out, **options)


def test_the_error_has_no_other_behind_it(friction: Path, tmp_path: Path) -> None:
    with pytest.raises(og.InputError, match=r"friction: -2\.0 at row 19, column 19; ") as caught:
        distance(friction, tmp_path / "c.zarr")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_nothing_is_left_and_resume_begins_when_the_input_is_mended(
    friction: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.zarr"
    with pytest.raises(og.InputError):
        distance(friction, out)
    assert [path.name for path in tmp_path.iterdir()] == ["f.zarr"]
    og.ingest(np.ones((20, 20)), friction, tile=5, shard=10, overwrite=True)
    assert distance(friction, out, resume=True).attrs["reached_cells"] == 400


def test_an_index_that_is_refused_leaves_nothing(friction: Path, tmp_path: Path) -> None:
    with pytest.raises(og.InputError, match="friction: -2"):
        og.DistanceIndex.build(friction, tmp_path / "i.zarr", block=5, levels=0)
    assert [path.name for path in tmp_path.iterdir()] == ["f.zarr"]


def test_workers_log_what_the_run_does_not_say() -> None:
    failed = "Compute Failed\nKey:       %s\nException: %r"
    for text, logged in (
        ("InputError('friction: -2.0 at row 0')", False),
        ("RunError('the run that this task belongs to has ended')", False),
        ("ZeroDivisionError('division by zero')", True),
    ):
        assert _is_news(record(failed, ("visit", 3), text)) == logged
    assert not _is_news(record("Async instruction for <Task> ended with CancelledError"))
    assert _is_news(record("Worker is at %s memory usage. Pausing worker.", "85%"))


def test_a_worker_says_in_one_line_that_another_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("distributed.worker")
    keep_log_short()
    with caplog.at_level(logging.ERROR, "distributed.worker"):
        for text in ("Worker stream died during communication: %s", "something else: %s"):
            try:
                raise OSError("in <TCP>: Stream is closed")
            except OSError:
                log.exception(text, "tcp://127.0.0.1:1")
    lost, other = caplog.records
    assert (lost.getMessage().startswith("Worker stream died"), lost.exc_info) == (True, None)
    assert other.exc_info is not None


def record(message: str, *parts: Any) -> logging.LogRecord:
    return logging.LogRecord("distributed.worker", logging.ERROR, "", 0, message, parts, None)


def test_heights_in_memory_are_looked_at_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("a run has begun")

    monkeypatch.setattr("orograph.run.run.Run.__init__", begun)
    heights = np.zeros((6, 7))
    heights[2, 3] = 0.5
    how: dict[str, Any] = {"cost": "absolute_difference", "dtype": "int64", "cell_size": 1}
    for out in (None, tmp_path / "c.zarr"):
        with pytest.raises(og.InputError, match=r"elevation: 0\.5 at row 2, column 3; .*whole"):
            og.cost_distance(heights, [(0, 0)], out=out, **how)
    assert not list(tmp_path.iterdir())
