"""Opening files with GDAL so that ASCII grids keep every digit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# Unknown height in the ASCII grids of GRASS that say nothing of it ("null:" is optional there).
GRASS_NODATA = -9999
_ASCII = ("AAIGrid", "GRASSASCIIGrid")


def open_quietly(path: str, options: dict[str, Any]) -> Any:
    """Open with rasterio, without its warning that a raster has no place on the map."""
    import warnings

    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        return rasterio.open(path, **options)


def open_options(path: str) -> dict[str, Any]:
    """Options with which GDAL reads the file as it is.

    GDAL reads the whole numbers of an ASCII grid as int32, where larger ones wrap around without
    a word, and all others as float32, where more than 7 digits are cut off. Where the text has
    such numbers, ask for float64.
    """
    if not _looks_ascii(path):
        return {}
    with open_quietly(path, {}) as dataset:
        if dataset.driver not in _ASCII:
            return {}
        long = _LONG_INTEGER if dataset.dtypes[0].startswith("int") else _LONG_DECIMAL
    return {"DATATYPE": "Float64"} if _has_numbers(path, long) else {}


def _looks_ascii(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(64).lstrip().lower()
    except OSError:
        return False  # not a plain file: a virtual path of GDAL
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
# Eight significant digits: eight before the point, or the last behind it not a zero.
_LONG_DECIMAL = re.compile(rb"[1-9][0-9]{7}|[1-9][0-9.]{7,}[1-9]")
_HEADER_LINE = re.compile(rb"\s*[A-Za-z]")
_LONGEST_NUMBER = 64


def _has_numbers(path: str, pattern: re.Pattern[bytes]) -> bool:
    """Whether ``pattern`` is found below the header of an ASCII grid."""
    with Path(path).open("rb") as file:
        text = file.readline()
        while _HEADER_LINE.match(text):
            text = file.readline()
        while not pattern.search(text):
            more = file.read(2**20)
            if not more:
                return False
            text = text[-_LONGEST_NUMBER:] + more
        return True
