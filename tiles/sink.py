"""Where results go: a store, whole shards at a time, or arrays in memory."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from orograph.tiles.errors import InputError, full_storage_reported
from orograph.tiles.grid import Window
from orograph.tiles.publish import replace_file, shard_grid
from orograph.tiles.shard import encode, shard_format


class Sink(Protocol):
    """Where results go."""

    def write(self, variable: str, window: Window, array: NDArray[Any]) -> None:
        """Keep ``array`` as the cells of ``window`` of one variable."""

    def written(self, variable: str, window: Window) -> bool:
        """Whether what was written there is still there."""


@dataclass(frozen=True)
class ArraySink:
    """Results in memory: one array of the whole grid per variable."""

    arrays: MutableMapping[str, NDArray[Any]]

    def write(self, variable: str, window: Window, array: NDArray[Any]) -> None:
        """Keep ``array`` as the cells of ``window`` of one variable."""
        self.arrays[variable][window.slices] = array

    def written(self, variable: str, window: Window) -> bool:
        """What is in memory stays there."""
        return True


@dataclass(frozen=True)
class StoreSink:
    """Results in a store, whole shards at a time.

    Any number of processes and threads may write different shards at once, and the same shard
    again with the same cells: a shard comes to be by a rename, after it is whole.
    """

    path: str

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", os.path.abspath(path))

    def write(self, variable: str, window: Window, array: NDArray[Any]) -> None:
        """Write one whole shard.

        Parameters
        ----------
        variable : str
            Name of the raster.
        window : Window
            Exactly one shard, clipped at the right and bottom edges of the grid. Less than a
            shard would lose the rest of it without a word, so it is refused.
        array : array of ``window.shape``, of the variable's dtype
            The cells.

        Raises
        ------
        InputError
            If the window is not one shard, or the array does not fit it.
        StorageFullError
            If there is no room for it. The shard is then as it was.
        """
        metadata = Path(self.path, variable, "zarr.json")
        try:
            document = metadata.read_bytes()
        except FileNotFoundError:
            raise InputError(f"{self.path} has no variable {variable!r}; create it first") from None
        grid = shard_grid(json.loads(document))
        if grid is None:
            raise InputError(f"{self.path}: {variable} is no raster")
        key = _shard_key(grid, window, variable)
        if array.shape != window.shape:
            raise InputError(
                f"{variable}: cells of shape {array.shape} for a window of "
                f"{window.shape}; they must agree"
            )
        content = encode_shard(document, window, key, array, variable)
        target = metadata.parent / key
        with full_storage_reported(target):
            # not their parents: if those are gone, so is the run
            target.parent.parent.mkdir(exist_ok=True)
            target.parent.mkdir(exist_ok=True)
            replace_file(target, content)

    def written(self, variable: str, window: Window) -> bool:
        """Whether the shard that holds the first cell of ``window`` has been written."""
        metadata = Path(self.path, variable, "zarr.json")
        grid = shard_grid(json.loads(metadata.read_bytes()))
        if grid is None:
            raise InputError(f"{self.path}: {variable} is no raster")
        _, (rows, columns) = grid
        return (metadata.parent / f"c/{window.y // rows}/{window.x // columns}").is_file()


def _shard_key(grid: tuple[tuple[int, int], tuple[int, int]], window: Window, variable: str) -> str:
    shape, (rows, columns) = grid
    i, j = window.y // rows, window.x // columns
    whole = Window(i * rows, j * columns, rows, columns).clip(shape)
    if whole != window or window.size == 0:
        raise InputError(
            f"{variable}: {window} is not one whole shard of {rows} x {columns} cells in a grid "
            f"of {shape[0]} x {shape[1]}; the one at its corner is {whole}"
        )
    return f"c/{i}/{j}"


def encode_shard(
    document: bytes, window: Window, key: str, array: NDArray[Any], variable: str
) -> bytes:
    """The bytes of one shard, made in memory.

    zarr-python would write them itself, but reads the shard that is there before it replaces it:
    slow, and impossible if that one is damaged, which is when it must be replaced. Chunks that
    hold nothing but fill values are written too: then a shard is there if it has been written.
    """
    form = shard_format(json.loads(document))
    if form is not None:
        native = form.dtype.newbyteorder("=")
        if array.dtype.newbyteorder("=") != native:
            raise InputError(f"{variable}: cells of {array.dtype} for {native}; convert first")
        return encode(array, form)
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    prototype = default_buffer_prototype()
    memory: dict[str, Any] = {"zarr.json": prototype.buffer.from_bytes(document)}
    # Not as an argument of open_array, which takes it and ignores it.
    target = zarr.open_array(MemoryStore(memory), mode="r+", zarr_format=3).with_config(
        {"write_empty_chunks": True}
    )
    if array.dtype.newbyteorder("=") != target.dtype:
        raise InputError(f"{variable}: cells of {array.dtype} for {target.dtype}; convert first")
    target[window.slices] = array
    return bytes(memory[key].to_bytes())
