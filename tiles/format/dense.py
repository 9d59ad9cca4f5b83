"""Arrays of a store that are chunked along rows only: coordinates, tables, matrices.

Each chunk is one file, which ends with the crc32c of the rest. Every chunk is written, of fill
values too, so a missing file is damage and never read as fill values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.concurrent_requests import map_at_once
from orograph.tiles.errors import DamagedChunkError, DamagedStoreError
from orograph.tiles.format.checksums import check_stated, checksum_of_end
from orograph.tiles.format.codec import MOST_RATIO, decompress, without_checksum
from orograph.tiles.format.metadata import ArrayMetadata, damaged
from orograph.tiles.storage import Storage

MEND = "restore the file from a copy, or make the store again"


@dataclass(frozen=True)
class DenseArray:
    """A stored array whose chunks hold whole rows.

    Parameters
    ----------
    storage : Storage
        The store.
    member : ArrayMetadata
        Metadata of the array.

    Raises
    ------
    DamagedStoreError
        If it is not encoded as orograph encodes such arrays.
    """

    storage: Storage
    member: ArrayMetadata

    def __post_init__(self) -> None:
        shape, chunk = self.member.shape, self.member.chunk
        if not shape or any(c < n for c, n in zip(chunk[1:], shape[1:], strict=True)):
            raise self._undecodable(f"its chunks {chunk} hold no whole rows of {shape}")
        names = [codec["name"] for codec in self.member.document["codecs"]]
        if names not in (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"]):
            raise self._undecodable(f"it has the codecs {names}, not bytes, blosc and crc32c")

    def _undecodable(self, fault: str) -> DamagedStoreError:
        return damaged(self.storage, f"{self.member.name}/zarr.json", fault)

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.member.shape[0] // self.member.chunk[0])

    def key(self, number: int) -> str:
        """Return the storage key of a chunk."""
        return self.member.key(number, *[0] * (len(self.member.shape) - 1))

    def chunk(self, number: int) -> NDArray[Any]:
        """Read the rows of one chunk.

        Raises
        ------
        DamagedChunkError
            If its file is missing or damaged; the message names it.
        """
        member, key = self.member, self.key(number)
        try:
            content = np.frombuffer(self.storage.get(key), np.uint8)
            frame = without_checksum(content, "the file")
            if member.checksums is not None:
                stated = int(member.checksums.flat[number])
                check_stated(checksum_of_end(content), stated)
            values = self._decode(frame)
        except FileNotFoundError:
            raise self._unreadable(number, "it is missing") from None
        except (OSError, ValueError, TypeError) as error:
            raise self._unreadable(number, str(error)) from error
        # The last chunk is filled up beyond the rows of the array.
        rows = member.shape[0] - number * member.chunk[0]
        return values[(slice(rows), *map(slice, member.shape[1:]))]

    def _decode(self, content: NDArray[np.uint8]) -> NDArray[Any]:
        chunk, dtype = self.member.chunk, self.member.dtype.newbyteorder("<")
        size = math.prod(chunk) * dtype.itemsize
        # Without compression: the codecs are bytes and crc32c.
        if len(self.member.document["codecs"]) == 2:
            if content.size != size:
                raise ValueError(f"it has {content.size} bytes of values, not {size}")
            return content.view(dtype).reshape(chunk).astype(self.member.dtype)
        # Before the memory is allocated: damaged metadata may state chunks of any size.
        if size > MOST_RATIO * content.size:
            raise ValueError(f"{content.size} bytes cannot be {size}")
        values = np.empty(chunk, dtype)
        decompress(content, values)
        return values.astype(self.member.dtype, copy=False)

    def _unreadable(self, number: int, fault: str) -> DamagedChunkError:
        member = self.member
        first = number * member.chunk[0]
        last = min(first + member.chunk[0], member.shape[0]) - 1
        return DamagedChunkError(
            f"{self.storage}/{self.key(number)}: rows {first} to {last} of {member.name} cannot be "
            f"read: {fault}; {MEND}"
        )

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows from ``start`` to ``stop``."""
        rows = self.member.chunk[0]
        numbers = range(start // rows, -(-stop // rows))
        chunks = map_at_once(self.storage, self.chunk, numbers)
        parts = [
            chunk[max(0, start - number * rows) : stop - number * rows]
            for number, chunk in zip(numbers, chunks, strict=True)
        ]
        if not parts:
            return np.empty((0, *self.member.shape[1:]), self.member.dtype)
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))


@dataclass(frozen=True)
class StoredColumn:
    """A stored column whose rows are read when indexed, by an integer or a slice."""

    array: DenseArray

    @property
    def storage(self) -> Storage:
        """Storage of the store."""
        return self.array.storage

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self.array.member.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.array.member.dtype

    def __getitem__(self, rows: int | slice) -> Any:
        if not isinstance(rows, slice):
            return self.array.read(rows, rows + 1)[0]
        start, stop, _ = rows.indices(self.shape[0])
        return self.array.read(start, max(start, stop))
