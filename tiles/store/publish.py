"""Publish stores: they are written under a temporary name and renamed when complete."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from orograph.tiles.concurrent_requests import at_once, map_at_once
from orograph.tiles.errors import RunError, StoreExistsError
from orograph.tiles.files import is_token
from orograph.tiles.format.checksums import CHECKSUMS, encode_checksums
from orograph.tiles.format.json_object import jsonable
from orograph.tiles.format.metadata import (
    GROUP,
    MARK,
    PARTIAL,
    REPORT,
    ArrayMetadata,
    damaged,
    group_attributes,
    member_documents,
    read_array,
    read_document,
    write_group_metadata,
)
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location, Storage, is_missing_below
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.shard import chunk_checksum, shard_format

_ZARR = {"zarr.json", ".zgroup", ".zarray"}
"""Names of which every Zarr store has one at its root."""
# zarr-python writes metadata under such a name first
_UNFINISHED_METADATA = re.compile("zarr\\.[0-9a-f]{32}\\.partial")


def partial_path(final: str | os.PathLike[str]) -> Path:
    """Return the temporary path of a store while it is written, from its final path."""
    final = Path(final)
    return final.with_name(final.name + PARTIAL)


def partial_storage(final: Storage) -> Storage:
    """Return the temporary storage of a store while it is written, from its final one."""
    return final.beside(PARTIAL)


def mark_complete(place: Location) -> None:
    """Mark a store as complete, listing its missing shards and all checksums.

    The shards that do not exist are listed in the attributes: they read as fill values. A shard
    that is lost later is thereby recognised as missing, and one that takes the place of another by
    the checksums, which are listed too.
    """
    storage = open_storage(place)
    metadata = _completed(storage, {}, {})
    if metadata is None:
        raise damaged(storage, GROUP, "it is not that of a store of orograph")
    write_group_metadata(storage, *metadata)


def _completed(
    storage: Storage, attributes: Mapping[str, Any], known: Mapping[str, ArrayMetadata]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the metadata of the group of a complete store, and of its arrays; None if not ours.

    ``attributes`` are added to those of the group; ``known`` are arrays whose metadata have been
    read.
    """

    def read() -> dict[str, Any]:
        try:
            return read_document(storage, GROUP)
        except (OSError, ValueError):
            return {}

    # Nothing here depends on another's answer, so an object store answers all of it in the time of
    # one request. Arrays whose metadata are not known yet follow.
    document, names, *found = at_once(
        storage,
        read,
        storage.names,
        *(partial(_checksums, storage, array) for array in known.values()),
    )
    if MARK not in document.get("attributes", {}):
        return None
    document["attributes"].update(jsonable(attributes))
    mark = document["attributes"][MARK]
    checksums = dict(zip(known, found, strict=True))
    documents = {name: array.document for name, array in known.items()}
    documents |= member_documents(storage, {*names} - known.keys())
    absent: dict[str, list[list[int]]] = {}
    stated: dict[str, str] = {}
    for name, document_of in sorted(documents.items()):
        array = ArrayMetadata.parse(name, document_of)
        if not array.shape:  # the grid mapping: its attributes are all that it holds
            continue
        endings = checksums[name] if name in checksums else _checksums(storage, array)
        missing = [list(place) for place, ending in endings.items() if ending is None]
        of_chunks = np.zeros(array.grid, np.uint32)
        for place, ending in endings.items():
            of_chunks[place] = ending or 0
        stated[name] = encode_checksums(of_chunks)
        # Only shards of rasters may be absent. A chunk that a dense array lacks is damage.
        if missing and len(array.shape) == 2 and name not in mark.get("table", ()):
            absent[name] = missing
    mark |= {"complete": True, "absent_shards": absent, CHECKSUMS: stated}
    return document, dict(sorted(documents.items()))


def _checksums(storage: Storage, array: ArrayMetadata) -> dict[tuple[int, ...], int | None]:
    """Return the checksum at the end of each chunk, or None for one that does not exist."""
    form = shard_format(array.document)

    def checksum(chunk: tuple[int, ...]) -> int | None:
        try:
            return chunk_checksum(storage, array.key(*chunk), form)
        except FileNotFoundError:
            return None

    chunks = list(np.ndindex(array.grid))
    return dict(zip(chunks, map_at_once(storage, checksum, chunks), strict=True))


def check_target(place: Location, overwrite: bool) -> None:
    """Raise an error if a store may not be written at ``place``.

    Raises
    ------
    StoreExistsError
        If something exists there and ``overwrite`` is false, or it is no Zarr store: a user's
        folder is never replaced, even if ``overwrite`` is true.
    InputError
        If the parent folder does not exist, or the storage cannot hold a store.
    """
    storage = open_storage(place)
    found = storage.entries()
    if found is not None:
        if found.isdisjoint(_ZARR):
            raise StoreExistsError(
                f"{storage} exists and is no Zarr store; it is never overwritten: "
                "choose another path, or move it away"
            )
        if not overwrite:
            raise StoreExistsError(
                f"{storage} exists; pass overwrite=True to replace it, or choose another path"
            )
    storage.check_place()


