"""Entries: what goes in comes out, to the bit; what somebody else wrote runs nothing."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from contextlib import suppress
from typing import Any, NamedTuple

import google_crc32c
import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numcodecs import blosc
from traps import PICKLE, PICKLED_ENTRY

from orograph.index.format import decode_record, encode_record
from orograph.tiles.format.codec import LARGE, decode_entry, encode_entry, register, stored


@stored("test-pair")
class Pair:
    first: Any
    second: Any = None


class Point(NamedTuple):
    x: float
    y: Any


register("test-point", Point)


class Unknown:
    pass


def written(entry: Any, name: str = "kind-0/0") -> bytearray:
    return bytearray().join(encode_entry(entry, name))


def read(content: bytes | bytearray, name: str = "kind-0/0") -> Any:
    return decode_entry(np.frombuffer(bytearray(content), np.uint8), name)


def sealed(content: bytearray) -> bytearray:
    """The same with a checksum that is right."""
    content[4:8] = google_crc32c.value(bytes(content[8:])).to_bytes(4, "little")
    return content


def forged(rest: bytes = b"", **head: Any) -> bytearray:
    """A file with any head, whose checksum is right."""
    whole = {"format": 1, "name": "kind-0/0", "entry": None, "small": 0, "large": [], **head}
    text = json.dumps(whole).encode()
    return sealed(bytearray(struct.pack("<4sIQ", b"OROC", 0, len(text)) + text + rest))


def assert_same(one: Any, other: Any) -> None:
    """Equal in kind and in every bit."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray | np.generic):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, float):
        assert struct.pack("<d", one) == struct.pack("<d", other)
    elif isinstance(one, dict):
        assert len(one) == len(other)
        for mine, theirs in zip(one.items(), other.items(), strict=True):
            assert_same(mine, theirs)
    elif isinstance(one, list | tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    elif isinstance(one, Pair):
        assert_same((one.first, one.second), (other.first, other.second))
    else:
        assert one == other


DTYPES = st.one_of(
    arrays_of.boolean_dtypes(),
    arrays_of.integer_dtypes(endianness="?"),
    arrays_of.unsigned_integer_dtypes(endianness="?"),
    arrays_of.floating_dtypes(endianness="?"),
    arrays_of.complex_number_dtypes(endianness="?"),
    arrays_of.byte_string_dtypes(),
    arrays_of.unicode_string_dtypes(),
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0))
)
SCALARS = DTYPES.flatmap(arrays_of.from_dtype)
KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.tuples(st.integers(), st.integers())
)
PLAIN = st.one_of(KEYS, st.floats(), st.integers(-(2**9000), 2**9000), SCALARS, ARRAYS)
STRUCTURES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.builds(Pair, inner, inner),
        st.builds(Point, inner, inner),
    ),
    max_leaves=12,
)


@given(STRUCTURES)
@example(struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0])
@example([-0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1])
@example([2**63, -(2**63), -(2**63) - 1, True, 1, 1.0])
@example(["", "\ud800", "\0", "l"])
@example({(0, 1): [None, np.arange(3)], (1, 0): []})
def test_structures_come_back_to_the_bit(entry: Any) -> None:
    assert_same(entry, read(written(entry)))


