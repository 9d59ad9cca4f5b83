"""Compression and checksums of chunks, and the encoding of checkpoint entries.

Shards of rasters and the blocks of a distance index are Zarr chunks: a Blosc frame [1]_ followed by
its crc32c. Checkpoints are *entries*: any structure of None, booleans, integers, floats, strings,
lists, tuples, dicts, NumPy scalars and arrays, and instances of classes registered by `stored` or
`register`. The file of an entry consists of

- a header of fixed size: four letters, the crc32c of all that follows, and the length of the JSON;
- JSON: the version of the format, the name of the entry, the structure, and dtype and shape of
  each large array;
- the small arrays, each aligned to a multiple of 16 bytes;
- the large arrays: Blosc frames, each after its length, or plain bytes if an element is one byte.

Decoding is safe for bytes of any origin: it creates values of these kinds and of the registered
classes, and executes nothing else. It allocates at most 256 times the size of the bytes, which is
the largest ratio that LZ4 can reach.

References
----------
.. [1] Blosc chunk format, https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.arrays import empty
from orograph.tiles.files import Part
from orograph.tiles.format.crc32c import crc32c

FORMAT = 1
"""Version of the encoding of entries, such as those of checkpoint stores."""

SHUFFLE, BITSHUFFLE = 1, 2

# Bytes. Arrays of this size or more are compressed and decompressed in place, without a copy.
LARGE = 2**16
PIECE = 2**30  # bytes; Blosc compresses less than 2 GiB at a time
MOST_RATIO = 256  # largest compression ratio of LZ4

_MAGIC = b"OROC"
_HEAD = struct.Struct("<4sIQ")
_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 16
_BLOSC_HEAD = 16
# Plain data only: an array of Python objects (O) would need pickle.
_DTYPE = re.compile(r"[<>|][biufcSU][0-9]{1,9}")
# exceptions that JSON values of unexpected types may cause
_FAULTS = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    struct.error,
)

_T = TypeVar("_T")
_classes: dict[str, tuple[Any, int]] = {}
_names: dict[type, tuple[str, tuple[str, ...]]] = {}


# -- frames ----------------------------------------------------------------------------------------


def compress(
    array: NDArray[Any], level: int, shuffle: int, block: int = 0, name: str = "lz4"
) -> bytes:
    """Compress a contiguous array to a Blosc frame, shuffled by its item size."""
    frame: bytes = _blosc().compress(array, name.encode(), level, shuffle, block)
    return frame


def decompress(frame: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """Decompress a Blosc frame into a contiguous array.

    Raises
    ------
    ValueError
        If the frame is damaged or does not decode to ``out.nbytes`` bytes.
    """
    check_frame(frame, out.nbytes)
    try:
        _blosc().decompress(frame, out)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def check_frame(frame: NDArray[np.uint8], expected: int) -> None:
    """Raise ValueError if a Blosc frame's header states another size than expected."""
    if frame.size < _BLOSC_HEAD:
        raise ValueError(f"{frame.size} bytes are no Blosc chunk, which has 16 or more")
    # After four bytes of versions and flags: the size decoded, of a block, and of the frame.
    decoded, _, length = struct.unpack_from("<III", frame.data, 4)
    if (decoded, length) != (expected, frame.size):
        raise ValueError(
            f"{frame.size} bytes that call themselves {length} and decode to {decoded}, "
            f"not to {expected}"
        )


def with_checksum(content: Part) -> tuple[Part, bytes]:
    """Return bytes and their crc32c checksum, as two parts to be written."""
    return content, crc32c(content).to_bytes(4, "little")


def without_checksum(content: NDArray[np.uint8], what: str) -> NDArray[np.uint8]:
    """Verify the crc32c checksum at the end of some bytes, and return the bytes before it.

    Raises
    ------
    ValueError
        If it does not match.
    """
    if content.size < 4:
        raise ValueError(f"{what} has {content.size} bytes, fewer than its checksum")
    stored = int.from_bytes(content[-4:].tobytes(), "little")
    computed = crc32c(content[:-4])
    if stored != computed:
        raise ValueError(
            f"stored and computed checksum of {what} do not match: {stored:#010x}, {computed:#010x}"
        )
    return content[:-4]


def _blosc() -> Any:
    """Return the Blosc module, set not to use threads of its own.

    Its own threads share one global state, which serialises calls. zarr-python makes the same
    setting when it is imported.
    """
    from numcodecs import blosc

    blosc.use_threads = False
    return blosc


# -- entries ---------------------------------------------------------------------------------------


