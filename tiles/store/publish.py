"""How a store gets its name: written beside it, renamed when whole."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from orograph.tiles.errors import InputError, StoreExistsError

MARK = "orograph"
TEMPORARY = ".tmp"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def partial_path(final: str | os.PathLike[str]) -> Path:
    """Where a store lies while it is being written."""
    final = Path(final)
    return final.with_name(final.name + ".partial")


def group_attributes(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Attributes of the Zarr v3 group at ``path``; None if there is no such group."""
    try:
        document = json.loads((Path(path) / "zarr.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("node_type") != "group":
        return None
    attributes = document.get("attributes", {})
    return attributes if isinstance(attributes, dict) else {}


def is_temporary(path: Path) -> bool:
    """Is this a file that `replace_file` had not finished?"""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def run_of(path: str | os.PathLike[str]) -> str | None:
    """The token of the run that has made a store; None if there is no store, or no run has."""
    run = (group_attributes(path) or {}).get(MARK, {}).get("run")
    return None if run is None else str(run)


def shard_grid(document: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Shape and shard sides by the metadata of an array; None if it has not two dimensions."""
    if document.get("node_type") != "array" or len(document["shape"]) != 2:
        return None
    height, width = document["shape"]
    rows, columns = document["chunk_grid"]["configuration"]["chunk_shape"]
    return (height, width), (rows, columns)


def seal(path: str | os.PathLike[str]) -> None:
    """Mark an orograph store complete.

    The shards that are not there are written down, for they stand for fill values; a shard that
    goes missing later is told from them. What killed writers have left behind is swept away.
    """
    path = Path(path)
    absent: dict[str, list[list[int]]] = {}
    for metadata in sorted(path.glob("*/zarr.json")):
        grid = shard_grid(json.loads(metadata.read_bytes()))
        if grid is None:
            continue
        (height, width), (rows, columns) = grid
        folder = metadata.parent / "c"
        missing = []
        for i in range(-(-height // rows)):
            try:
                present = set(os.listdir(folder / str(i)))
            except FileNotFoundError:
                present = set()
            for debris in (name for name in present if name.endswith(TEMPORARY)):
                (folder / str(i) / debris).unlink(missing_ok=True)
            missing += [[i, j] for j in range(-(-width // columns)) if str(j) not in present]
        if missing:
            absent[metadata.parent.name] = missing
    document = json.loads((path / "zarr.json").read_bytes())
    document["attributes"][MARK] |= {"complete": True, "absent_shards": absent}
    write_group_metadata(path, document)


def write_group_metadata(path: Path, document: dict[str, Any]) -> None:
    """Write the metadata of a group, with those of its arrays in it.

    xarray opens such a store without a warning, and in one read. Written here and not by
    zarr-python, which warns on its part that version 3 of the format does not know of this.
    """
    members = {
        entry.parent.name: json.loads(entry.read_bytes())
        for entry in sorted(path.glob("*/zarr.json"))
    }
    document["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": members,
    }
    replace_file(path / "zarr.json", json.dumps(document, indent=2).encode())


def replace_file(path: Path, *parts: Any) -> None:
    """Write a whole file or nothing: readers and a kill at any moment see old or new bytes.

    ``parts``, bytes or arrays of bytes, come one behind the other.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.writelines(parts)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_target(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse a place where no store may be written.

    Raises
    ------
    StoreExistsError
        If something is there and ``overwrite`` is false, or if it is no Zarr store: a user's
        folder is never replaced, whatever ``overwrite`` says.
    InputError
        If the folder that should hold the store does not exist.
    """
    path = Path(path)
    if path.is_symlink() or path.exists():
        if path.is_symlink() or not path.is_dir() or not _is_zarr(path):
            raise StoreExistsError(
                f"{path} exists and is no Zarr store; it is never overwritten: "
                "choose another path, or move it away"
            )
        if not overwrite:
            raise StoreExistsError(
                f"{path} exists; pass overwrite=True to replace it, or choose another path"
            )
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{path}: the folder {parent} does not exist; create it first")


def discard(path: str | os.PathLike[str]) -> None:
    """Remove an unfinished store, and nothing else, from where one is to be written."""
    path = Path(path)
    if not path.exists():
        return
    if not path.is_dir() or (any(path.iterdir()) and MARK not in (group_attributes(path) or {})):
        raise StoreExistsError(f"{path} is in the way and no unfinished store; move it away")
    shutil.rmtree(path)


def publish(
    partial: str | os.PathLike[str], final: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Give a finished store its name, in one step.

    A store that has the name already is exchanged for the new one and only then removed, so that
    at every instant one whole store has the name (on file systems without an atomic exchange, but
    for the instant between two renames, when the old one has a hidden name beside it).

    Parameters
    ----------
    partial : path
        The finished directory, on the same file system.
    final : path
        Its name from now on.
    overwrite : bool
        Replace a Zarr store of that name.

    Raises
    ------
    StoreExistsError
        As `check_target`.
    """
    partial, final = Path(partial), Path(final)
    if not partial.is_dir():
        raise InputError(f"{partial} does not exist; there is nothing to publish")
    check_target(final, overwrite)
    if MARK in (group_attributes(partial) or {}):
        seal(partial)
    if not final.exists():
        os.rename(partial, final)
        return
    if _exchange(partial, final):
        shutil.rmtree(partial)
        return
    aside = final.with_name(f".{final.name}.{os.getpid()}-{time.time_ns()}")
    os.rename(final, aside)
    os.rename(partial, final)
    shutil.rmtree(aside)


def _is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically (Linux ``renameat2``); False where that is not to be had."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
