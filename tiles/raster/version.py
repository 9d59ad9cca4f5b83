"""Versions of local and remote files, by which changed inputs are detected."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 10.0  # to wait for the answer of a server
UNVERSIONED = "unversioned-"
"""Beginning of a fingerprint that stays the same when the content changes."""

# GDAL's virtual file systems, and the schemes by which fsspec knows them
_SCHEMES = {
    "vsis3": "s3", "vsigs": "gs", "vsiaz": "az", "vsiadls": "abfs", "vsioss": "oss",
    "vsihdfs": "hdfs", "vsiwebhdfs": "webhdfs",
}  # fmt: skip
_ARCHIVE = re.compile(r".*?\.(?:zip|kmz|tar|tgz|gz|7z|rar)(?=/|$)", re.IGNORECASE)
# what file systems of fsspec call a value that changes with the content
_CHANGING = (
    "ETag", "etag", "e_tag", "md5Hash", "md5", "checksum", "generation", "VersionId", "version_id",
    "LastModified", "last_modified", "mtime", "updated", "created",
)  # fmt: skip


def absolute(path: str) -> str:
    """Make a path, URL or GDAL connection string independent of the working directory."""
    if os.path.exists(path):
        return os.path.abspath(path)
    if is_remote(path) or path.startswith("/vsi"):
        return path
    driver, colon, rest = path.partition(":")
    if not (colon and driver.isidentifier()):
        return os.path.abspath(path)
    parts = []
    # A colon before a slash is that of a URL or a Windows drive.
    for part in re.split(r":(?![/\\])", rest):
        file = part.strip('"')
        parts.append(f'"{os.path.abspath(file)}"' if os.path.exists(file) else part)
    return ":".join([driver, *parts])


def is_remote(path: str) -> bool:
    """Return whether a path is a URL or a GDAL path to another computer."""
    return _remote_address(path) is not None


def file_versions(path: str) -> list[tuple[Any, ...]] | None:
    """Return names, sizes and times or ETags of a file, or of all files in a folder.

    Returns
    -------
    list or None
        None if nothing can be known of it that changes with its content.
    """
    address = _remote_address(path)
    if address is None:
        local = _local_file(path)
        return None if local is None else list(_local_versions(local))
    if address.startswith(("http://", "https://")):
        return _http_version(address)
    return _remote_versions(address)


def _remote_address(path: str) -> str | None:
    """Return the URL that a remote path reads from; None if the path is local."""
    found = re.search(r'(?:^|["/{]|[?&]url=)((?!file:)[A-Za-z][A-Za-z0-9+.-]*://[^"}]*)', path)
    if found is not None and not os.path.exists(path):
        address = found[1]
        # Of a chain such as /vsizip//vsicurl/https://host/dem.zip/dem.tif the remote file is the
        # archive.
        archive = _ARCHIVE.match(address) if path.startswith("/vsi") else None
        return archive[0] if archive and not path.startswith("/vsicurl/") else address
    for name, scheme in _SCHEMES.items():
        _, there, key = path.partition(f"/{name}/")
        if there:
            archive = _ARCHIVE.match(key) if not path.startswith(f"/{name}/") else None
            return f"{scheme}://{archive[0] if archive else key}"
    return None


def _local_file(path: str) -> str | None:
    """Return the local file that a path reads, such as the archive of a ``/vsizip/`` path."""
    path = path.removeprefix("file://")
    # Each /vsi name stands before the path that it reads, so chains lose all of them.
    while path.startswith("/vsi"):
        path = path.partition("/vsi")[2].partition("/")[2]
    parts = Path(path)
    for place in (parts, *parts.parents):
        if os.path.isfile(place) or (place == parts and os.path.isdir(place)):
            return str(place)
    return None


def _local_versions(path: str) -> Iterator[tuple[Any, ...]]:
    files = [path] if os.path.isfile(path) else []
    for folder, _, names in os.walk(path):
        files += [os.path.join(folder, name) for name in names]
    for name in sorted(files):
        stat = os.stat(name)
        yield os.path.relpath(name, path), stat.st_size, stat.st_mtime_ns


def _http_version(url: str) -> list[tuple[Any, ...]] | None:
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            stated = [answer.headers.get(name) for name in ("ETag", "Last-Modified")]
            length = answer.headers.get("Content-Length")
    except (OSError, ValueError):
        return None
    return [("", length, *stated)] if any(stated) else None


def _remote_versions(url: str) -> list[tuple[Any, ...]] | None:
    """Return the versions of a remote file or folder, using fsspec; None if unknown."""
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(url)
        # fsspec caches listings, which would hide a change.
        system.invalidate_cache()
        objects = {root: system.info(root)}
        if objects[root].get("type") == "directory":
            objects = system.find(root, detail=True)
    except Exception:  # each file system raises exceptions of its own
        return None
    versions = []
    for name in sorted(objects):
        stated = [str(objects[name][key]) for key in _CHANGING if objects[name].get(key)]
        if not stated:
            return None
        versions.append((name.removeprefix(root), objects[name].get("size"), *stated))
    return versions or None
