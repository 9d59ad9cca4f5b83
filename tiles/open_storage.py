"""Open the storage at an address: a path, or a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orograph.tiles.arguments import absolute_path, check_path, shown
from orograph.tiles.errors import InputError
from orograph.tiles.local_storage import LocalStorage, local_path
from orograph.tiles.object_storage import ObjectStorage
from orograph.tiles.storage import Location, Storage


def _from_file_url(url: str) -> LocalStorage:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise InputError(f"{url}: it names no file of this computer; write file:///folder/name")
    return LocalStorage(unquote(parts.path))


OBJECT_SCHEMES = ("s3", "gs", "az", "memory")
SCHEMES: dict[str, Callable[[str], Storage]] = {
    "file": _from_file_url,
    **dict.fromkeys(OBJECT_SCHEMES, ObjectStorage),
}
"""Function that opens URLs, by their scheme."""


def open_storage(place: Location, argument: str = "path") -> Storage:
    """Return the storage at a path or URL.

    ``argument`` is the name of what the user has given, for messages.

    Raises
    ------
    InputError
        If it is none of them, or the scheme of the URL is not supported.
    """
    if not isinstance(place, str | os.PathLike):
        if not hasattr(place, "zarr_store"):
            raise InputError(
                f"{argument}: {shown(place)} is not an address of a store; give a path or a URL"
            )
        return place
    address = check_path(argument, place)
    scheme = re.match("([A-Za-z][A-Za-z0-9+.-]*)://", address)
    if scheme is None:
        return LocalStorage(absolute_path(argument, address))
    if scheme[1].lower() not in SCHEMES:
        raise InputError(
            f"{argument}: {address}: {scheme[1]}:// stores are not supported; give a path on a "
            f"file system, or an address of {', '.join(f'{one}://' for one in OBJECT_SCHEMES)} "
            "(rasters at other addresses can be read where rasterio or xarray can)"
        )
    return SCHEMES[scheme[1].lower()](address)


def is_object_address(path: str) -> bool:
    """Return whether a path is the URL of an object store."""
    return path.partition("://")[0].lower() in OBJECT_SCHEMES and "://" in path


def file_path(argument: str, value: object) -> Path:
    """Return the path of a file to write, given as a path or a ``file://`` URL.

    Raises
    ------
    InputError
        If it is the address of an object store, where only stores are written.
    """
    text = check_path(argument, value)
    return local_path(open_storage(text, argument), argument) if "://" in text else Path(text)