@pytest.mark.parametrize(
    "dtype", ["?", "u1", "<i2", ">i4", "f4", "<f8", "c8", "c16", "S3", "S6", "U5", "longdouble"]
)
@pytest.mark.parametrize("piece", [2**16, 2**30], ids=["many pieces", "one piece"])
def test_large_arrays_come_back_to_the_bit(
    dtype: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orograph.tiles.format.codec.PIECE", piece)
    rng = np.random.default_rng(3)
    plain = rng.integers(0, 9, (300, 401)).astype(dtype)
    entry = [plain, plain.T, plain[::2, 1:], plain[:0], plain]
    found = read(written(entry))
    assert_same(entry, found)
    assert found[0] is found[4]
    assert found[0].flags.writeable
    assert found[0].flags.aligned


def test_arrays_can_be_changed_and_do_not_share_cells() -> None:
    first, second = read(written([np.zeros(3), np.zeros(3)]))
    first[:] = 1
    assert second.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "entry",
    [
        *(Unknown(), [1, {"a": Unknown()}], b"bytes", {1}, 1j, Unknown, np.datetime64(0, "s")),
        *(np.array([None]), np.zeros(LARGE, object), np.zeros(1, "i4,f4")),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_what_cannot_be_stored_is_refused_when_it_is_written(entry: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        encode_entry(entry, "kind-0/0")


def test_a_name_stands_for_one_class() -> None:
    with pytest.raises(ValueError, match="test-pair"):
        stored("test-pair")(type("Unknown", (), {}))


ENTRY = {"a": [1, (2.5, None)], "b": np.arange(5), "c": Pair(np.int32(3), np.arange(20_000.0))}


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    whole = written(ENTRY)
    places = {*range(120), *range(120, len(whole), 61), len(whole) - 1}
    for place in places:
        flipped = whole.copy()
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match="cannot be read"):
            read(flipped)
        with pytest.raises(ValueError, match="cannot be read"):
            read(whole[:place])
    with pytest.raises(ValueError, match="cannot be read"):
        read(whole + b"\0")


def test_an_entry_of_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="residue-1/4"):
        read(written(ENTRY, "residue-1/4"), "residue-1/5")


@pytest.mark.parametrize("content", [PICKLE, PICKLED_ENTRY], ids=["a pickle", "the first format"])
def test_a_pickle_is_not_run(content: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read(content)
    magic = bytearray(struct.pack("<4sIQ", b"OROC", 0, len(content)) + content)
    with pytest.raises(ValueError, match="cannot be read"):
        read(sealed(magic))
    with pytest.raises(ValueError, match="checksum"):
        decode_record(content, 4, np.dtype("f8"))


FRAME = blosc.compress(np.zeros(2**17, np.uint64), b"lz4", 5, blosc.BITSHUFFLE, 0)
ONE = struct.pack("<Q", len(FRAME)) + FRAME
FORGED = {
    "another format": forged(format=2),
    "no name": forged(name=None),
    "no JSON": sealed(bytearray(struct.pack("<4sIQ", b"OROC", 0, 3) + b"{]}")),
    "JSON that is no object": sealed(bytearray(struct.pack("<4sIQ", b"OROC", 0, 2) + b"[]")),
    "a head beyond the file": sealed(bytearray(struct.pack("<4sIQ", b"OROC", 0, 2**62) + b"{}")),
    "an object in the structure": forged(entry={"a": 1}),
    "an empty node": forged(entry=[]),
    "an unknown kind": forged(entry=["x", 1]),
    "a kind that is a list": forged(entry=[["l"], 1]),
    "an unknown class": forged(entry=["c", "os.system", "true"]),
    "a class that is a list": forged(entry=["c", [], 1]),
    "too few fields": forged(entry=["c", "test-pair", 1]),
    "too many fields": forged(entry=["c", "test-pair", 1, 2, 3]),
    "a list as a key": forged(entry=["d", ["l"], 1]),
    "a key without a value": forged(entry=["d", 1]),
    "no integer": forged(entry=["i", "z"]),
    "an integer in decimal": forged(entry=["i", 5]),
    "a short float": forged(entry=["f", "00"]),
    "objects": forged(bytes(16), entry=["s", "|O", 1], small=16),
    "records": forged(bytes(16), entry=["s", "i4,f4", 1], small=16),
    "a dtype that is none": forged(bytes(16), entry=["s", "<f3", 1], small=16),
    "a negative shape": forged(bytes(16), entry=["s", "<f8", -2, -1], small=16),
    "a shape of floats": forged(bytes(16), entry=["s", "<f8", 1.0], small=16),
    "many dimensions": forged(bytes(16), entry=["s", "<f8", *[2] * 10**5], small=16),
    "more small cells than there are": forged(bytes(16), entry=["s", "<f8", 2**40], small=16),
    "small bytes beyond the file": forged(bytes(16), entry=["s", "<f8", 1], small=2**50),
    "negative small bytes": forged(bytes(16), small=-16),
    "small bytes of nobody": forged(bytes(16), small=16),
    "bytes of nobody": forged(bytes(16)),
    "an array that is not there": forged(entry=["a", 0]),
    "the same, counted from the end": forged(entry=["a", -1]),
    "bytes beyond the file": forged(bytes(9), large=[["|u1", 2**50]]),
    "a frame beyond the file": forged(struct.pack("<Q", 2**50), large=[["<f8", 2**20]]),
    "a frame of nothing": forged(struct.pack("<Q", 0), large=[["<f8", 2**20]]),
    "a frame of another size": forged(ONE, large=[["<f8", 2**20]]),
    "a frame cut short": forged(struct.pack("<Q", 99) + FRAME[:99], large=[["<f8", 2**17]]),
    "frames that say they are large": forged(
        (struct.pack("<Q4sIII", 16, b"\2\1\x24\x08", 2**30, 2**20, 16)) * 64,
        large=[["<f8", 2**33]],
    ),
    "elements of no size": forged(large=[["<U0", 2**40]]),
    "lists in lists": sealed(bytearray(struct.pack("<4sIQ", b"OROC", 0, 10**6) + b"[" * 10**6)),
}


def test_a_forged_file_can_be_right() -> None:
    """Or what follows would show nothing."""
    entry = forged(bytes(16) + ONE, entry=["t", ["s", "<f8", 2], ["a", 0]], small=16)
    with pytest.raises(ValueError, match="cannot be read"):
        read(entry)
    entry = forged(
        bytes(16) + ONE, entry=["t", ["s", "<f8", 2], ["a", 0]], small=16, large=[["<f8", 2**17]]
    )
    assert_same(read(entry), (np.zeros(2), np.zeros(2**17)))


@pytest.mark.parametrize("what", FORGED)
def test_what_is_forged_is_refused_and_takes_no_memory(what: str) -> None:
    content = np.frombuffer(FORGED[what], np.uint8)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="cannot be read"):
            decode_entry(content, "kind-0/0")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2**20 + 64 * content.size


@given(st.data())
def test_whatever_is_changed_under_a_right_checksum_is_read_or_refused(data: st.DataObject) -> None:
    content = written(ENTRY)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.one_of(st.integers(0, 400), st.integers(0, len(content) - 1)))
        content[min(place, len(content) - 1)] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(16, len(content))) :]
    with suppress(ValueError):
        read(sealed(content))


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "of another length"])
def test_a_damaged_block_of_an_index_is_refused(damage: str) -> None:
    record = np.arange(5000.0)
    content = encode_record(record)
    assert_same(decode_record(content, 5000, record.dtype), record)
    middle = len(content) // 2
    changed = {
        "flipped": content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :],
        "cut": content[:middle],
        "empty": b"",
        "of another length": encode_record(record[:-1]),
    }
    with pytest.raises(ValueError, match=r"checksum|decode to"):
        decode_record(changed[damage], 5000, record.dtype)
