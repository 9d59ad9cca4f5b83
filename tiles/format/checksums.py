"""Checksums of chunks listed in a store's metadata, which detect swapped or outdated files.

Each chunk ends with a crc32c: a dense one with that of its bytes; a shard with that of its index,
which holds offset and length of each tile, and before the index with that of its last tile. The
store's metadata list them, those of a shard as one. So another chunk under the name, or an older
one, is recognised though it matches its own checksum; but not a shard whose tiles have the lengths
of those that it takes the place of, and whose last tile is the same.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from orograph.tiles.storage import Storage

CHECKSUMS = "checksums"
"""Name of the checksums among orograph's attributes of a group: text for each array."""


def encode_checksums(checksums: NDArray[np.uint32]) -> str:
    """Encode the checksums of an array's chunks as base64 text."""
    return base64.b64encode(checksums.astype("<u4").tobytes()).decode()


def decode_checksums(text: object, grid: tuple[int, ...]) -> NDArray[np.uint32]:
    """Decode checksums from base64 text; ValueError if their number is wrong."""
    content = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    if len(content) != 4 * math.prod(grid):
        raise ValueError(f"{CHECKSUMS} has {len(content)} bytes for {math.prod(grid)} chunks")
    return np.frombuffer(content, "<u4").reshape(grid).astype(np.uint32)


def checksum_in(storage: Storage, key: str, index: int = 0) -> int:
    """Read the checksum stored at the end of a chunk.

    Raises
    ------
    FileNotFoundError
        If there is no such chunk.
    """
    with storage.open(key) as reader:
        return checksum_of_end(reader.tail(index + 4), index)


def checksum_of_end(content: NDArray[np.uint8], index: int = 0) -> int:
    """Return the checksum at the end of a chunk's bytes, for shards with the last tile's."""
    end = content[-4:].tobytes()
    if not index:
        return int.from_bytes(end, "little")
    # The four bytes before the index are the checksum of the tile that is stored last. One number
    # is made of it and the checksum of the index.
    return int(google_crc32c.value(content[-index - 4 : -index].tobytes() + end))


def check_stated(found: int, stated: int | None) -> None:
    """Raise ValueError if a chunk's checksum differs from that in the metadata."""
    if stated is not None and found != stated:
        raise ValueError(
            f"it is not the file that the store states, but another one under its name: it ends "
            f"with {found:#010x}, not {stated:#010x}"
        )
