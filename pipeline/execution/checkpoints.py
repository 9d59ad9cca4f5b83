"""Where a run keeps what its tasks must find again: in memory, or on disk as its checkpoints.

An entry is written whole or not at all, and writing it twice does no harm, so tasks may be run
again at any time. On disk every entry carries a checksum; a damaged one counts as absent, and
the task that made it is simply done again.
"""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt
from numcodecs import blosc

from orograph.tiles.errors import full_storage_reported
from orograph.tiles.grid.quadtree import Node
from orograph.tiles.memory import empty
from orograph.tiles.store.publish import replace_file

# Arrays from here on are kept apart from what holds them: packed from where they lie, by the size
# of their elements, and unpacked to where they will lie. Bytes are kept as they are: who has many
# of them packs them better.
_APART = 2**16
_PIECE = 2**30  # bytes; Blosc takes less than 2 GiB at a time
_HEAD = struct.Struct("<IQQ")  # checksum of all that follows it, bytes of the pickle, arrays
_ARRAY = struct.Struct("<QB")  # before each array: its bytes, and the size of its elements
_PIECE_HEAD = struct.Struct("<Q")  # before each piece of one that is packed: its bytes


def _pack(entry: Any) -> list[Any]:
    """The parts of a file: bytes, and arrays of bytes."""
    arrays: list[npt.NDArray[Any]] = []

    def keep_apart(buffer: pickle.PickleBuffer) -> bool:
        view = memoryview(buffer)
        if view.nbytes < _APART or view.itemsize not in (1, 2, 4, 8):
            return True
        arrays.append(np.frombuffer(buffer.raw(), f"u{view.itemsize}"))
        return False

    pickled = pickle.dumps(entry, protocol=5, buffer_callback=keep_apart)
    parts: list[Any] = [pickled]
    for array in arrays:
        parts.append(_ARRAY.pack(array.nbytes, array.itemsize))
        if array.itemsize == 1:
            parts.append(array)
            continue
        step = _PIECE // array.itemsize
        for piece in (_compress(array[i : i + step]) for i in range(0, array.size, step)):
            parts += [_PIECE_HEAD.pack(len(piece)), piece]
    checksum = google_crc32c.value(_HEAD.pack(0, len(pickled), len(arrays))[4:])
    for part in parts:
        checksum = google_crc32c.extend(checksum, part)
    return [_HEAD.pack(checksum, len(pickled), len(arrays)), *parts]


def _compress(array: npt.NDArray[Any]) -> bytes:
    """Residues are mostly labels and numbers: their bits, shuffled, pack as fast as a copy."""
    blosc.use_threads = False
    packed: bytes = blosc.compress(array, b"lz4", 5, blosc.BITSHUFFLE, 0)
    return packed


def _unpack(content: npt.NDArray[np.uint8]) -> Any:
    """The entry of a file's bytes.

    Raises
    ------
    ValueError
        If they are damaged.
    """
    if content.size < _HEAD.size:
        raise ValueError("cut short")
    checksum, length, count = _HEAD.unpack_from(content.data)
    if int(google_crc32c.value(content[4:])) != checksum:
        raise ValueError("its checksum does not match")
    at = _HEAD.size + length
    blosc.use_threads = False
    arrays = []
    for _ in range(count):
        size, width = _ARRAY.unpack_from(content.data, at)
        at += _ARRAY.size
        if width == 1:
            arrays.append(content[at : at + size])
            at += size
            continue
        array = empty((size,), np.uint8)
        for begin in range(0, size, _PIECE):
            (packed,) = _PIECE_HEAD.unpack_from(content.data, at)
            at += _PIECE_HEAD.size
            blosc.decompress(content[at : at + packed], array[begin : begin + _PIECE])
            at += packed
        arrays.append(array)
    return pickle.loads(content[_HEAD.size : _HEAD.size + length].data, buffers=arrays)


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
        return self.folder / f"{kind}-{node.level}" / str(node.z)

    def save(self, kind: str, node: Node, entry: Any) -> None:
        path = self._path(kind, node)
        parts = _pack(entry)
        with full_storage_reported(path):
            # not its parents: if those are gone, so is the run, and this task is a straggler
            path.parent.mkdir(exist_ok=True)
            replace_file(path, *parts)

    def load(self, kind: str, node: Node) -> Any:
        try:
            content = np.fromfile(self._path(kind, node), np.uint8)
        except FileNotFoundError:
            return None
        try:
            return _unpack(content)
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
