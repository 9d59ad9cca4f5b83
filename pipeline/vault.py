"""Where a run keeps what its tasks must find again: in memory, or on disk as its checkpoints.

An entry is written whole or not at all, and writing it twice does no harm, so tasks may be run
again at any time. On disk every entry carries a checksum; a damaged one counts as absent, and
the task that made it is simply done again.
"""

from __future__ import annotations

import os
import pickle
import zlib
from pathlib import Path
from typing import Any, Protocol

from numcodecs import Blosc

from orograph.tiles.errors import full_storage_reported
from orograph.tiles.publish import replace_file
from orograph.tiles.quadtree import Node

# Residues are mostly masks and labels: their bits, shuffled, compress as fast as they are copied.
_CODEC = Blosc(cname="lz4", clevel=5, shuffle=Blosc.BITSHUFFLE)
_PIECE = 2**30  # Blosc takes less than 2 GiB at a time


def _pack(content: bytes) -> bytes:
    pieces = [_CODEC.encode(content[i : i + _PIECE]) for i in range(0, len(content), _PIECE)]
    return b"".join(len(piece).to_bytes(8, "little") + piece for piece in pieces)


def _unpack(packed: bytes) -> bytes:
    pieces, at = [], 0
    while at < len(packed):
        length = int.from_bytes(packed[at : at + 8], "little")
        pieces.append(_CODEC.decode(packed[at + 8 : at + 8 + length]))
        at += 8 + length
    return b"".join(pieces)


class Vault(Protocol):
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

    def part(self, name: str) -> Vault:
        """A vault within this one, for a part of the run."""


class MemoryVault:
    """A vault for runs inside one process."""

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

    def part(self, name: str) -> Vault:
        return MemoryVault()


class DiskVault:
    """A vault in a folder that all workers see: the checkpoints of a run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def _path(self, kind: str, node: Node) -> Path:
        return self.folder / f"{kind}-{node.level}" / str(node.z)

    def save(self, kind: str, node: Node, entry: Any) -> None:
        path = self._path(kind, node)
        packed = _pack(pickle.dumps(entry, protocol=5))
        with full_storage_reported(path):
            # not its parents: if those are gone, so is the run, and this task is a straggler
            path.parent.mkdir(exist_ok=True)
            replace_file(path, zlib.crc32(packed).to_bytes(4, "little") + packed)

    def load(self, kind: str, node: Node) -> Any:
        try:
            stored = self._path(kind, node).read_bytes()
        except FileNotFoundError:
            return None
        if len(stored) < 4 or zlib.crc32(stored[4:]) != int.from_bytes(stored[:4], "little"):
            return None
        return pickle.loads(_unpack(stored[4:]))

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

    def part(self, name: str) -> Vault:
        self.folder.joinpath(name).mkdir(exist_ok=True)
        return DiskVault(self.folder / name)
