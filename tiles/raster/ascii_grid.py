"""Options by which GDAL reads ASCII grids exactly, and a check for malformed ones."""

from __future__ import annotations

import math
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np

from orograph.tiles.errors import InputError

# Nodata value of the ASCII grids of GRASS that declare none ("null:" is optional there).
GRASS_NODATA = -9999
ASCII = ("AAIGrid", "GRASSASCIIGrid")


# what Python does to suppress warnings holds for all threads
_QUIET = threading.Lock()


def open_quietly(path: str, options: dict[str, Any]) -> Any:
    """Open a dataset with rasterio, suppressing the warning about a missing georeference.

    Newer versions of GDAL refuse faulty ASCII grids; what `check_ascii_grid` says comes first.
    """
    import warnings

    import rasterio
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError

    with _QUIET, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        try:
            return rasterio.open(path, **options)
        except RasterioIOError:
            if _looks_ascii(path):
                check_ascii_grid(path)
            raise


def open_options(path: str) -> dict[str, Any]:
    """Return the GDAL options that read a file without loss of precision.

    GDAL reads the whole numbers of an ASCII grid as int32, and larger ones wrap around silently.
    It reads all other numbers as float32, and cuts digits off after the seventh. If the text has
    such numbers, the options request float64.
    """
    if not _looks_ascii(path):
        return {}
    with open_quietly(path, {}) as dataset:
        if dataset.driver not in ASCII:
            return {}
        long = _LONG_INTEGER if dataset.dtypes[0].startswith("int") else _LONG_DECIMAL
    return {"DATATYPE": "Float64"} if _has_numbers(path, long) else {}


