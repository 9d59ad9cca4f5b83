"""Detect inputs that are replaced while they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from orograph.tiles.errors import OrographError, RunError
from orograph.tiles.raster.raster import ArrayRaster, LazyRaster, Raster, StoreRaster


class Version(NamedTuple):
    """An input and its fingerprint at some time."""

    name: str
    fingerprint: str
    states: str = ""
    """States of a store's objects, taken before the fingerprint."""


def version_of(raster: Raster, known: Version | None = None) -> Version | None:
    """Return a raster's version; None if that would require reading all cells.

    An earlier version that is ``known`` is returned if all objects of its store are the same: a
    fingerprint takes reading some bytes of each tile.
    """
    if isinstance(raster, ArrayRaster) or (isinstance(raster, LazyRaster) and not raster.source):
        return None
    if isinstance(raster, StoreRaster):
        objects = list(raster.storage.objects())
        # The store has been replaced since it was opened: take the version of the new one.
        if not raster.is_as_opened(objects):
            raster = raster.again()
            objects = list(raster.storage.objects())
        states = raster.states(objects)
        if known is not None and known.states == states:
            return known
        return Version(repr(raster), raster.fingerprint(objects), states)
    return Version(repr(raster), raster.fingerprint())


def refuse_changed(
    before: Iterable[Version | None],
    after: Iterable[Version | None],
    cause: Exception | None = None,
) -> None:
    """Raise RunError if any input's version has changed.

    Raises
    ------
    RunError
        It names the first of them.
    """
    for old, new in zip(before, after, strict=True):
        # Without the states, which differ for a copy of the same content.
        if new is not None and (old is None or old[:2] != new[:2]):
            raise RunError(
                f"the input {new.name} has changed while it was read, so that a result would be "
                "of neither version; nothing was published: do it again when the input is whole"
            ) from cause


@contextmanager
def suppress_unreadable() -> Iterator[None]:
    """Suppress errors of reading an input within this context, except RunError."""
    try:
        yield
    except RunError:
        raise
    except (OSError, OrographError):
        pass


@contextmanager
def unchanged(raster: Raster) -> Iterator[None]:
    """Raise RunError if a raster is replaced within this context."""
    before = version_of(raster)
    try:
        yield
    except Exception as error:
        with suppress_unreadable():
            refuse_changed([before], [version_of(raster, before)], error)
        raise
    refuse_changed([before], [version_of(raster, before)])
