"""Two writers of one target, and writers killed at random: nothing mixed, lost or in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WRITERS = ("ingest", "export", "run", "update")
RACES = int(os.environ.get("ORO_TEST_RACES", 30))
"""Of each writer."""
KILLS = int(os.environ.get("ORO_TEST_KILLS", 200)) // len(WRITERS)


def trials(folder: Path, races: int, kills: int) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(HERE / "race_writers.py"), str(folder), str(races), str(kills)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert found.keys() == set(WRITERS)
    return found


def assert_well(found: dict[str, dict[str, Any]]) -> None:
    print({name: {**told, "wrong": len(told["wrong"])} for name, told in found.items()})
    wrong = [f"{name}: {line}" for name, told in found.items() for line in told["wrong"]]
    assert not wrong, "\n".join(wrong)


def test_writers_race_and_are_killed(tmp_path: Path) -> None:
    assert_well(trials(tmp_path, 2, 2))


@pytest.mark.long
def test_writers_race_and_are_killed_often(tmp_path: Path) -> None:
    found = trials(tmp_path, RACES, KILLS)
    assert_well(found)
    for name, told in found.items():
        assert told["refused"] > 0, f"{name}: no two were at work at once"
        assert told["killed"] > KILLS // 2, f"{name}: {told['killed']} were killed"