def _looks_ascii(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(64).lstrip().lower()
    except OSError:
        return False  # a virtual path of GDAL
    return head.startswith(
        (
            b"ncols",
            b"nrows",
            b"north",
            b"south",
            b"east",
            b"west",
            b"rows",
            b"cols",
            b"proj",
            b"zone",
        )
    )


_LONG_INTEGER = re.compile(rb"[0-9]{10}")
# Eight significant digits: eight before the decimal point, or a last decimal other than zero.
_LONG_DECIMAL = re.compile(rb"[1-9][0-9]{7}|[1-9][0-9.]{7,}[1-9]")
_HEADER_LINE = re.compile(rb"\s*[A-Za-z]")
_LONGEST_NUMBER = 64


def _has_numbers(path: str, pattern: re.Pattern[bytes]) -> bool:
    """Return whether ``pattern`` occurs below the header of an ASCII grid."""
    with Path(path).open("rb") as file:
        text = file.readline()
        while _HEADER_LINE.match(text):
            text = file.readline()
        while not pattern.search(text):
            more = file.read(2**20)
            if not more:
                return False
            # The end of a part is searched again, since it may cut a number in two.
            text = text[-_LONGEST_NUMBER:] + more
        return True


# Keys of a header: of ESRI in the first line, of GRASS in the second.
_KEY = re.compile(
    rb"\s*(ncols|nrows|[xy]llcorner|[xy]llcenter|cellsize|dx|dy|nodata_value|nodata"
    rb"|north|south|east|west|rows|cols|null|type|multiplier|proj|zone)\b\s*:?\s*(\S+)",
    re.IGNORECASE,
)
_WORDS = {"type", "proj", "zone"}
_POSITIVE = {"ncols", "nrows", "rows", "cols", "cellsize", "dx", "dy"}
# Numbers as GDAL parses them; it reads any other word as 0.
_NUMBER = (
    rb"(?:[-+]?+(?:[0-9]++[.,]?+[0-9]*+|[.,][0-9]++)(?:[eE][-+]?+[0-9]++)?+"
    rb"|[-+]?+(?i:nan|inf|infinity|1\.#(?:qnan|snan|ind|inf))|null)(?!\S)"
)
# Possessive quantifiers: text that does not match is not tried again in other ways, which would
# take very long in a large file.
_ONE_NUMBER = re.compile(_NUMBER)
_NUMBERS = re.compile(rb"(?:\s*+" + _NUMBER + rb")*+\s*+")
_SPACES = np.isin(np.arange(256), list(b" \t\n\v\f\r"))
_READ, _LONGEST_WORD = 2**20, 1024


def check_ascii_grid(path: str, shape: tuple[int, int] | None = None) -> None:
    """Raise InputError if an ASCII grid has non-numbers, or a wrong number of cells.

    GDAL reads a word that is not a number as 0, ignores cells beyond the declared rows, and takes a
    negative cell size as rows that go north.

    Parameters
    ----------
    path : str
        The file.
    shape : (int, int), optional
        Rows and columns that GDAL has read from the header; by default as the header says. Without
        any nothing is checked.

    Raises
    ------
    InputError
        The message names the line.
    """
    with Path(path).open("rb") as file:
        text = file.read(_READ)
        start, bounds = 0, {}
        while found := _KEY.match(text, start):
            name, value = found[1].decode().lower(), found[2]
            line = 1 + text[: found.start(2)].count(b"\n")
            if name not in _WORDS:
                bounds[name] = _header_number(f"{path}: line {line}", name, value)
            start = found.end()
        for low, high in (("south", "north"), ("west", "east")):
            if bounds.get(low, -math.inf) >= bounds.get(high, math.inf):
                raise InputError(
                    f"{path}: {high} is {bounds[high]:g} and {low} {bounds[low]:g}; the edges of "
                    f"a grid need {high} beyond {low}: mend the header"
                )
        if shape is None:
            sides = [{"nrows", "rows"} & bounds.keys(), {"ncols", "cols"} & bounds.keys()]
            if not all(sides):
                return
            shape = (int(bounds[sides[0].pop()]), int(bounds[sides[1].pop()]))
        rows, columns = shape
        line, count = 1 + text[:start].count(b"\n"), 0
        text = text[start:]
        while text:
            more = file.read(_READ)
            # a number may continue in the next part of the file
            cut = len(text)
            while more and cut and cut > len(text) - _LONGEST_WORD and not _SPACES[text[cut - 1]]:
                cut -= 1
            whole, text = text[:cut], text[cut:] + more
            good = _NUMBERS.match(whole)
            assert good is not None
            if good.end() < len(whole):
                word = whole[good.end() :].split(None, 1)[0][:40].decode("latin-1")
                at = line + whole[: good.end()].count(b"\n")
                raise InputError(
                    f"{path}: line {at}: {word!r} is not a number, and would be read as 0; mend "
                    "the file, with its NODATA_value (GRASS: null) where the height is unknown"
                )
            blank = _SPACES[np.frombuffer(whole, np.uint8)]
            # A number begins after a blank, and at the start of a part, which was cut at a blank.
            begins = ~blank & np.concatenate([[True], blank[:-1]])
            if count + int(begins.sum()) > rows * columns:
                extra = np.flatnonzero(begins)[rows * columns - count]
                at = line + whole[:extra].count(b"\n")
                raise InputError(
                    f"{path}: line {at}: more numbers than the {rows} x {columns} cells that the "
                    "header declares; mend its rows and columns, or the lines"
                )
            count += int(begins.sum())
            line += whole.count(b"\n")
    if count < rows * columns:
        raise InputError(
            f"{path}: line {line}: the file ends after {count} numbers, and its header declares "
            f"{rows} x {columns} cells; mend its rows and columns, or restore it from a copy"
        )


def _header_number(where: str, name: str, value: bytes) -> float:
    """Return the value of a header entry as a number."""
    text = value.decode("latin-1")
    if not _ONE_NUMBER.fullmatch(value):
        raise InputError(f"{where}: {name} is {text!r}, no number; mend the header")
    if value == b"null":
        return math.nan
    number = float(text.replace(",", ".")) if "#" not in text else math.nan
    if name in _POSITIVE and not 0 < number < math.inf:
        raise InputError(f"{where}: {name} is {text}; it must be above 0: mend the header")
    return number
