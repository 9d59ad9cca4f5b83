"""Where a run keeps what its tasks must find again: in memory, or on disk as its checkpoints.

An entry is written whole or not at all, and writing it twice does no harm, so tasks may be run
again at any time. On disk every entry carries a checksum and its name; a damaged one, or that of
another node, counts as absent, and the task that made it is simply done again. What an entry may
hold, and that reading one runs no code, is said in `orograph.tiles.store.codec`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from orograph.tiles.errors import report_full_storage
from orograph.tiles.files import replace_file
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.store.codec import decode_entry, encode_entry


class CheckpointStore(Protocol):
    """A place for entries, named by their kind and a node of the quadtree."""

    def save(self, kind: str, node: Node, entry: Any) -> None:
        """Keep ``entry``; an older one of the same name is replaced."""

    def load(self, kind: str, node: Node) -> Any:
        """The entry, or None if there is none or it is damaged."""

    def has(self, kind: str, node: Node) -> bool:
        """Is there an entry of this name? (It may turn out damaged when it is loaded.)"""

    def drop(self, kind: str, node: Node) -> None:
        """Forget an entry, if it is there."""

    def count(self, kind: str, level: int) -> int:
        """How many entries of a kind a level has."""

    def part(self, name: str) -> CheckpointStore:
        """A checkpoint store within this one, for a part of the run."""


class MemoryCheckpoints:
    """A checkpoint store for runs inside one process."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Node], Any] = {}

    def save(self, kind: str, node: Node, entry: Any) -> None:
        self._entries[kind, node] = entry

    def load(self, kind: str, node: Node) -> Any:
        return self._entries.get((kind, node))

    def has(self, kind: str, node: Node) -> bool:
        return (kind, node) in self._entries

    def drop(self, kind: str, node: Node) -> None:
        self._entries.pop((kind, node), None)

    def count(self, kind: str, level: int) -> int:
        return sum(k == kind and node.level == level for k, node in tuple(self._entries))

    def part(self, name: str) -> CheckpointStore:
        return MemoryCheckpoints()


class FolderCheckpoints:
    """A checkpoint store in a folder that all workers see: the checkpoints of a run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def _path(self, kind: str, node: Node) -> Path:
        return self.folder / _name(kind, node)

    def save(self, kind: str, node: Node, entry: Any) -> None:
        path = self._path(kind, node)
        parts = encode_entry(entry, _name(kind, node))
        with report_full_storage(path):
            # not its parents: if those are gone, so is the run, and this task is a straggler
            path.parent.mkdir(exist_ok=True)
            replace_file(path, *parts)

    def load(self, kind: str, node: Node) -> Any:
        try:
            content = np.fromfile(self._path(kind, node), np.uint8)
        except FileNotFoundError:
            return None
        try:
            return decode_entry(content, _name(kind, node))
        except ValueError:
            return None

    def has(self, kind: str, node: Node) -> bool:
        return self._path(kind, node).is_file()

    def drop(self, kind: str, node: Node) -> None:
        self._path(kind, node).unlink(missing_ok=True)

    def count(self, kind: str, level: int) -> int:
        try:
            names = os.listdir(self.folder / f"{kind}-{level}")
        except FileNotFoundError:
            return 0
        return sum(name.isdigit() for name in names)

    def part(self, name: str) -> CheckpointStore:
        self.folder.joinpath(name).mkdir(exist_ok=True)
        return FolderCheckpoints(self.folder / name)


def _name(kind: str, node: Node) -> str:
    return f"{kind}-{node.level}/{node.z}"
