"""Read and validate the metadata of stores, and write those of groups.

The ``zarr.json`` of a store's group contains a copy of the metadata of each array (Zarr's
consolidated metadata) and, among the attributes of orograph, a checksum of the whole document. So
it states what the store must hold, down to how each chunk ends. Whoever opens a store compares the
copies with the metadata beside the arrays: that shows an array that was deleted or changed.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from orograph.tiles.concurrent_requests import map_at_once
from orograph.tiles.errors import DamagedStoreError, InputError
from orograph.tiles.format.checksums import CHECKSUMS, decode_checksums
from orograph.tiles.format.json_object import field, parse_object, whole_numbers
from orograph.tiles.grid.window import LONGEST_SIDE
from orograph.tiles.nodata import decode_fill_value
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location, State, Storage

MARK = "orograph"
"""Name of the group's attribute that belongs to orograph."""
FORMAT = 1
"""Version of the format of stores."""

GROUP, REPORT = "zarr.json", "report.json"  # the latter is what the run reports of itself
PARTIAL = ".partial"
"""Suffix of a store's address while the store is unfinished."""
# A tile is processed as a whole in memory; kernels index its cells with 29 bits, and Blosc
# compresses less than 2 GiB at a time.
MOST_CELLS_A_SIDE = 8192
_LONGEST = 2**62  # rows of a table, or entries of a row
_TYPES = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64"),
}
_MEND = "restore it from a copy, or make the store again"

T = TypeVar("T")


# -- documents -------------------------------------------------------------------------------------


def damaged(storage: Storage, key: str, fault: object) -> DamagedStoreError:
    """Return the error for damaged metadata, naming the file."""
    return DamagedStoreError(f"{storage}/{key}: {fault}; {_MEND}")


def read_document(storage: Storage, key: str) -> dict[str, Any]:
    """Read a metadata file as a JSON object.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    DamagedStoreError
        If it holds anything else.
    """
    return _parsed(storage, key, storage.get(key))


def _parsed(storage: Storage, key: str, content: bytes) -> dict[str, Any]:
    try:
        return parse_object(content)
    except ValueError as error:
        raise damaged(storage, key, error) from None


def group_attributes(place: Location) -> dict[str, Any] | None:
    """Read the attributes of the Zarr group at ``place``; None if it cannot be read."""
    try:
        document = read_document(open_storage(place), GROUP)
    except (OSError, ValueError):
        return None
    attributes = document.get("attributes", {})
    if document.get("node_type") != "group" or not isinstance(attributes, dict):
        return None
    return attributes


def is_store(place: Location) -> bool:
    """Return whether ``place`` holds a store of this package, finished or not.

    Raises
    ------
    DamagedStoreError
        If there is a ``zarr.json`` that cannot be read.
    """
    return read_group(place) is not None


class Group(NamedTuple):
    """The metadata of the group of a store of this package, as they were read."""

    document: dict[str, Any]
    state: State


def read_group(place: Location) -> Group | None:
    """Read the metadata of the group of a store of this package; None if there is none.

    Raises
    ------
    DamagedStoreError
        If there is a ``zarr.json`` that cannot be read.
    """
    try:
        storage = open_storage(place)
        content, state = storage.fetch(GROUP)
    except (OSError, ValueError):  # also of an address that leads nowhere
        return None
    document = _parsed(storage, GROUP, content)
    attributes = document.get("attributes")
    whole = isinstance(attributes, dict) and MARK in attributes
    return Group(document, state) if whole else None


def run_of(place: Location) -> str | None:
    """Return the token of the run that wrote a store; None if there is no store, or no token."""
    mark = (group_attributes(place) or {}).get(MARK)
    run = mark.get("run") if isinstance(mark, dict) else None
    return run if isinstance(run, str) else None


