"""Publishing: a store is written under a partial name, and gets its final name when complete."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from orograph.tiles.errors import InputError, StoreExistsError
from orograph.tiles.files import is_token
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.storage import Location, Storage, open_storage

MARK = "orograph"
FORMAT = 1  # of stores
_PARTIAL = ".partial"
# zarr-python writes metadata under such a name first
_UNFINISHED_METADATA = re.compile("zarr\\.[0-9a-f]{32}\\.partial")


def partial_path(final: str | os.PathLike[str]) -> Path:
    """Return the path of an unfinished store, from its final path."""
    final = Path(final)
    return final.with_name(final.name + _PARTIAL)


def partial_storage(final: Storage) -> Storage:
    """Return the storage of an unfinished store, from its final storage."""
    return final.beside(_PARTIAL)


def group_attributes(place: Location) -> dict[str, Any] | None:
    """Return the attributes of the Zarr v3 group at ``place``, or None if there is no group."""
    try:
        document = json.loads(open_storage(place).get("zarr.json"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("node_type") != "group":
        return None
    attributes = document.get("attributes", {})
    return attributes if isinstance(attributes, dict) else {}


def check_format(what: str, found: Any, readable: tuple[int, ...], again: str) -> None:
    """Refuse what another version of orograph has written in a format that this one cannot read.

    Raises
    ------
    InputError
        It tells whether to update orograph, or to do ``again``.
    """
    if found in readable:
        return
    newer = isinstance(found, int) and found > max(readable)
    raise InputError(
        f"{what} has format {found!r}, this version of orograph reads "
        f"{' and '.join(map(str, readable))}; "
        + (f"a newer one wrote it: update orograph, or {again}" if newer
           else f"an older one wrote it: {again}")
    )  # fmt: skip


def run_of(place: Location) -> str | None:
    """Return the token of the run that wrote a store; None if there is no store, or no token."""
    run = (group_attributes(place) or {}).get(MARK, {}).get("run")
    return None if run is None else str(run)


def member_documents(storage: Storage) -> dict[str, dict[str, Any]]:
    """Return the metadata of the arrays of a group, by name, sorted."""
    documents = {}
    for name in sorted(storage.names()):
        try:
            documents[name] = json.loads(storage.get(f"{name}/zarr.json"))
        except FileNotFoundError:
            continue
    return documents


def shard_grid(document: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the shape and the shard sides of an array; None if it is not two-dimensional."""
    if document.get("node_type") != "array" or len(document["shape"]) != 2:
        return None
    height, width = document["shape"]
    rows, columns = document["chunk_grid"]["configuration"]["chunk_shape"]
    return (height, width), (rows, columns)


def mark_complete(place: Location) -> None:
    """Mark an orograph store complete.

    The shards that do not exist are listed in the attributes: they read as fill values. A shard
    that is lost later is thereby recognised as missing.
    """
    storage = open_storage(place)
    absent: dict[str, list[list[int]]] = {}
    for name, document in member_documents(storage).items():
        grid = shard_grid(document)
        if grid is None:
            continue
        (height, width), (rows, columns) = grid
        missing = []
        for i in range(-(-height // rows)):
            present = set(storage.names(f"{name}/c/{i}"))
            missing += [[i, j] for j in range(-(-width // columns)) if str(j) not in present]
        if missing:
            absent[name] = missing
    document = json.loads(storage.get("zarr.json"))
    document["attributes"][MARK] |= {"complete": True, "absent_shards": absent}
    write_group_metadata(storage, document)


def write_group_metadata(place: Location, document: dict[str, Any]) -> None:
    """Write the metadata of a group, consolidated with those of its arrays.

    xarray opens such a store in one read, and without a warning. zarr-python would warn when it
    writes this, since version 3 of the format does not specify it.
    """
    storage = open_storage(place)
    document["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": member_documents(storage),
    }
    storage.put("zarr.json", json.dumps(document, indent=2).encode())


def check_target(place: Location, overwrite: bool) -> None:
    """Raise an error if no store may be written at ``place``.

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
    """Delete what writers that have ended left at the place of an unfinished store.

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


def publish(
    partial: Location, final: Location, overwrite: bool = False, lease: Lease | None = None
) -> None:
    """Move a finished store to its final name, in one step.

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

    Raises
    ------
    StoreExistsError
        As `check_target`.
    RunError
        If another writer has taken the lease over.
    """
    staged, target = open_storage(partial), open_storage(final)
    if not staged.is_tree():
        raise InputError(f"{staged} does not exist; there is nothing to publish")
    check_target(target, overwrite)
    if MARK in (group_attributes(staged) or {}):
        mark_complete(staged)
    if lease is not None:
        lease.check()
    target.commit(staged, overwrite)


def _is_zarr(storage: Storage) -> bool:
    return any(storage.state(name) for name in ("zarr.json", ".zgroup", ".zarray"))
