"""Checkpoint stores, in memory or on disk, for states and results that later tasks need.

An entry is written whole or not at all, and writing it twice does no harm, so tasks may be run
again at any time. In a storage every entry carries a checksum and its name; a damaged one, or that
of another node or part of the run, counts as absent, and the task that made it is simply done
again. What an entry may hold, and that reading one runs no code, is said in
`orograph.tiles.format.codec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from orograph.tiles.concurrent_requests import at_once
from orograph.tiles.format.codec import decode_entry, encode_entry
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location


class CheckpointStore(Protocol):
    """Interface of a store of entries, addressed by a kind and a node of the quadtree."""

    lasting: bool
    """Whether entries outlive the process."""
    began_empty: bool
    """Whether the store is known to have held no entries when the run began."""

    @property
    def waits(self) -> bool:
        """Whether each call waits for a server, which also bills it."""

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Call functions that save and load entries, at once where each waits for a server."""

    def save(self, kind: str, node: Node, entry: object, *, compressed: bool = True) -> None:
        """Store ``entry``, replacing an older one under the same name."""

    def load(self, kind: str, node: Node) -> Any:
        """Return an entry, or None if there is none or it is damaged."""

    def has(self, kind: str, node: Node) -> bool:
        """Return whether an entry exists; it may still turn out damaged when loaded."""

    def sync(self, kind: str, level: int, z: int | None = None) -> None:
        """Flush an entry, or the directory of a level's entries, to disk."""

    def drop(self, kind: str, node: Node) -> None:
        """Delete an entry, if it exists."""

    def count(self, kind: str, level: int) -> int:
        """Return the number of entries of a kind at a level."""

    def part(self, name: str) -> CheckpointStore:
        """Return a checkpoint store nested in this one, for a part of the run."""

    def clear(self) -> None:
        """Delete all entries."""


class MemoryCheckpoints:
    """A checkpoint store for runs inside one process."""

    lasting = False
    began_empty = False
    waits = False

    def __init__(self) -> None:
        self._entries: dict[tuple[str, Node], Any] = {}

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        return [call() for call in calls]

    def save(self, kind: str, node: Node, entry: object, *, compressed: bool = True) -> None:
        self._entries[kind, node] = entry

    def load(self, kind: str, node: Node) -> Any:
        return self._entries.get((kind, node))

    def has(self, kind: str, node: Node) -> bool:
        return (kind, node) in self._entries

    def sync(self, kind: str, level: int, z: int | None = None) -> None:
        """Do nothing: entries in memory are lost with the process anyway."""

    def drop(self, kind: str, node: Node) -> None:
        self._entries.pop((kind, node), None)

    def count(self, kind: str, level: int) -> int:
        return sum(k == kind and node.level == level for k, node in tuple(self._entries))

    def part(self, name: str) -> CheckpointStore:
        return MemoryCheckpoints()

    def clear(self) -> None:
        self._entries.clear()


class StoredCheckpoints:
    """A checkpoint store on disk or in an object store, which all workers can reach.

    ``prefix`` is made of the names of the parts of the run, each followed by ``/``; ``began_empty``
    says that the run has not been resumed.
    """

    lasting = True

    def __init__(self, place: Location, prefix: str = "", *, began_empty: bool = False) -> None:
        self.storage = open_storage(place)
        self.prefix = prefix
        self.began_empty = began_empty

    @property
    def waits(self) -> bool:
        return self.storage.etags

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        return at_once(self.storage, *calls)

    def _key(self, kind: str, node: Node) -> str:
        return f"{self.prefix}{kind}-{node.level}/{node.z}"

    def save(self, kind: str, node: Node, entry: object, *, compressed: bool = True) -> None:
        # a root that is gone is not made again: the run has been removed, this task is a straggler
        key = self._key(kind, node)
        self.storage.put(key, *encode_entry(entry, key, compressed=compressed))

    def load(self, kind: str, node: Node) -> Any:
        key = self._key(kind, node)
        try:
            if self.storage.etags:  # in one request, where opening is one of its own
                content = np.frombuffer(self.storage.get(key), np.uint8)
            else:
                with self.storage.open(key) as reader:
                    content = reader.range(0, reader.state.size)
            # parts of an entry are views of these bytes, and tasks may change them
            return decode_entry(np.require(content, requirements="W"), key)
        except (FileNotFoundError, ValueError):
            return None

    def has(self, kind: str, node: Node) -> bool:
        return self.storage.state(self._key(kind, node)) is not None

    def sync(self, kind: str, level: int, z: int | None = None) -> None:
        self.storage.sync(f"{self.prefix}{kind}-{level}" + ("" if z is None else f"/{z}"))

    def drop(self, kind: str, node: Node) -> None:
        self.storage.delete(self._key(kind, node))

    def count(self, kind: str, level: int) -> int:
        names = self.storage.names(f"{self.prefix}{kind}-{level}")
        return sum(name.isdigit() for name in names)

    def part(self, name: str) -> CheckpointStore:
        return StoredCheckpoints(
            self.storage, f"{self.prefix}{name}/", began_empty=self.began_empty
        )

    def clear(self) -> None:
        self.storage.delete_all(self.prefix.rstrip("/"))
