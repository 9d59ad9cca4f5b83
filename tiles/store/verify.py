"""Verify a whole store: its metadata, and the checksum of every chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from orograph.tiles import html
from orograph.tiles.errors import DamagedChunkError, DamagedStoreError, own_errors
from orograph.tiles.format.dense import MEND, DenseArray
from orograph.tiles.format.metadata import StoreMetadata, read_metadata
from orograph.tiles.grid.window import Window
from orograph.tiles.object_options import takes_storage_options
from orograph.tiles.open_storage import open_storage
from orograph.tiles.storage import Location
from orograph.tiles.store.raster import StoreRaster
from orograph.tiles.store.shard import damaged_tiles, stored_format, tile_name

MOST_PROBLEMS = 1000
"""Greatest number of problems that a report names."""


@dataclass(frozen=True)
class StoreReport:
    """Result of `verify`: the files read and the problems found.

    Parameters
    ----------
    store : str
        Address of the store.
    files : int
        Number of files with values that were read.
    problems : tuple of str
        One message for each damaged or missing file, or tile of a file, which it names. There are
        at most 1000.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> stored = og.ingest(np.eye(3), "identity.zarr")
    >>> report = og.verify("identity.zarr")
    >>> report.ok, report.files, report.problems
    (True, 1, ())
    """

    store: str
    files: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the store is complete and undamaged."""
        return not self.problems

    def _repr_html_(self) -> str:
        state, *problems = str(self).removeprefix(f"{self.store}: ").split("\n")
        rows = {"state": state, **{f"problem {n}": text for n, text in enumerate(problems, 1)}}
        return html.table(f"Store {self.store}", rows)

    def __str__(self) -> str:
        if self.ok:
            return f"{self.store}: whole; {self.files} files match their checksums"
        count = f"{len(self.problems)}{' or more' if len(self.problems) == MOST_PROBLEMS else ''}"
        return "\n".join((f"{self.store}: DAMAGED, problems: {count}", *self.problems))


@own_errors
@takes_storage_options
def verify(
    path: Location, *, storage_options: Mapping[str, str | bool] | None = None
) -> StoreReport:
    """Verify the metadata and the checksum of every chunk of a store.

    Parameters
    ----------
    path : path
        A store of any kind: an ingested raster, a result with its tables, a distance index with its
        matrices, or all pairs.
    storage_options : dict, optional
        Options of an address in an object store, as for a run.

    Returns
    -------
    StoreReport
        Whether everything can be read back as it was written, and the problems found.

    Raises
    ------
    InputError
        If there is no finished store of this version's format.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> stored = og.ingest(np.arange(64.0).reshape(8, 8), "whole.zarr", tile=4)
    >>> og.verify("whole.zarr").ok
    True
    """
    storage = open_storage(path)
    try:
        metadata = read_metadata(storage)
        if metadata.rasters:
            with suppress(DamagedChunkError):  # of coordinates: they are read below
                _ = StoreRaster(storage, metadata.rasters[0]).georeference
    except DamagedStoreError as error:
        return StoreReport(str(storage), 0, (str(error),))
    files = 0
    problems: list[str] = []
    for name in metadata.members:
        if name in metadata.rasters:
            count, found = _raster_problems(metadata, name)
        else:
            count, found = _dense_problems(metadata, name)
        files += count
        # Chunks are read as their problems are asked for, so none are read beyond the greatest
        # number.
        problems += islice(found, MOST_PROBLEMS - len(problems))
    return StoreReport(str(storage), files, tuple(problems))


def _raster_problems(metadata: StoreMetadata, name: str) -> tuple[int, Iterator[str]]:
    """Return the number of shards of a raster, and a message for each damaged one."""
    member, side = metadata.members[name], metadata.shard
    absent = metadata.absent.get(name, frozenset())
    rows, columns = (-(-n // side) for n in member.shape)

    def problems() -> Iterator[str]:
        for i in range(rows):
            for j in range(columns):
                if (i, j) not in absent:
                    yield from _shard_problems(metadata, name, i, j)

    return rows * columns - len(absent), problems()


def _shard_problems(metadata: StoreMetadata, name: str, i: int, j: int) -> Iterator[str]:
    storage, side, tile = metadata.storage, metadata.shard, metadata.tile
    shape = metadata.members[name].shape
    shard = Window(i * side, j * side, side, side).clip((shape[0], shape[1]))
    member = metadata.members[name]
    key, form = member.key(i, j), stored_format(storage, name)
    stated = None if member.checksums is None else int(member.checksums[i, j])
    if form is None:  # only zarr-python can decode it
        try:
            StoreRaster(storage, name).read(shard)
        except DamagedStoreError as error:
            yield str(error)
        return
    for place, fault in damaged_tiles(storage, key, form, shard.shape, stated):
        if place is None:
            yield f"{storage}/{key}: shard ({i}, {j}) of {name} cannot be read: {fault}; {MEND}"
            continue
        row, column = i * side // tile + place[0], j * side // tile + place[1]
        what = tile_name(name, metadata.tile, metadata.shard, (row, column), (shape[0], shape[1]))
        yield f"{storage}/{key}: {what}, cannot be read: {fault}; {MEND}"


def _dense_problems(metadata: StoreMetadata, name: str) -> tuple[int, Iterator[str]]:
    """Return the number of chunks of an array, and a message for each damaged one."""
    member = metadata.members[name]
    if not member.shape:
        return 0, iter(())  # the grid mapping: its attributes are all that it holds
    try:
        array = DenseArray(metadata.storage, member)
    except DamagedStoreError as error:
        return 0, iter((str(error),))

    def problems() -> Iterator[str]:
        for number in range(array.chunks):
            try:
                array.chunk(number)
            except DamagedStoreError as error:
                yield str(error)

    return array.chunks, problems()
