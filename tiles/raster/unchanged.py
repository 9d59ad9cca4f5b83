"""Check that inputs have not been replaced while they were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from orograph.tiles.errors import OrographError, RunError
from orograph.tiles.raster.raster import ArrayRaster, LazyRaster, Raster, StoreRaster


class Version(NamedTuple):
    """An input and its fingerprint at one time."""

    name: str
    fingerprint: str


def version_of(raster: Raster) -> Version | None:
    """Return the version of a raster; None if only reading all its cells would tell."""
    if isinstance(raster, ArrayRaster) or (isinstance(raster, LazyRaster) and not raster.source):
        return None
    if isinstance(raster, StoreRaster):  # its metadata may be others now
        raster = StoreRaster(raster.storage, raster.variable)
    return Version(repr(raster), raster.fingerprint())


def refuse_changed(
    before: Iterable[Version | None],
    after: Iterable[Version | None],
    cause: Exception | None = None,
) -> None:
    """Raise RunError if an input has another version than before, perhaps the ``cause`` of it.

    Raises
    ------
    RunError
        It names the first of them.
    """
    for old, new in zip(before, after, strict=True):
        if old != new and new is not None:
            raise RunError(
                f"the input {new.name} has changed while it was read, so that a result would be "
                "of neither version; nothing was published: do it again when the input is whole"
            ) from cause


@contextmanager
def suppress_unreadable() -> Iterator[None]:
    """Suppress errors of an input that cannot be read any more: the first error names it."""
    try:
        yield
    except RunError:
        raise
    except (OSError, OrographError):
        pass


@contextmanager
def unchanged(raster: Raster) -> Iterator[None]:
    """Raise RunError at the end, or in place of another error, if a raster has been replaced."""
    before = version_of(raster)
    try:
        yield
    except Exception as error:
        with suppress_unreadable():
            refuse_changed([before], [version_of(raster)], error)
        raise
    refuse_changed([before], [version_of(raster)])
