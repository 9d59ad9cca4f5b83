"""Two writers of one target, and writers killed at random: nothing mixed, lost or in the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from programs import run_script

WRITERS = ("ingest", "export", "run", "mixed", "update")
RACES = int(os.environ.get("ORO_TEST_RACES", 30))
KILLS = int(os.environ.get("ORO_TEST_KILLS", 200))
"""Both of each writer."""


def trials(folder: Path, races: int, kills: int, *writers: str) -> dict[str, dict[str, Any]]:
    script = Path(__file__).with_name("race_writers.py")
    found: dict[str, dict[str, Any]] = run_script(script, folder, folder, races, kills, *writers)
    assert found.keys() == set(writers)
    print({name: {**told, "wrong": len(told["wrong"])} for name, told in found.items()})
    wrong = [f"{name}: {line}" for name, told in found.items() for line in told["wrong"]]
    assert not wrong, "\n".join(wrong)
    return found


def test_writers_race_and_are_killed(tmp_path: Path) -> None:
    trials(tmp_path, 1, 1, *WRITERS)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)  # 200 kills of a run last half an hour on a busy machine
@pytest.mark.parametrize("writer", WRITERS)
def test_writers_race_and_are_killed_often(writer: str, tmp_path: Path) -> None:
    found = trials(tmp_path, RACES, KILLS, writer)[writer]
    assert found["refused"] > 0, "no two were at work at once"
    assert found["killed"] == KILLS
