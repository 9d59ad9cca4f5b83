"""Read lines of numbers from text files in blocks, plain or compressed, with size limits.

Of a file one block is held as text at a time, and the numbers of all that came before it, 8 bytes
each. Decompression stops after the number of lines that the file itself declares, which is refused
beforehand if a graph of so many edges does not fit into memory, and after `MOST_TEXT` characters.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError

PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
MOST_TEXT = 2**36
"""Number of characters of decompressed text after which reading stops."""
BLOCK = 2**22
"""Number of characters of a block."""
LONGEST_LINE = 2**12
"""Greatest number of characters of a line that goes beyond a block."""


class Line(NamedTuple):
    """A line of a file with its number."""

    number: int
    """Number of the line in its file, from 1."""
    text: str


class Block(NamedTuple):
    """Consecutive lines of a file."""

    first: int
    """Number of the block's first line."""
    lines: list[str]


Blocks = Iterator[Block]
Keep = Callable[[str], bool]


def read_blocks(path: Path) -> Blocks:
    """Yield the lines of a text file, plain or compressed, in blocks.

    Raises
    ------
    InputError
        If the file is damaged, is not text, or has a line or a length that no graph has.
    """
    size, first, rest = 0, 1, ""
    try:
        with PACKED.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8") as file:
            while text := file.read(BLOCK):
                size += len(text)
                lines = (rest + text).split("\n")
                # The last line may go on in the next block.
                rest = lines.pop()
                yield Block(first, lines)
                first += len(lines)
                if len(rest) > LONGEST_LINE:
                    raise InputError(
                        f"{path}, line {first}: {rest[:20]!r}... has more than {LONGEST_LINE} "
                        "characters; lines of a graph are shorter: is it another file?"
                    )
                if size > MOST_TEXT:
                    raise InputError(
                        f"{path}: line {first} lies beyond {MOST_TEXT} characters of text, at "
                        "which reading stops; write so large a graph as a Parquet file of edges"
                    )
            yield Block(first, [rest] if rest else [])
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path}: its compressed data end too early or are damaged ({error}); get it again"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not text; is it compressed?") from None


def split_first(blocks: Blocks, keep: Keep) -> tuple[Line | None, Blocks]:
    """Return the first line for which ``keep`` is true, or None, and the blocks after it."""
    for first, lines in blocks:
        for i, text in enumerate(lines):
            if keep(text):
                return Line(first + i, text), chain([Block(first + i + 1, lines[i + 1 :])], blocks)
    return None, iter(())


class Numbers(NamedTuple):
    """Numbers read from lines, one row for each line."""

    table: Array
    """Numbers, a row for each line: int64 if all are whole, else float64."""
    lines: npt.NDArray[np.int64]
    """The number of each line."""


def read_numbers(
    path: Path, blocks: Blocks, keep: Keep, letter: str, columns: Sequence[str], most: int
) -> Numbers:
    """Parse the numbers of all lines for which ``keep`` is true.

    Reading stops once there are more lines than ``most``.

    Raises
    ------
    InputError
        If a line has other numbers than ``columns``, or a whole number that float64 would round
        where others are not whole.
    """
    tables, numbers = [np.empty((0, len(columns)), np.int64)], [np.empty(0, np.int64)]
    rounded: Line | None = None
    for first, lines in blocks:
        where = [i for i, text in enumerate(lines) if keep(text)]
        odd = next((i for i in where if not lines[i].startswith(letter)), None)
        if odd is not None:
            raise InputError(
                f"{path}, line {first + odd}: {lines[odd]!r}; lines begin with 'a', 'c' or 'p'"
            )
        if not where:
            continue
        kept = [Line(first + i, lines[i][len(letter) :]) for i in where]
        table = _numbers_of(path, kept, letter, columns)
        rounded = rounded or _first_rounded(kept, table)
        tables.append(table)
        numbers.append(np.array(where) + first)
        # One line too many is enough for the caller to refuse the file.
        if sum(len(part) for part in numbers) > most:
            break
    if rounded is not None and any(table.dtype.kind == "f" for table in tables):
        raise InputError(
            f"{path}, line {rounded.number}: {rounded.text} would be rounded to float64, since "
            "numbers of the file are not whole or need more than 64 bits; give whole numbers "
            "alone, or numbers up to 2**53"
        )
    return Numbers(np.concatenate(tables), np.concatenate(numbers))


def _numbers_of(path: Path, lines: list[Line], letter: str, columns: Sequence[str]) -> Array:
    """Parse some lines into an array: int64 if all numbers are whole, else float64."""
    texts = [line.text for line in lines]
    # int64 keeps whole numbers exactly; float64 is for lines with a number that is not whole, or is
    # too large.
    for dtype in (np.int64, np.float64):
        try:
            table: Array = np.loadtxt(texts, dtype, comments=None, ndmin=2)
        except (ValueError, OverflowError):
            continue
        if table.shape == (len(lines), len(columns)):
            return table
    # NumPy has refused the lines as a whole. One by one, the first that is wrong can be named.
    for line in lines:
        words = line.text.split()
        if len(words) != len(columns) or not all(map(_is_number, words)):
            raise InputError(
                f"{path}, line {line.number}: {letter + line.text!r}; it must have {len(columns)} "
                f"numbers, {', '.join(columns)}"
                + ("; is the file cut short?" if line is lines[-1] else "")
            )
    raise InputError(
        f"{path}, lines {lines[0].number} to {lines[-1].number}: a number there cannot be read; "
        "write numbers as digits, such as 12 or 1.5e3"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _first_rounded(lines: list[Line], table: Array) -> Line | None:
    """Return the first line with a whole number that float64 cannot represent, or None."""
    for row in np.flatnonzero((table >= 2**53).any(1) | (table <= -(2**53)).any(1)).tolist():
        for word in lines[row].text.split():
            # Python converts no more than 4300 digits
            if word.lstrip("+-").isdigit() and (len(word) > 400 or float(word) != int(word)):
                return Line(lines[row].number, word[:40])
    return None


def is_count(word: str) -> bool:
    """Return whether a word is a whole number of at most 18 digits, 0 to 9."""
    return word.isascii() and word.isdigit() and len(word) <= 18
