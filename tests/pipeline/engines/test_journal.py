"""What the driver saves: distances whose processes are killed go on from it, with the same bits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import kill_distances
import numpy as np
import pytest
from kill_distances import TILES
from programs import run_script

import orograph as og
from orograph.engines.frontier import driver
from orograph.engines.frontier.bucket_width import BucketWidth
from orograph.engines.frontier.journal import (
    MOST_ENTRIES,
    SECONDS_BETWEEN_ENTRIES,
    SHARE,
    Journal,
)
from orograph.run.checkpoints import MemoryCheckpoints
from orograph.tiles.grid.quadtree import Node

ROOT = Node(3, 0)
MOMENTS = np.random.default_rng(1).uniform(0.05, 0.8, 50).tolist()
SCRIPT = Path(kill_distances.__file__)


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param([0.6, 0.4], id="two"),
        pytest.param(MOMENTS, id="50", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(7200)
def test_a_distance_killed_at_any_moment_does_no_written_shard_again(
    tmp_path: Path, shares: list[float]
) -> None:
    """None that the last whole entry names, which are all that were written when it was begun.

    How many are written after that depends on how long entries take.
    """
    killed: list[dict[str, Any]] = run_script(SCRIPT, tmp_path, tmp_path, *shares)
    assert len(killed) >= len(shares) * 3 // 4  # the time of a run varies
    for row in killed:
        assert row["same_bits"]
        assert row["journaled"] in row["entries"]
        assert not [tile for tile in row["opened"] if tile in row["journaled"]]
        assert len(row["journaled"]) <= row["written"]
        assert len(set(map(tuple, row["opened"]))) >= TILES - row["written"]
    assert max(row["written"] for row in killed) > TILES // 16
    assert any(row["journaled"] for row in killed)


def test_an_entry_is_due_when_the_last_is_written_and_has_taken_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds, begun, ends = [0.0], Event(), Event()
    clock = SimpleNamespace(monotonic=lambda: seconds[0])
    monkeypatch.setattr("orograph.engines.frontier.journal.time", clock)
    journal = Journal(MemoryCheckpoints(), ROOT)

    def entry() -> str:
        begun.set()
        ends.wait()
        return "all"

    assert not journal.due()
    seconds[0] += SECONDS_BETWEEN_ENTRIES
    assert journal.due()
    journal.write(entry, first=True)
    begun.wait()
    seconds[0] += 3.0
    assert not journal.due()
    ends.set()
    journal.wait()
    seconds[0] += 3.0 / SHARE - 1.0
    assert not journal.due()
    seconds[0] += 1.0
    assert journal.due()
    journal.close()


def test_a_series_is_followed_by_another_once_it_has_grown() -> None:
    checkpoints = MemoryCheckpoints()
    journal = Journal(checkpoints, ROOT)
    firsts = []
    for number in range(20):
        first = journal.begins(changed=10, known=30)
        journal.write(partial(int, number), first=first)
        firsts.append(number) if first else None
    journal.wait()
    journal.close()
    assert firsts == [0, 7, 14]
    again = Journal(checkpoints, ROOT)
    assert list(again.entries()) == list(range(14, 20))
    assert again.begins(changed=0, known=30)
    again.write(lambda: "all", first=True)
    again.close()
    assert list(Journal(checkpoints, ROOT).entries()) == ["all"]
    assert checkpoints.count("front", 3) == 0  # the series before
    assert MOST_ENTRIES > 20


def test_a_series_whose_beginning_is_not_written_counts_for_nothing() -> None:
    """Killed between the first entry of a series and the note of it."""
    checkpoints = MemoryCheckpoints()
    journal = Journal(checkpoints, ROOT)
    journal.begins(0, 0)
    journal.write(lambda: "old", first=True)
    journal.close()
    checkpoints.save("front", Node(2, 0), "new")
    assert list(Journal(checkpoints, ROOT).entries()) == ["old"]


def test_a_written_shard_that_is_damaged_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The borders around it may be gone, so the run begins at its sources."""
    friction = np.random.default_rng(7).uniform(1, 9, (64, 256)).astype(np.float32)
    out = tmp_path / "cost.zarr"

    def broken_off(*arguments: Any) -> None:
        raise KeyboardInterrupt

    def distance(**options: Any) -> Any:
        with og.config.set(threads=2, field=0):
            return og.cost_distance(friction, [(0.0, 0.0)], tile=16, shard=16, out=out, **options)

    with monkeypatch.context() as patch:
        patch.setattr(driver._Driver, "write", broken_off)
        patch.setattr(BucketWidth, "adapt", lambda self: None)
        with pytest.raises(KeyboardInterrupt):
            distance()
    written = sorted(out.with_name("cost.zarr.partial").glob("*/result.zarr/cost/c/*/*"))
    assert written
    content = bytearray(written[0].read_bytes())
    content[len(content) // 2] ^= 1
    written[0].write_bytes(content)
    expected = og.cost_distance(friction, [(0.0, 0.0)], tile=256)
    np.testing.assert_array_equal(distance(resume=True)["cost"], expected["cost"], strict=True)
