"""Storage interface: objects addressed by key, in a local folder or an object store.

A key is a path of names relative to the root of a `Storage`, separated by ``/``. Objects are
written whole or not at all. An object store has no folders and cannot rename, so no code outside
`orograph.tiles.local_storage` may assume that the folders of a key exist, or that an object or a
store can be renamed. In place of a rename there are `Storage.commit`, for a whole store, and
`Storage.move`, for an object; both can be repeated after a kill.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.files import Part


class State(NamedTuple):
    """Size and version of an object, which identify its content."""

    size: int
    """Size in bytes."""
    version: Hashable
    """Device, inode and time of a file, or address and ETag: no other content ever has the same."""


class Reader(Protocol):
    """An open object, which keeps reading the same version if the object is replaced."""

    @property
    def state(self) -> State:
        """Size and version of the open object."""

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Read ``length`` bytes from ``offset`` into an array.

        Raises
        ------
        ValueError
            If the object ends before.
        """

    def tail(self, length: int) -> NDArray[np.uint8]:
        """Read the last ``length`` bytes, or all if there are fewer."""

    def only_tail(self, length: int) -> Reader | None:
        """Return a reader that keeps the last ``length`` bytes and asks for all others.

        It reads the same version, or raises ValueError where that has been replaced. None if the
        object need not be opened again for its tail, or is closed with its context.
        """

    def holding(self, ranges: Sequence[tuple[int, int]]) -> Reader | None:
        """Return a reader that has read some ranges, each an offset and a length, already.

        It reads the same version, as that of `only_tail`. None where nothing is saved by that.
        """

    def __enter__(self) -> Reader: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Storage(Protocol):
    """Interface to the objects below one root, such as a store or the files of a run.

    A storage is hashable and small when pickled: it holds the address of the root, and no
    connection. ``str`` returns that address. ``prefix`` is a key without a ``/`` at its end; the
    empty one is the root. Internal files of the storage, such as unfinished ones, have no key.
    """

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """Last component of the root's path."""

    # -- objects -----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        """Read an object; raise FileNotFoundError if there is none."""

    def fetch(self, key: str) -> tuple[bytes, State]:
        """Read an object and its state; raise FileNotFoundError if there is none."""

    def open(self, key: str) -> Reader:
        """Open an object to read parts of it; FileNotFoundError if there is none."""

    def state(self, key: str) -> State | None:
        """Return size and version of an object; None if there is none."""

    def put(self, key: str, *parts: Part) -> None:
        """Write an object, given in parts (bytes or arrays of bytes), atomically.

        Readers see the old object or the new one.

        Raises
        ------
        FileNotFoundError
            If the root is a folder that has been removed: a late writer must not create it again.
        StorageFullError
            If there is no room. The old object is then unchanged.
        """

    def create(self, key: str, *parts: Part) -> None:
        """Write an object as `put` does, or raise FileExistsError if there is one.

        Of any number of concurrent writers one succeeds.
        """

    def put_if(self, key: str, state: State, *parts: Part) -> bool:
        """Replace an object atomically if its version is still ``state``; return whether it was.

        Of any number of concurrent calls with one ``state``, of this and of `delete_if`, one
        returns True.
        """

    def delete_if(self, key: str, state: State) -> bool:
        """Delete an object if its version is still ``state``; return whether it was."""

    def move(self, key: str, target: str) -> None:
        """Rename an object, replacing the object at the new key.

        ``target`` is whole at any time. After a kill the object may have both keys; the move can
        then be repeated.
        """

    def delete(self, key: str) -> None:
        """Delete an object if it exists."""

    def sync(self, *keys: str) -> None:
        """Flush objects to disk.

        Of a prefix, the names after it would survive. For use before anything is deleted because
        of them.
        """

    # -- prefixes ----------------------------------------------------------------------------------

    def names(self, prefix: str = "") -> list[str]:
        """Return the names directly below a prefix, as listing a folder does."""

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        """Yield key and state of every object below a prefix, in any order."""

    def inventory(self) -> Any:
        """List all below the root for a later `delete_all`; return None where it needs no list."""

    def delete_all(self, prefix: str = "", first: str = "", listed: Any = None) -> None:
        """Delete all objects below a prefix, also what killed deletions have left.

        If this call is killed, some objects may remain, but not ``first`` alone. Many are deleted
        in the background: after the call none is found by its key. ``listed`` is an `inventory`:
        nothing else is deleted then.
        """

    def child(self, name: str) -> Storage:
        """Return the storage whose root is ``name`` below this root."""

    def beside(self, suffix: str) -> Storage:
        """Return the storage at this root's address with a suffix appended."""

    # -- whole stores ------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether anything exists at the root, including files and broken links."""

    def entries(self) -> set[str] | None:
        """Return the names directly below the root; None if nothing exists there.

        ``.`` alone stands for what `commit` cannot replace, such as a file or a link.
        """

    def check_place(self) -> None:
        """Raise InputError if a store cannot be written at the root."""

    def check_conditions(self, key: str) -> None:
        """Raise InputError if `create` or `put_if` would replace any object.

        ``key`` is that of an object that the caller has created, and which may be replaced.
        """

    def overlaps(self, other: Storage) -> bool:
        """Return whether two roots are equal or one lies within the other."""

    def claim(self, looked: bool = False) -> None:
        """Create the root; raise FileExistsError if it exists.

        ``looked``: the caller knows that it does not exist, unless another claims it now.
        """

    @property
    def renames(self) -> bool:
        """Whether `commit` renames a folder at once instead of moving its objects."""

    @property
    def etags(self) -> bool:
        """Whether `objects` is quicker than to open a few of them, and its states are ETags."""

    def staging(self, place: Storage, name: str) -> Storage:
        """Return the storage in which to write a store that will be committed to this root.

        It is ``place`` if that can be renamed. Else it lies below this root, where the objects
        stay, and ``name`` tells it from others.

        Raises
        ------
        InputError
            If no store can be committed to this root.
        """

    def delete_unfinished(self) -> None:
        """Delete what writers that were killed have left below this root, at `staging`."""

    def last_commit(self) -> Any:
        """Return the last commit, by which `commit` notices that another came after it."""

    def commit(self, staged: Storage, replace: bool = False, last: Any = None) -> None:
        """Rename a finished store to this root, replacing an older one if allowed.

        At any time readers find the old store whole, or none, or the new one whole; if the storage
        can exchange two names, always one of them. After a kill either ``staged`` is still whole,
        and can be committed again, or the new store is complete.

        Parameters
        ----------
        staged : Storage
            The finished store.
        replace : bool
            Whether there may be an older one.
        last : optional
            The `last_commit`, looked at before; the caller then calls `delete_replaced`.

        Raises
        ------
        FileExistsError
            If the root exists, and ``replace`` is false; or if another has been committed since
            ``last``, where that can be told.
        """

    def delete_replaced(self, last: Any) -> None:
        """Delete what the commit after ``last`` has replaced, as far as it is there."""

    def zarr_store(self) -> Any:
        """Return the storage as a store object for zarr-python and xarray."""


Location = str | os.PathLike[str] | Storage
"""Path, URL or storage of a store."""


def is_missing_below(folder: Storage, error: BaseException | None) -> bool:
    """Return whether an error reports a missing file below a storage's root."""
    return isinstance(error, FileNotFoundError) and str(error.filename).startswith(f"{folder}/")