def discard(place: Location) -> None:
    """Delete what earlier writers left at the temporary location of a store.

    The caller holds the lease of the store, so none of them is at work.

    Raises
    ------
    StoreExistsError
        If there is anything else.
    """
    storage = open_storage(place)
    names = storage.entries() or ()
    if not (
        all(is_token(name) or _UNFINISHED_METADATA.fullmatch(name) for name in names)
        or MARK in (group_attributes(storage) or {})
    ):
        raise StoreExistsError(f"{storage} is in the way and no unfinished store; move it away")
    storage.delete_all()


@contextmanager
def staged_store(
    target: Storage, overwrite: bool = False, takeover: bool = False
) -> Iterator[Storage]:
    """Yield a temporary storage to write, then publish it as ``target``, under a lease.

    Raises
    ------
    StoreExistsError
        As `check_target` and `discard`, or if another writer is at work.
    RunError
        If another writer has taken the place of this one, or what it wrote has been removed.
    """
    check_target(target, overwrite)
    folder = partial_storage(target)
    with Lease(target, takeover) as lease, lease.errors():
        check_target(target, overwrite)  # another may have written it meanwhile
        # No other writer holds the lease, so all that is left there can be deleted.
        discard(folder)
        target.delete_unfinished()
        folder.claim()
        staged = target.staging(folder.child(lease.token), lease.token)
        try:
            yield staged
            publish(staged, target, overwrite, lease)
        # A writer that has taken the lease over deletes the folder.
        except FileNotFoundError as error:
            if not (is_missing_below(folder, error) or is_missing_below(staged, error)):
                raise
            raise RunError(
                f"{staged} has been removed while it was written; nothing was published: start anew"
            ) from error
        folder.delete_all()


def publish(
    finished: Location, final: Location, overwrite: bool = False, lease: Lease | None = None
) -> None:
    """Rename a finished store to its final name, atomically.

    A store of that name is replaced as `Storage.commit` describes: in most file systems a whole
    store has the name at any time.

    Parameters
    ----------
    finished : path or Storage
        The finished store, in the same file system.
    final : path or Storage
        Its final name.
    overwrite : bool
        Whether to replace a Zarr store of that name.
    lease : Lease, optional
        The lease of ``final``, checked as the last thing.

    Raises
    ------
    FileNotFoundError
        If there is no finished store.
    StoreExistsError
        As `check_target`.
    RunError
        If another writer has taken the lease over.
    """
    publication = Publication.of(finished, final, overwrite)
    publication.commit(lease)
    publication.target.delete_replaced(publication.last)


@dataclass(frozen=True)
class Publication:
    """A finished store that is about to be published: all that must be read for that is read."""

    staged: Storage
    target: Storage
    overwrite: bool
    last: Any
    """Last commit of the target when it was read, so that a later one is noticed."""
    metadata: tuple[dict[str, Any], dict[str, Any]] | None
    """Metadata of the complete store's group and of its arrays; None if orograph has no part in
    it."""

    @classmethod
    def of(
        cls,
        staged: Location,
        target: Location,
        overwrite: bool,
        attributes: Mapping[str, Any] | None = None,
        known: Mapping[str, ArrayMetadata] | None = None,
    ) -> Publication:
        """Read what must be known of a finished store, and of its target, to publish it.

        For the arguments see `publish`; ``attributes`` are added to those that the store has, and
        ``known`` are arrays of it whose metadata have been read.

        Raises
        ------
        FileNotFoundError, StoreExistsError
            As `publish`.
        """
        store, final = open_storage(staged), open_storage(target)

        there, _, last, metadata = at_once(
            store,
            store.exists,
            lambda: check_target(final, overwrite),
            final.last_commit,
            partial(_completed, store, attributes or {}, known or {}),
        )
        if not there:
            raise FileNotFoundError(errno.ENOENT, "there is nothing to publish", str(store))
        return cls(store, final, overwrite, last, metadata)

    def commit(self, lease: Lease | None = None, report: bytes | None = None) -> None:
        """Give the store its name, with a report in it; the lease is checked before.

        The caller then calls `Storage.delete_replaced` of the target.

        Raises
        ------
        StoreExistsError, RunError
            As `publish`.
        """
        writes: list[Callable[[], Any]] = []
        if self.metadata is not None:
            writes.append(partial(write_group_metadata, self.staged, *self.metadata))
        if report is not None:
            writes.append(partial(self.staged.put, REPORT, report))
        if not self.staged.etags:  # objects that are put survive
            writes.append(partial(_sync, self.staged))
        # The last commit was read in `of`, before the lease is checked. A writer that takes the
        # lease and commits in between is noticed either by this check or by the condition of the
        # commit.
        at_once(self.staged, *writes, *([] if lease is None else [lease.check]))
        self.target.commit(self.staged, self.overwrite, self.last)


def _sync(staged: Storage) -> None:
    """Flush a finished store's metadata to disk; its chunks were flushed when written."""
    chunks = tuple(
        f"{name}/c/"
        for name in member_documents(staged)
        if len(read_array(staged, name).shape) == 2
    )
    staged.sync(*(key for key, _ in staged.objects() if not key.startswith(chunks)))