def member_documents(
    storage: Storage, names: Iterable[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Read the metadata of all arrays in a group, or of some names in it, sorted by name."""

    def read(name: str) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            return read_array(storage, name).document
        return None

    wanted = sorted({*(storage.names() if names is None else names)} - {GROUP, REPORT})
    documents = zip(wanted, map_at_once(storage, read, wanted), strict=True)
    return {name: document for name, document in documents if document is not None}


def write_group_metadata(place: Location, document: dict[str, Any], members: Any = None) -> None:
    """Write a group's metadata, including those of its arrays (`member_documents`) and a checksum.

    xarray opens such a store in one read, and without a warning. zarr-python would warn when it
    writes this, since version 3 of the format does not specify it. Arrays keep the order in which
    the group listed them before; a table, that of its columns.
    """
    storage = open_storage(place)
    if MARK not in document.get("attributes", {}):  # zarr-python makes a group where none is
        raise damaged(storage, GROUP, "it has been removed or replaced while the store was written")
    mark = document["attributes"][MARK]
    if members is None:
        members = member_documents(storage)
    stated = (document.get("consolidated_metadata") or {}).get("metadata", {})
    names = dict.fromkeys([*stated, *mark.get("table", ()), *members])
    # In the form in which zarr-python writes consolidated metadata.
    document["consolidated_metadata"] = {
        "kind": "inline",
        "must_understand": False,
        "metadata": {name: members[name] for name in names if name in members},
    }
    mark["checksum"] = checksum_of(document)
    storage.put(GROUP, json.dumps(document).encode())  # indented it takes ten times as long


def checksum_of(document: Mapping[str, Any]) -> str:
    """Return the crc32c checksum of a group's metadata."""
    attributes = dict(document["attributes"])
    # The checksum is part of the document, and cannot be part of what it is computed from.
    attributes[MARK] = {k: v for k, v in attributes[MARK].items() if k != "checksum"}
    content = _canonical({**document, "attributes": attributes})
    return f"{google_crc32c.value(content):08x}"


def _canonical(document: Mapping[str, Any]) -> bytes:
    """Return JSON text that does not depend on the order of keys."""
    try:
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def check_format(what: str, found: object, readable: int, again: str) -> None:
    """Raise InputError for a format of another version; it tells to update, or do ``again``."""
    if type(found) is int and found == readable:
        return
    newer = isinstance(found, int) and found > readable
    raise InputError(
        f"{what} has format {reprlib.repr(found)}, this version of orograph reads {readable}; "
        + (f"a newer one wrote it: update orograph, or {again}" if newer
           else f"an older one wrote it: {again}")
    )  # fmt: skip


# -- stores ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrayMetadata:
    """Metadata of one array of a store."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Dtype of the elements, in native byte order."""
    chunk: tuple[int, ...]
    """Sides of the chunks; of a raster they are the shards."""
    dimensions: tuple[str, ...]
    attributes: dict[str, Any]
    document: dict[str, Any]
    checksums: NDArray[np.uint32] | None = field_of(default=None, compare=False, repr=False)
    """Checksum at the end of each chunk of a finished store, by its place; 0 without a chunk."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each dimension."""
        return tuple(-(-n // side) for n, side in zip(self.shape, self.chunk, strict=True))

    def key(self, *place: int) -> str:
        """Return the storage key of a chunk."""
        return "/".join((self.name, "c", *map(str, place)))

    @classmethod
    def parse(cls, name: str, document: object) -> ArrayMetadata:
        """Parse an array's ``zarr.json``; ValueError if it is invalid."""
        if not isinstance(document, dict):
            raise ValueError(f"it holds {reprlib.repr(document)}, no JSON object")
        if (document.get("zarr_format"), document.get("node_type")) != (3, "array"):
            raise ValueError("it is not an array of Zarr format 3")
        shape = whole_numbers(document, "shape", 0, _LONGEST)
        grid = field(document, "chunk_grid", dict)
        if field(grid, "name", str) != "regular":
            raise ValueError(f"chunk_grid is {reprlib.repr(grid)}, not a regular one")
        chunk = whole_numbers(field(grid, "configuration", dict), "chunk_shape", 1, _LONGEST)
        kind = field(document, "data_type", str)
        if kind not in _TYPES:
            raise ValueError(f"data_type is {reprlib.repr(kind)}; it is none of {sorted(_TYPES)}")
        names = document.get("dimension_names")
        names = [f"dim_{axis}" for axis in range(len(shape))] if names is None else names
        if not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
            raise ValueError(f"dimension_names is {reprlib.repr(names)}")
        if not len(shape) == len(chunk) == len(names):
            raise ValueError(f"shape {shape}, chunks {chunk} and dimensions {names} do not agree")
        for codec in field(document, "codecs", list):
            if not isinstance(codec, dict) or not isinstance(codec.get("name"), str):
                raise ValueError(f"codecs has {reprlib.repr(codec)}")
        attributes = field(document, "attributes", dict) if "attributes" in document else {}
        return cls(name, shape, np.dtype(kind), chunk, tuple(names), attributes, document)


def read_array(storage: Storage, name: str) -> ArrayMetadata:
    """Read the metadata of one array of a store, finished or not.

    Raises
    ------
    FileNotFoundError
        If there is no such array.
    DamagedStoreError
        If its metadata cannot be read.
    """
    key = f"{name}/zarr.json"
    document = read_document(storage, key)
    return _validated(storage, key, partial(ArrayMetadata.parse, name, document))


@dataclass(frozen=True)
class StoreMetadata:
    """Validated metadata of a store."""

    storage: Storage
    attributes: dict[str, Any]
    """Attributes of the group, without those that belong to orograph."""
    tile: int
    """Side of a tile in cells; ``shard`` is that of a shard."""
    shard: int
    members: dict[str, ArrayMetadata]
    """Metadata of every array that the store holds, by name."""
    tables: tuple[str, ...]
    """Names of the columns of the store's table."""
    absent: dict[str, frozenset[tuple[int, int]]]
    """Places of the shards that were not written, by raster; they read as fill values."""
    state: State
    """State of the object that holds the group's metadata, from which all this was read."""

    @property
    def rasters(self) -> list[str]:
        """Names of the rasters."""
        return [n for n, m in self.members.items() if len(m.shape) == 2 and n not in self.tables]

    def member(self, name: str) -> ArrayMetadata:
        """Return the metadata of an array; raise DamagedStoreError if it is missing."""
        if name not in self.members:
            raise damaged(self.storage, GROUP, f"the array {name!r} is not listed")
        return self.members[name]


def read_metadata(
    place: Location, unfinished: bool = False, group: Group | None = None
) -> StoreMetadata:
    """Read and validate the metadata of a store.

    Parameters
    ----------
    place : path or Storage
        The store.
    unfinished : bool
        Whether it may be unfinished.
    group : Group, optional
        The metadata of its group, if they have been read.

    Raises
    ------
    InputError
        If there is no store, or it is unfinished, or another version of orograph wrote it.
    DamagedStoreError
        If metadata have been damaged or are invalid, or an array is missing or is not the one
        that was written.
    """
    storage = open_storage(place)
    group = group or read_group(storage)
    if group is None:
        beside = storage.beside(PARTIAL)
        if not storage.exists() and beside.exists():
            raise InputError(
                f"{storage} does not exist, but {beside.name} does: it was never finished; "
                "resume the run that writes it, or start again"
            )
        raise InputError(f"{storage} is not a store of orograph; make one with ingest")
    document = group.document
    mark = document["attributes"][MARK]
    stated = mark.get("format") if isinstance(mark, dict) else None
    # First the version: all that follows is read as this version has it.
    check_format(f"the store {storage}", stated, FORMAT, "make it again")
    if mark.get("checksum") != _validated(storage, GROUP, partial(checksum_of, document)):
        raise damaged(
            storage, GROUP, "its checksum does not match: damaged, or changed by another program"
        )
    whole = _validated(storage, GROUP, partial(_parse_group, storage, group))
    if not (unfinished or mark["complete"]):
        raise InputError(
            f"{storage} is unfinished; resume the run that writes it, or delete it and start again"
        )
    map_at_once(storage, partial(_check_member, storage), whole.members.values())
    return whole


def _check_member(storage: Storage, member: ArrayMetadata) -> None:
    """Raise DamagedStoreError if the metadata beside an array are not those of the group."""
    name, key = member.name, f"{member.name}/zarr.json"
    try:
        document = read_document(storage, key)
    except FileNotFoundError:
        raise damaged(storage, key, f"it is missing: the array {name!r}") from None
    found = _validated(storage, key, partial(_canonical, document))
    if found != _canonical(member.document):
        raise damaged(storage, key, f"it is not what {storage}/{GROUP} states of {name!r}")


def _validated(storage: Storage, key: str, parse: Callable[[], T]) -> T:
    """Call ``parse``, turning a ValueError into `DamagedStoreError`."""
    try:
        return parse()
    except (ValueError, OverflowError) as error:
        raise damaged(storage, key, error) from None


def _parse_group(storage: Storage, group: Group) -> StoreMetadata:
    document = group.document
    if (document.get("zarr_format"), document.get("node_type")) != (3, "group"):
        raise ValueError("it is not a group of Zarr format 3")
    attributes = field(document, "attributes", dict)
    mark = field(attributes, MARK, dict)
    field(mark, "complete", bool)
    tile, shard = field(mark, "tile", int), field(mark, "shard", int)
    ratio, rest = divmod(shard, tile) if tile > 0 else (0, 0)
    # A power of two has one bit, so `ratio & (ratio - 1)` is 0.
    if tile > MOST_CELLS_A_SIDE or ratio < 1 or rest or ratio & (ratio - 1):
        raise ValueError(
            f"tile is {tile} and shard {shard}; a tile has 1 to {MOST_CELLS_A_SIDE} cells a side, "
            "and a shard a power of two of tiles"
        )
    if "run" in mark:
        field(mark, "run", str)
    table = field(mark, "table", list) if "table" in mark else []
    consolidated = field(field(document, "consolidated_metadata", dict), "metadata", dict)
    members = {}
    for name, stated in consolidated.items():
        _check_name(name)
        try:
            members[name] = ArrayMetadata.parse(name, stated)
        except ValueError as error:
            raise ValueError(f"the array {name!r}: {error}") from None
    if not all(isinstance(name, str) and name in members for name in table):
        raise ValueError(f"table is {reprlib.repr(table)}, not a list of arrays")
    own = {key: value for key, value in attributes.items() if key not in (MARK, "coordinates")}
    whole = StoreMetadata(storage, own, tile, shard, members, tuple(table), {}, group.state)
    _check_dimensions(whole)
    for name in whole.rasters:
        _check_raster(whole, members[name])
    stated = mark.get("absent_shards", {})
    if not isinstance(stated, dict) or not stated.keys() <= set(whole.rasters):
        raise ValueError(f"absent_shards is {reprlib.repr(stated)}")
    for name, places in stated.items():
        whole.absent[name] = _absent_shards(members[name], places)
    for name, text in field(mark, CHECKSUMS, dict).items() if CHECKSUMS in mark else ():
        if name not in members:
            raise ValueError(f"{CHECKSUMS} has {reprlib.repr(name)}, which is not an array")
        found = decode_checksums(text, members[name].grid)
        members[name] = replace(members[name], checksums=found)
    return whole


def _check_name(name: str) -> None:
    """Raise ValueError if an array name is not a plain file name."""
    if not name or name.startswith(".") or set(name) & {"/", "\0"} or not _is_text(name):
        raise ValueError(f"{reprlib.repr(name)} is not a name of an array")


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _check_dimensions(store: StoreMetadata) -> None:
    """Raise ValueError if arrays disagree on the length of a dimension."""
    lengths: dict[str, tuple[int, str]] = {}
    for member in store.members.values():
        for dimension, length in zip(member.dimensions, member.shape, strict=True):
            first = lengths.setdefault(dimension, (length, member.name))
            if first[0] != length:
                raise ValueError(
                    f"the dimension {dimension!r} has length {first[0]} in {first[1]!r} and "
                    f"{length} in {member.name!r}"
                )


def _check_raster(store: StoreMetadata, member: ArrayMetadata) -> None:
    """Raise ValueError if a raster's shape or chunks do not fit its store."""
    first = store.members[store.rasters[0]]
    if not all(1 <= side <= LONGEST_SIDE for side in member.shape):
        raise ValueError(
            f"the raster {member.name!r} has {member.shape[0]} x {member.shape[1]} cells; at least "
            f"1 and at most {LONGEST_SIDE} a side can be worked on"
        )
    if member.dtype.kind == "b":
        raise ValueError(f"the raster {member.name!r} has cells of type bool")
    if (member.shape, member.dimensions) != (first.shape, first.dimensions):
        raise ValueError(f"the rasters {first.name!r} and {member.name!r} have different grids")
    if len(set(member.dimensions)) != 2:
        raise ValueError(f"dimension_names is {member.dimensions} in {member.name!r}")
    if member.chunk != (store.shard, store.shard):
        raise ValueError(f"the chunks of {member.name!r} are {member.chunk}, shards {store.shard}")
    try:
        decode_fill_value(member.attributes.get("_FillValue"), member.dtype)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the raster {member.name!r}: {error}") from None


# By the state, metadata that have been replaced are another entry of the cache.
@lru_cache(maxsize=64)
def stated_checksums(storage: Storage, name: str, state: State | None) -> NDArray[np.uint32] | None:
    """Return the checksums of an array's chunks listed in a store's metadata, or None."""
    member = None if state is None else read_metadata(storage, True).members.get(name)
    return None if member is None else member.checksums


def _absent_shards(member: ArrayMetadata, places: object) -> frozenset[tuple[int, int]]:
    if not isinstance(places, list):
        raise ValueError(f"absent_shards has {reprlib.repr(places)}")
    rows, columns = (-(-n // side) for n, side in zip(member.shape, member.chunk, strict=True))
    found = set()
    for place in places:
        numbers = place if isinstance(place, list) else []
        if not (
            len(numbers) == 2
            and all(type(n) is int for n in numbers)
            and 0 <= numbers[0] < rows
            and 0 <= numbers[1] < columns
        ):
            raise ValueError(f"absent_shards has {reprlib.repr(place)}")
        found.add((numbers[0], numbers[1]))
    return frozenset(found)