@dataclass_transform(frozen_default=True)
def stored(name: str, *, frozen: bool = True) -> Callable[[type[_T]], type[_T]]:
    """Return a decorator that makes a dataclass of a class and registers it for use in entries.

    ``name`` identifies the class in files.
    """

    def make(cls: type[_T]) -> type[_T]:
        made = dataclasses.dataclass(frozen=frozen)(cls)
        register(name, made)
        return made

    return make


def register(name: str, cls: type[Any]) -> None:
    """Register a dataclass or a named tuple for use in entries.

    ``name`` identifies the class in files. Decoding calls the class with its fields.
    """
    fields = getattr(cls, "_fields", None) or tuple(f.name for f in dataclasses.fields(cls))
    known = _classes.setdefault(name, (cls, len(fields)))[0]
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{name!r} stands for {known} already, not for {cls}")
    _names[cls] = name, fields


def encode_entry(entry: object, name: str, *, compressed: bool = True) -> list[Any]:
    """Encode a checkpoint entry; return the parts of its file.

    Without ``compressed`` it takes half the time; either is decoded alike.

    Raises
    ------
    TypeError
        If the entry contains a value of another kind than entries can hold.
    """
    writer = _Writer()
    head = {"format": FORMAT, "name": name, "entry": writer.node(entry)}
    head["small"] = len(writer.small)
    head["large"] = [[array.dtype.str, *array.shape] for array in writer.large]
    text = json.dumps(head, separators=(",", ":")).encode()
    parts = [text, bytes(writer.small)]
    for array in writer.large:
        parts += _pack(array, 5 if compressed else 0)
    # Of all that follows the checksum in the file, beginning with the length of the JSON.
    checksum = crc32c(_LENGTH.pack(len(text)))
    for part in parts:
        checksum = crc32c(part, checksum)
    return [_HEAD.pack(_MAGIC, checksum, len(text)), *parts]


def decode_entry(content: NDArray[np.uint8], name: str) -> Any:
    """Decode a checkpoint entry from its file's bytes; arrays may be views of them.

    Raises
    ------
    ValueError
        If the bytes are damaged, of another format, or encode an entry of another name.
    """
    try:
        return _decode_entry(content, name)
    except _FAULTS as error:
        raise ValueError(f"{name} cannot be read: {error}") from error


def _decode_entry(content: NDArray[np.uint8], name: str) -> Any:
    if content.size < _HEAD.size:
        raise ValueError("it is cut short")
    magic, checksum, length = _HEAD.unpack_from(content.data)
    if magic != _MAGIC:
        raise ValueError("no entry of this format")
    # The first 8 bytes are the four letters and the checksum itself.
    if crc32c(content[8:]) != checksum:
        raise ValueError("its checksum does not match")
    reader = _Reader(content, _HEAD.size)
    head = json.loads(reader.take(length).tobytes())
    if (head["format"], head["name"]) != (FORMAT, name):
        raise ValueError(f"{head['name']} of format {head['format']}, not {name} of {FORMAT}")
    # a copy, so that a small array does not keep the whole file in memory
    reader.small = reader.take(head["small"]).copy()
    reader.large = [reader.unpack(*spec) for spec in head["large"]]
    entry = reader.value(head["entry"])
    if (reader.at, reader.small_at) != (content.size, reader.small.size):
        raise ValueError("there are more bytes than its header states")
    return entry


class _Writer:
    """Encoder of a checkpoint entry as JSON and binary arrays."""

    def __init__(self) -> None:
        self.small = bytearray()
        self.large: list[NDArray[Any]] = []
        self._numbers: dict[int, int] = {}

    def node(self, value: Any) -> Any:
        """Return a value as JSON: a plain value, or a list that begins with its kind."""
        kind = type(value)
        # The kinds: "s" and "a" are a small and a large array, "c" is an instance of a registered
        # class, "i" an integer beyond 64 bits, "f" NaN or an infinity, "l" a list, "t" a tuple,
        # "d" a dict (keys and values alternate), "n" a NumPy scalar.
        if kind is np.ndarray:
            return self._small(value) if value.nbytes < LARGE else self._large(value)
        if kind in _names:
            name, fields = _names[kind]
            return ["c", name, *(self.node(getattr(value, field)) for field in fields)]
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else ["i", hex(value)]
        if kind is float:
            # JSON has neither infinities nor NaN, of which the bits are kept.
            return value if math.isfinite(value) else ["f", struct.pack("<d", value).hex()]
        if kind is list:
            return ["l", *map(self.node, value)]
        if kind is tuple:
            return ["t", *map(self.node, value)]
        if kind is dict:
            return ["d", *(self.node(part) for item in value.items() for part in item)]
        if isinstance(value, np.generic):
            return ["n", *self._small(np.asarray(value))[1:]]
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be stored in an entry")

    def _large(self, array: NDArray[Any]) -> list[Any]:
        _dtype(array.dtype.str)
        # An array that occurs twice is stored once. `large` keeps it alive, so no other array gets
        # its id.
        number = self._numbers.setdefault(id(array), len(self.large))
        if number == len(self.large):
            self.large.append(array)
        return ["a", number]

    def _small(self, array: NDArray[Any]) -> list[Any]:
        _dtype(array.dtype.str)
        self.small += array.tobytes()
        self.small += bytes(-len(self.small) % _ALIGNMENT)
        return ["s", array.dtype.str, *array.shape]


