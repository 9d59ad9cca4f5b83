"""Entries of docstrings that operations share.

A line of names alone in the docstring of an operation, such as ``connectivity, snap``, stands for
the entries of these names here, ``**options`` for those of the run's options. `Operation` puts them
into its ``__doc__``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import cleandoc

from orograph.execution.options import entries_in

SHARED = entries_in(
    """
    elevation : raster
        Heights, shape (y, x), of any real dtype; as for `minimum_spanning_forest`.
    connectivity : {8, 4}
        8 or 4 neighbours.
    snap : bool, int or str
        Move points on nodata to the nearest cell with a height: True within 10 cells, or within a
        number of cells, or within a length such as ``"300 m"``. The attribute ``snap_distances``
        tells how far, in metres.
    direction : raster
        Flow directions, as for `flow_accumulation`.
    codes : {"taudem", "esri", "grass", "ldd"}, optional
        As for `flow_accumulation`.
    cell_size : float or (float, float), optional
        Side of a cell, or its (y, x) sides, in place of those given by the coordinates.
    InputError
        If an argument is invalid.
    StoreExistsError
        If ``out`` exists and ``overwrite`` is False, or another writer is working on it.
    BackendError
        If the backend is not available on this machine.
    """
)


def whole_docstring(doc: str, options: Iterable[str]) -> str:
    """Return a docstring with the shared entries, and those of options, in place of their names."""
    entries = {**SHARED, "**options": "".join(options)}

    def unfold(line: re.Match[str]) -> str:
        names = line[1].split(", ")
        return "".join(entries[name] for name in names) if entries.keys() >= set(names) else line[0]

    # what a description follows has one of its own
    names = r"^([*\w]+(?:, \w+)*)(?:\n(?! )|\Z)"
    return re.sub(names, unfold, cleandoc(doc), flags=re.MULTILINE)
