"""Publish stores: they are written under a temporary name and renamed when complete."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from orograph.tiles.errors import RunError, StoreExistsError
from orograph.tiles.files import is_token
from orograph.tiles.format.checksums import CHECKSUMS, encode_checksums
from orograph.tiles.format.metadata import (
    GROUP,
    MARK,
    PARTIAL,
    REPORT,
    ArrayMetadata,
    group_attributes,
    member_documents,
    read_array,
    read_document,
    write_group_metadata,
)
from orograph.tiles.storage import Location, Storage, is_missing_below, open_storage
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.shard import ShardFormat, chunk_checksum, shard_format

REQUESTS_AT_ONCE = 16
"""Requests to an object store that wait together when a store is published."""

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
    document = read_document(storage, GROUP)
    mark = document["attributes"][MARK]
    absent: dict[str, list[list[int]]] = {}
    stated: dict[str, str] = {}
    members = member_documents(storage)
    for name, stated_of in members.items():
        array = ArrayMetadata.parse(name, stated_of)
        if not array.shape:  # the grid mapping: its attributes are all that it holds
            continue
        form = shard_format(array.document)
        checksums, missing = np.zeros(array.grid, np.uint32), []
        chunks = list(np.ndindex(array.grid))
        for shard, found in zip(chunks, _checksums(storage, array, form, chunks), strict=True):
            if found is None:
                missing.append(list(shard))
            else:
                checksums[shard] = found
        stated[name] = encode_checksums(checksums)
        if missing and len(array.shape) == 2 and name not in mark.get("table", ()):
            absent[name] = missing
    mark |= {"complete": True, "absent_shards": absent, CHECKSUMS: stated}
    write_group_metadata(storage, document, members)


def _checksums(
    storage: Storage, array: ArrayMetadata, form: ShardFormat | None, chunks: list[tuple[int, ...]]
) -> list[int | None]:
    """Return the checksum at the end of each chunk, or None for one that does not exist."""

    def checksum(chunk: tuple[int, ...]) -> int | None:
        try:
            return chunk_checksum(storage, array.key(*chunk), form)
        except FileNotFoundError:
            return None

    if not storage.etags:
        return [checksum(chunk) for chunk in chunks]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        return list(pool.map(checksum, chunks))


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
    if storage.exists():
        if not (storage.is_tree() and _is_zarr(storage)):
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
    names = storage.names() if storage.is_tree() else ["."]
    if storage.exists() and not (
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
    partial = partial_storage(target)
    with Lease(target, takeover) as lease, lease.errors():
        check_target(target, overwrite)  # another may have written it meanwhile
        discard(partial)
        target.delete_unfinished()
        partial.claim()
        staged = target.staging(partial.child(lease.token), lease.token)
        try:
            yield staged
            publish(staged, target, overwrite, lease)
        except FileNotFoundError as error:
            if not (is_missing_below(partial, error) or is_missing_below(staged, error)):
                raise
            raise RunError(
                f"{staged} has been removed while it was written; nothing was published: start anew"
            ) from error
        partial.delete_all()


def publish(
    partial: Location,
    final: Location,
    overwrite: bool = False,
    lease: Lease | None = None,
    report: bytes | None = None,
) -> None:
    """Rename a finished store to its final name, atomically.

    A store of that name is replaced as `Storage.commit` describes: in most file systems a whole
    store has the name at any time.

    Parameters
    ----------
    partial : path or Storage
        The finished store, in the same file system.
    final : path or Storage
        Its final name.
    overwrite : bool
        Whether to replace a Zarr store of that name.
    lease : Lease, optional
        The lease of ``final``, checked as the last thing.
    report : bytes, optional
        What the run reports of itself, to be kept in the store.

    Raises
    ------
    FileNotFoundError
        If there is no finished store.
    StoreExistsError
        As `check_target`.
    RunError
        If another writer has taken the lease over.
    """
    staged, target = open_storage(partial), open_storage(final)
    if not staged.is_tree():
        raise FileNotFoundError(errno.ENOENT, "there is nothing to publish", str(staged))
    check_target(target, overwrite)
    if MARK in (group_attributes(staged) or {}):
        mark_complete(staged)
    if report is not None:
        staged.put(REPORT, report)
    if not staged.etags:  # objects that are put survive
        _sync(staged)
    if lease is not None:
        lease.check()
    target.commit(staged, overwrite)


def _sync(staged: Storage) -> None:
    """Flush a finished store's metadata to disk; its chunks were flushed when written."""
    chunks = tuple(
        f"{name}/c/"
        for name in member_documents(staged)
        if len(read_array(staged, name).shape) == 2
    )
    staged.sync(*(key for key, _ in staged.objects() if not key.startswith(chunks)))


def _is_zarr(storage: Storage) -> bool:
    return any(storage.state(name) for name in ("zarr.json", ".zgroup", ".zarray"))
