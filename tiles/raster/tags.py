"""Attributes of rasters as tags of a file: as text, lists and numbers as JSON.

rioxarray reads them, and writes those of a DataArray. The name of a variable is in the tag of GDAL.
"""

from __future__ import annotations

import ast
import colorsys
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from orograph.tiles.format.json_object import jsonable

NAME = "NETCDF_VARNAME"
STORAGE_ATTRIBUTES = {
    "_FillValue",
    "missing_value",
    "grid_mapping",
    "scale_factor",
    "add_offset",
    "coordinates",
}
"""Attributes that say how cells are stored, not what they mean."""
_OF_FILE = STORAGE_ATTRIBUTES | {"AREA_OR_POINT", "Conventions"}
"""Attributes that say how a file or a store is laid out."""
_OF_BAND = {"long_name", "units"}
"""Names of attributes that a band of a file has a place for."""
_OF_GDAL = ("NETCDF_", "STATISTICS_", "TIFFTAG_", "OVR_")


def tags_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as tags."""
    return {
        str(key): _text(jsonable(value))
        for key, value in attributes.items()
        if key not in _OF_FILE | _OF_BAND
    }


def attributes_of(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes that tags hold, without what belongs to GDAL."""
    return {
        key: parse_tag(text)
        for key, text in tags.items()
        if key not in _OF_FILE and not key.startswith(_OF_GDAL) and "#" not in key
    }


def parse_tag(text: Any) -> Any:
    """Return a number or a list that a text states, else the text; other values unchanged."""
    if not isinstance(text, str):
        return text
    for parse in (json.loads, ast.literal_eval):  # rioxarray writes lists as Python does
        try:
            value = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value if isinstance(value, int | float | str | list) else text
    return text


def _text(value: Any) -> str:
    """Return the text of a tag: text as it is, unless it would be read as something else."""
    if isinstance(value, str) and parse_tag(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def colour_table(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> dict[int, Any] | None:
    """Return a colour for each class of a raster by its ``flag_values``; None without classes.

    Only cells of uint8 can have such a table. Other values are black.
    """
    values = np.ravel(parse_tag(attributes.get("flag_values", ())))
    if dtype != np.uint8 or not values.size or values.dtype.kind not in "iu":
        return None
    table = dict.fromkeys(range(256), (0, 0, 0, 255))
    for number, value in enumerate(values.tolist()):
        red, green, blue = colorsys.hsv_to_rgb(number / values.size, 0.6, 0.9)
        table[value] = (round(255 * red), round(255 * green), round(255 * blue), 255)
    # A class beyond 0 to 255 has made the table longer.
    return table if len(table) == 256 else None
