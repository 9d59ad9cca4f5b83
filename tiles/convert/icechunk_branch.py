"""Copy a finished store into a repository of Icechunk, as one change of its branch.

A repository holds snapshots of Zarr stores; a branch is a name that leads to one of them. The store
is copied to a branch of its own: first its metadata, by one process, then its chunks, by any number
of them, each of which returns what it has changed [1]_. Then the user's branch is moved to what the
own one leads to, on the condition that it is where it was when the run began.

References
----------
.. [1] Icechunk, parallel writes, https://icechunk.io/en/stable/parallel/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orograph.tiles.errors import RunError, StoreExistsError
from orograph.tiles.format.metadata import GROUP, MARK
from orograph.tiles.storage import Storage

if TYPE_CHECKING:
    from icechunk import ForkSession, IcechunkStore, Repository, Session

MAIN = "main"
REPOSITORY = f"branch {MAIN} of an Icechunk repository"
"""Name of the branch in messages, since its address may hold credentials."""


@dataclass(frozen=True, eq=False)
class IcechunkBranch:
    """The branch main of a repository, and the snapshot to which it led at first."""

    repository: Repository
    base: str

    @classmethod
    def of(cls, repository: Any) -> IcechunkBranch:
        """Return the branch as it is now; raise RunError if there is none."""
        with _errors():
            return cls(repository, repository.lookup_branch(MAIN))

    def check(self, overwrite: bool) -> None:
        """Raise StoreExistsError if the branch holds anything, and may not be replaced."""
        import zarr

        store = self.repository.readonly_session(snapshot_id=self.base).store
        try:
            found = sorted(zarr.open_group(store, mode="r").members())
        except FileNotFoundError:
            return
        if found and not overwrite:
            raise StoreExistsError(
                f"out: {REPOSITORY} holds {', '.join(name for name, _ in found[:5])}; pass "
                "overwrite=True to replace all of it (older snapshots stay)"
            )

    @contextmanager
    def own(self, token: str) -> Iterator[str]:
        """Yield the name of a branch of its own that begins at `base`; delete it at the end."""
        name = f"orograph-{token}"
        with _errors():
            self.repository.create_branch(name, self.base)
            try:
                yield name
            finally:
                self.repository.delete_branch(name)

    def begin(self, name: str, store: Storage, message: str) -> Session:
        """Replace what a branch holds by a store's metadata; return a session for its chunks."""
        session = self.repository.writable_session(name)
        _set(session.store, "zarr.json", _group(store.get(GROUP)), clear=True)
        for key, _ in store.objects():
            if key != GROUP and key.endswith("/zarr.json"):
                _set(session.store, key, store.get(key))
        # Only a session without changes can be forked.
        session.commit(f"{message}: metadata")
        return self.repository.writable_session(name)

    def move(self, snapshot: str) -> None:
        """Let the branch lead to a snapshot, if it still leads to `base`.

        Raises
        ------
        StoreExistsError
            If another has committed to it meanwhile.
        """
        from icechunk import IcechunkError

        try:
            self.repository.reset_branch(MAIN, snapshot, from_snapshot_id=self.base)
        except IcechunkError:
            # If the branch has not moved, the cause is not the commit of another writer.
            if self.repository.lookup_branch(MAIN) == self.base:
                raise
            raise StoreExistsError(
                f"out: another has committed to {REPOSITORY} while this run went on; nothing of "
                "this run is there: call it again, with overwrite=True to replace what is there now"
            ) from None


def chunks_of(store: Storage) -> list[str]:
    """Return the keys of the chunks of a store."""
    return sorted(key for key, _ in store.objects() if not key.endswith("zarr.json"))


def copy_chunks(fork: ForkSession, store: Storage, keys: Sequence[str]) -> ForkSession:
    """Copy encoded chunks into a copy of a session, and return the copy for merging."""
    # All tasks are given the same fork, and each returns changes of its own.
    own: ForkSession = deepcopy(fork)
    for key in keys:
        _set(own.store, key, store.get(key))
    return own


def _group(document: bytes) -> bytes:
    """Return the metadata of a store's group without what describes our own storage."""
    found = json.loads(document)
    found["attributes"].pop(MARK, None)
    return json.dumps(found).encode()


def _set(store: IcechunkStore, key: str, content: bytes, clear: bool = False) -> None:
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    if clear:
        sync(store.clear())
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(content)))


@contextmanager
def _errors() -> Iterator[None]:
    """Raise RunError in place of Icechunk's own errors, whose text is of many lines."""
    from icechunk import IcechunkError

    try:
        yield
    except IcechunkError as error:
        said = str(error).strip().partition("\n")[0].removeprefix("x ")
        raise RunError(f"out: Icechunk says: {said}") from error