def _pack(array: NDArray[Any], level: int) -> list[Any]:
    """Encode a large array; return its bytes in parts."""
    width = _width(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1).view(f"u{width}")
    if width == 1:  # not compressed: code that stores many bytes packs them better
        return [flat]
    # most are labels and indices: bit-shuffled, they compress as fast as a copy
    step = PIECE // width
    frames = [compress(flat[i : i + step], level, BITSHUFFLE) for i in range(0, flat.size, step)]
    return [part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)]


class _Reader:
    """Decoder of a checkpoint entry from JSON and binary arrays."""

    small: NDArray[np.uint8]
    large: Sequence[NDArray[Any]]

    def __init__(self, content: NDArray[np.uint8], at: int) -> None:
        self._content = content
        self.at = at
        self.small_at = 0

    def take(self, length: int) -> NDArray[np.uint8]:
        """Return the next ``length`` bytes and advance."""
        if not 0 <= length <= self._content.size - self.at:
            raise ValueError(f"{length} bytes at {self.at} of {self._content.size}")
        self.at += length
        return self._content[self.at - length : self.at]

    def unpack(self, name: str, *shape: int) -> NDArray[Any]:
        """Decode the next large array."""
        dtype = _dtype(name)
        size = _size(dtype, shape)
        if _width(dtype) == 1:
            return self.take(size).view(dtype).reshape(shape)
        frames, packed = [], 0
        for begin in range(0, size, PIECE):
            frames.append(self.take(*_LENGTH.unpack(self.take(_LENGTH.size).data)))
            check_frame(frames[-1], min(PIECE, size - begin))
            packed += frames[-1].size
        # Before the memory is allocated: a damaged header may state any shape.
        if size > MOST_RATIO * packed:
            raise ValueError(f"{packed} bytes cannot be {size}")
        array = empty((size,), np.uint8)
        for number, frame in enumerate(frames):
            decompress(frame, array[number * PIECE : (number + 1) * PIECE])
        return array.view(dtype).reshape(shape)

    def value(self, node: Any) -> Any:
        """Decode the value of a JSON node."""
        if not isinstance(node, list):
            if isinstance(node, dict):
                raise ValueError("a JSON object in a structure")
            return node
        kind, *rest = node
        if kind == "s":
            return self._small(*rest)
        if kind == "a":
            (number,) = rest
            return self.large[number]
        if kind == "n":
            return self._small(*rest)[()]
        if kind == "i":
            (digits,) = rest
            return int(digits, 16)
        if kind == "f":
            return struct.unpack("<d", bytes.fromhex(*rest))[0]
        if kind == "c":
            name, *fields = rest
            cls, count = _classes[name]
            if len(fields) != count:
                raise ValueError(f"{len(fields)} fields for {name}, which has {count}")
            return cls(*map(self.value, fields))
        values = [self.value(part) for part in rest]
        if kind == "l":
            return values
        if kind == "t":
            return tuple(values)
        if kind == "d":
            return dict(zip(values[::2], values[1::2], strict=True))
        raise ValueError(f"{kind!r} is not a kind of value")

    def _small(self, name: str, *shape: int) -> NDArray[Any]:
        dtype = _dtype(name)
        at = self.small_at
        self.small_at += _aligned(_size(dtype, shape))
        return np.ndarray(shape, dtype, self.small, at)


@lru_cache(maxsize=256)
def _dtype(name: str) -> np.dtype[Any]:
    """Parse a dtype name such as ``"<f8"``; raise TypeError if it is not plain data."""
    if not _DTYPE.fullmatch(name):
        raise TypeError(f"arrays of {name!r} cannot be stored in an entry")
    return np.dtype(name)


def _width(dtype: np.dtype[Any]) -> int:
    """Return the item size by which an array of this dtype is shuffled."""
    # 1, 2, 4 or 8: arrays are viewed as unsigned integers, several for an element of 16 bytes.
    return math.gcd(dtype.itemsize, 8)


def _size(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """Return the size of an array of a dtype and shape in bytes."""
    if len(shape) > 64:
        raise ValueError(f"{len(shape)} dimensions")
    size = dtype.itemsize
    for n in shape:
        if type(n) is not int or n < 0:
            raise ValueError(f"{n!r} is not a length")
        size *= n
    return size


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
