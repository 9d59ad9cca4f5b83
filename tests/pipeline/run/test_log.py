"""Runs say to Python's log what they do, and nothing where nobody asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import orograph as og
from orograph.flow.directions import Directions


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_tells_its_stages_and_its_end(
    stored: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO", "orograph")
    out = tmp_path / "flow.zarr"
    og.flow_direction(np.eye(20), tile=8, **({"out": out} if stored else {}))
    place = f"to {out}" if stored else "into memory"
    first, *stages, last = [record.getMessage() for record in caplog.records]
    assert first.startswith("flow_direction of 20 x 20 cells in tiles of 8 and shards of")
    assert first.endswith(place)
    assert "stage 1 of 2 begins: fill-depressions" in stages
    assert "stage 2 of 2 begins: flow-direction" in stages
    assert last.startswith("flow_direction is finished after")


def test_a_failure_and_what_goes_on_from_it(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "orograph")

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("in a tile")

    with monkeypatch.context() as change:
        change.setattr(Directions, "finish", fail)
        with pytest.raises(og.RunError, match="ZeroDivisionError"):
            og.flow_direction(np.eye(20), tile=8, out=tmp_path / "flow.zarr")
    assert "flow_direction failed after" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelname == "ERROR"
    og.flow_direction(np.eye(20), tile=8, out=tmp_path / "flow.zarr", resume=True)
    assert "flow_direction goes on from what an earlier run has left" in caplog.messages


def test_nothing_is_shown_unless_one_asks() -> None:
    script = (
        "import numpy as np, orograph as og\n"
        "try:\n"
        "    og.flow_accumulation(np.array([[1, 5]], 'u1'), codes='taudem', tile=1)\n"
        "except og.InputError:\n"
        "    print('refused')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "refused\n"
    assert "failed" not in ended.stderr
