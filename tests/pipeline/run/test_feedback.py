"""What a person sees while a call goes on: bars, live tables, and that kernels are compiled."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import orograph as og
from orograph.run import feedback
from orograph.run.feedback import Progress
from orograph.run.run import Run


class Slow:
    """An engine that is half done until it is told to end."""

    def __init__(self) -> None:
        self.end = threading.Event()

    def work(self) -> str:
        assert self.end.wait(60)
        return "done"

    def progress(self) -> Progress:
        return Progress(3, 6)

    def statistics(self) -> dict[str, int]:
        return {"tile_visits": 7}


@pytest.fixture
def slow() -> Any:
    engine = Slow()
    yield engine
    engine.end.set()


def run_of(engine: Slow) -> Run[str]:
    return Run(engine.work, lambda: engine, threading.Event(), None)  # type: ignore[arg-type]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("setting", ["auto", False])
def test_a_bar_on_a_terminal_after_some_seconds(
    setting: Any, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("orograph.run.run.SECONDS_OF_SILENCE", 0.2)
    run = run_of(slow)
    threading.Timer(1.2, slow.end.set).start()
    with og.config.set(progress=setting):
        assert run.result() == "done"
    assert ("3/6" in screen.getvalue()) == (setting == "auto")


def test_no_bar_where_nobody_watches_or_all_is_quick(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet, screen = io.StringIO(), Terminal()
    monkeypatch.setattr(sys, "stderr", quiet)
    monkeypatch.setattr("orograph.run.run.SECONDS_OF_SILENCE", 0.2)
    threading.Timer(0.8, slow.end.set).start()
    assert run_of(slow).result() == "done"
    assert "3/6" not in quiet.getvalue()
    monkeypatch.setattr(sys, "stderr", screen)
    assert run_of(slow).result() == "done"  # at once
    assert screen.getvalue() == ""


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What a notebook that runs this process shows: its outputs, each with what it has shown."""
    outputs: list[list[str]] = []

    class ZMQInteractiveShell:
        pass

    class Handle:
        def __init__(self, html: str) -> None:
            self.shown = [html]
            outputs.append(self.shown)

        def update(self, html: str) -> None:
            self.shown.append(html)

    def display(html: str, display_id: bool) -> Handle:
        assert display_id
        return Handle(html)

    fake, displays = ModuleType("IPython"), ModuleType("IPython.display")
    fake.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    displays.display, displays.HTML = display, str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return outputs


def test_a_call_is_one_output_in_a_notebook(
    slow: Slow, outputs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("orograph.run.run.SECONDS_OF_SILENCE", 0.2)
    threading.Timer(1.2, slow.end.set).start()
    assert run_of(slow).result() == "done"
    (shown,) = outputs
    assert len(shown) >= 2
    assert "value='3' max='6'" in shown[0]
    assert not any(text.count("\n") or "<br>" in text for text in shown)
    assert screen.getvalue() == ""


def test_a_run_is_live_in_a_notebook(slow: Slow, outputs: list[list[str]]) -> None:
    run = run_of(slow)
    assert feedback.shows_progress()
    run._ipython_display_()
    (shown,) = outputs
    assert "running" in shown[0]
    assert "value='3' max='6'" in shown[0]
    slow.end.set()
    run.result(30)
    patience = time.monotonic() + 30
    while "finished" not in shown[-1] and time.monotonic() < patience:
        time.sleep(0.05)
    assert "finished" in shown[-1]


FIRST = """
import numpy as np, orograph as og
with og.config.set(progress=False):
    og.connected_components(np.ones((8, 8), np.uint8))
for dtype in (np.uint16, np.uint32):
    og.connected_components(np.ones((8, 8), dtype))
"""


def test_the_first_call_says_that_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, for all that is compiled in a process; a label's kernels take the least time."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", FIRST]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert said.count("compiling kernels, once for each operation and dtype") == 1
    assert said.count("compiling") == 1
