"""A storage as object stores are: keys and nothing else, ETags, conditional puts; no rename.

Its addresses are ``memory://name``; objects are kept in this process. `changes` counts what alters
them, and `die_before` raises `Killed` in place of one of these, so that every moment at which a
process can be killed can be tried.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.storage import MemoryStore

from orograph.tiles.storage import Reader, State, Storage

CLAIM = ".claim"
COMMITTING = ".committing"
HIDDEN = {CLAIM, COMMITTING}


class Killed(BaseException):
    """The process was killed."""


@dataclass
class Bucket:
    """All objects, by address, each with its ETag."""

    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)
    etags: Iterator[int] = field(default_factory=count)
    changes: int = 0
    die_before: int | None = None

    def change(self) -> None:
        """Count a change that is about to be made."""
        if self.changes == self.die_before:
            raise Killed
        self.changes += 1

    def put(self, address: str, content: bytes, if_absent: bool = False) -> None:
        """One PUT, with ``If-None-Match: *`` on demand."""
        with self.lock:
            if if_absent and address in self.objects:
                raise FileExistsError(errno.EEXIST, "it exists already", address)
            self.change()
            self.objects[address] = content, f"etag-{next(self.etags)}"

    def delete(self, address: str) -> None:
        """One DELETE."""
        with self.lock:
            if address in self.objects:
                self.change()
                del self.objects[address]

    def below(self, address: str) -> list[str]:
        """One LIST."""
        with self.lock:
            return [other for other in self.objects if other.startswith(f"{address}/")]


BUCKET = Bucket()


@dataclass(frozen=True)
class MemoryStorage:
    """The objects below one address."""

    root: str

    def __str__(self) -> str:
        return self.root

    def _address(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    @property
    def name(self) -> str:
        return self.root.rpartition("/")[2]

    def _found(self, key: str) -> tuple[bytes, State]:
        address = self._address(key)
        try:
            content, etag = BUCKET.objects[address]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such object", address) from None
        return content, State(len(content), (address, etag))

    def get(self, key: str) -> bytes:
        return self._found(key)[0]

    def fetch(self, key: str) -> tuple[bytes, State]:
        return self._found(key)

    def open(self, key: str) -> Reader:
        return _MemoryReader(*self._found(key))

    def state(self, key: str) -> State | None:
        try:
            return self._found(key)[1]
        except FileNotFoundError:
            return None

    def put(self, key: str, *parts: Any) -> None:
        BUCKET.put(self._address(key), b"".join(bytes(part) for part in parts))

    def create(self, key: str, *parts: Any) -> None:
        BUCKET.put(self._address(key), b"".join(bytes(part) for part in parts), if_absent=True)

    def put_if(self, key: str, state: State, *parts: Any) -> bool:
        with BUCKET.lock:  # one PUT with If-Match
            if self.state(key) != state:
                return False
            self.put(key, *parts)
            return True

    def delete_if(self, key: str, state: State) -> bool:
        with BUCKET.lock:
            if self.state(key) != state:
                return False
            self.delete(key)
            return True

    def move(self, key: str, target: str) -> None:
        self.put(target, self.get(key))
        self.delete(key)

    def delete(self, key: str) -> None:
        BUCKET.delete(self._address(key))

    def sync(self, *keys: str) -> None:
        """Do nothing: what is put is there."""

    def names(self, prefix: str = "") -> list[str]:
        above = self._address(prefix)
        found = {address[len(above) + 1 :].partition("/")[0] for address in BUCKET.below(above)}
        return list(found - HIDDEN)

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        for address in BUCKET.below(self._address(prefix)):
            key = address[len(self.root) + 1 :]
            state = self.state(key)
            if state is not None and key.rpartition("/")[2] not in HIDDEN:
                yield key, state

    def inventory(self) -> None:
        """Objects are listed when they are deleted."""

    def delete_all(self, prefix: str = "", first: str = "", listed: Any = None) -> None:
        if first:
            self.delete(first)
        for address in BUCKET.below(self._address(prefix)):
            BUCKET.delete(address)

    def child(self, name: str) -> MemoryStorage:
        return MemoryStorage(self._address(name))

    def beside(self, suffix: str) -> MemoryStorage:
        return MemoryStorage(self.root + suffix)

    def exists(self) -> bool:
        # what a commit that was killed has left is nothing to mind: it is in nobody's way
        if self.state(COMMITTING) is not None and self.state("zarr.json") is None:
            return False
        return bool(BUCKET.below(self.root))

    def entries(self) -> set[str] | None:
        return set(self.names()) if self.exists() else None

    def check_place(self) -> None:
        """An object can be put at any address."""

    def overlaps(self, other: Storage) -> bool:
        one, two = f"{self}/", f"{other}/"
        return one.startswith(two) or two.startswith(one)

    def claim(self, looked: bool = False) -> None:
        if not looked and self.exists():
            raise FileExistsError(errno.EEXIST, "it exists already", self.root)
        self.create(CLAIM)

    @property
    def renames(self) -> bool:
        return False

    @property
    def etags(self) -> bool:
        return False

    def staging(self, place: Storage, name: str) -> Storage:
        return place

    def delete_unfinished(self) -> None:
        """All that is unfinished lies beside the root."""

    def check_conditions(self, key: str) -> None:
        """Conditions are met."""

    def last_commit(self) -> None:
        """There is no need to look: nothing is committed by a condition."""

    def delete_replaced(self, last: Any) -> None:
        """`commit` has deleted it."""

    def commit(self, staged: Storage, replace: bool = False, last: Any = None) -> None:
        if self.exists() and not replace:
            raise FileExistsError(errno.EEXIST, "it exists already", self.root)
        self.put(COMMITTING)
        self.delete("zarr.json")  # from here on there is no store, until there is the new one
        for key, _ in self.objects():
            self.delete(key)
        for key, _ in staged.objects():
            if key != "zarr.json":
                self.put(key, staged.get(key))
        self.create("zarr.json", staged.get("zarr.json"))
        self.delete(COMMITTING)
        staged.delete_all()

    def zarr_store(self) -> Any:
        return MemoryStore(_Buffers(self))


@dataclass(frozen=True)
class _MemoryReader:
    content: bytes
    state: State

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        if offset + length > len(self.content):
            raise ValueError(f"it ends at byte {len(self.content)}, not at {offset + length}")
        return np.frombuffer(self.content, np.uint8, length, offset)

    def tail(self, length: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.content[-length:] if length else b"", np.uint8)

    def holding(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Nothing is saved by it."""

    def only_tail(self, length: int) -> None:
        """Return None: what is open here is read at no cost."""

    def __enter__(self) -> _MemoryReader:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class _Buffers(MutableMapping[str, Buffer]):
    """The objects of a storage as zarr-python's store in memory wants them."""

    storage: MemoryStorage

    def __getitem__(self, key: str) -> Buffer:
        try:
            content = self.storage.get(key)
        except FileNotFoundError:
            raise KeyError(key) from None
        return default_buffer_prototype().buffer.from_bytes(content)

    def __setitem__(self, key: str, value: Buffer) -> None:
        self.storage.put(key, value.to_bytes())

    def __delitem__(self, key: str) -> None:
        if self.storage.state(key) is None:
            raise KeyError(key)
        self.storage.delete(key)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.storage.objects())

    def __len__(self) -> int:
        return len(list(iter(self)))
