"""Vaults and the names of tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.utils import key_split
from distributed.utils import key_split as distributed_key_split
from memory_storage import MemoryStorage
from traps import PICKLE, PICKLED_ENTRY

from orograph.run.checkpoints import CheckpointStore, MemoryCheckpoints, StoredCheckpoints
from orograph.run.cluster.task_graph import Layers
from orograph.tiles.errors import StorageFullError
from orograph.tiles.grid.quadtree import Node

NODE = Node(2, 7)


@pytest.fixture(params=["memory", "disk", "storage without files"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    if request.param == "memory":
        return MemoryCheckpoints()
    place = tmp_path if request.param == "disk" else MemoryStorage(f"memory://{tmp_path}")
    return StoredCheckpoints(place)


def test_an_entry_comes_back_as_it_was(checkpoints: CheckpointStore) -> None:
    entry = {"mask": np.arange(5), "text": ("a", None)}
    checkpoints.save("downward-state", NODE, entry)
    found = checkpoints.load("downward-state", NODE)
    assert found["mask"].tolist() == [0, 1, 2, 3, 4]
    assert found["text"] == ("a", None)


def test_what_was_never_saved_is_absent(checkpoints: CheckpointStore) -> None:
    assert checkpoints.load("downward-state", NODE) is None
    assert not checkpoints.has("downward-state", NODE)
    assert checkpoints.count("downward-state", 2) == 0


def test_entries_are_counted_by_kind_and_level(checkpoints: CheckpointStore) -> None:
    for z in range(3):
        checkpoints.save("summary", Node(1, z), z)
    checkpoints.save("summary", Node(2, 0), 0)
    checkpoints.save("done", Node(1, 0), True)
    assert checkpoints.count("summary", 1) == 3
    checkpoints.drop("summary", Node(1, 1))
    assert checkpoints.count("summary", 1) == 2
    checkpoints.drop("summary", Node(1, 1))


def test_parts_of_a_run_share_nothing(checkpoints: CheckpointStore) -> None:
    one, two = checkpoints.part("one"), checkpoints.part("two")
    for number, part in enumerate((checkpoints, one, two)):
        part.save("state", NODE, number)
        part.sync("state", NODE.level, NODE.z)
        part.sync("state", NODE.level)
    assert [part.load("state", NODE) for part in (checkpoints, one, two)] == [0, 1, 2]
    one.clear()
    assert [part.count("state", 2) for part in (checkpoints, one, two)] == [1, 0, 1]
    one.clear()
    one.save("state", NODE, 3)
    assert one.load("state", NODE) == 3


def test_tasks_may_change_what_they_load(checkpoints: CheckpointStore) -> None:
    checkpoints.save("state", NODE, np.zeros(2**17, np.uint8))
    checkpoints.load("state", NODE)[0] = 1


@pytest.mark.parametrize(
    "damage", ["flipped", "cut", "emptied", "a pickle", "an entry of the first format"]
)
def test_a_damaged_entry_counts_as_absent(tmp_path: Path, damage: str) -> None:
    checkpoints = StoredCheckpoints(tmp_path)
    checkpoints.save("downward-state", NODE, np.arange(1000))
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    whole = {"flipped": content, "cut": content[:-3], "emptied": b"", "a pickle": PICKLE}
    path.write_bytes(whole.get(damage, PICKLED_ENTRY))
    assert checkpoints.load("downward-state", NODE) is None


def test_the_entry_of_another_node_or_kind_counts_as_absent(tmp_path: Path) -> None:
    checkpoints = StoredCheckpoints(tmp_path)
    checkpoints.save("downward-state", NODE, 1)
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    for kind, node in (("downward-state", Node(2, 8)), ("summary", NODE)):
        other = tmp_path / f"{kind}-{node.level}" / str(node.z)
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(path.read_bytes())
        assert checkpoints.has(kind, node)
        assert checkpoints.load(kind, node) is None
    # of another part of the run, too
    part = checkpoints.part("part")
    (tmp_path / "part/downward-state-2").mkdir(parents=True)
    (tmp_path / "part/downward-state-2/7").write_bytes(path.read_bytes())
    assert part.has("downward-state", NODE)
    assert part.load("downward-state", NODE) is None


def test_a_full_disk_is_said_and_leaves_the_old_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = StoredCheckpoints(tmp_path)
    checkpoints.save("summary", NODE, "old")

    def full(self: Path, *mode: str) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StorageFullError, match="No space left"):
        checkpoints.save("summary", NODE, "new")
    monkeypatch.undo()
    assert checkpoints.load("summary", NODE) == "old"


@pytest.mark.parametrize("split", [key_split, distributed_key_split])
@pytest.mark.parametrize(
    ("problem", "stage", "shown"),
    [
        ("forest", "merge", "forest-merge"),
        ("cost-distance", "visit", "cost-distances-visit"),  # "distance" looks like a hash
        ("all-pairs", "diagonal", "all-pairs-diagonals"),
        ("distance-index", "shard", "distance-index-shard"),
    ],
)
def test_the_dashboard_groups_tasks_by_their_stage(
    split: Callable[[Any], str], problem: str, stage: str, shown: str
) -> None:
    layers = Layers(problem, "0123456789abcdef" * 2)
    assert split(layers.key(stage, Node(3, 12))) == shown
    assert split((layers.name(stage), 5)) == shown


@pytest.mark.parametrize("name", ["Forest", "forest_mst", "forest2", ""])
def test_names_that_the_dashboard_would_break_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="hyphens"):
        Layers(name, "0" * 32)
