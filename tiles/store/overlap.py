"""Inputs are never written: refusing an output that would lie in an input, or around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orograph.tiles.errors import InputError
from orograph.tiles.raster.raster import FileRaster, Raster, StoreRaster


def refuse_overlap(raster: Raster, target: str | os.PathLike[str], source: Any = None) -> None:
    """Refuse a target that lies in a file or folder that a raster is read from, or around it.

    Parameters
    ----------
    raster
        The input.
    target
        What would be written.
    source
        What the raster was opened from, where that says more.

    Raises
    ------
    InputError
        If they overlap.
    """
    for path in _files_of(raster, source):
        if not path.exists():
            continue
        one, other = os.path.realpath(path), os.path.realpath(target)
        if os.path.commonpath([one, other]) in (one, other):
            raise InputError(
                f"{target}: the source {path} lies there or around it, and sources are never "
                "written; choose a path outside of it"
            )


def _files_of(raster: Raster, source: Any) -> Iterator[Path]:
    """Files and folders that the source is known to be read from."""
    if isinstance(source, str | os.PathLike):
        yield Path(source)
    stated = getattr(source, "encoding", {}).get("source")
    if isinstance(stated, str):
        yield Path(stated)
    if isinstance(raster, StoreRaster):
        yield Path(raster.path)
    if isinstance(raster, FileRaster):
        yield from (Path(name) for name in raster.files)
