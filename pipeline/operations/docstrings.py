"""Entries of docstrings that operations share.

A line of names alone in the docstring of an operation, such as ``connectivity, snap``, stands for
the entries of these names here, ``**options`` for those of the keywords that it shares with others,
in sections of their own. `Operation` puts them into its ``__doc__``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import cleandoc

from orograph.arguments.keywords import Keywords, entries_in

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


def keyword_sections(groups: Iterable[type[Keywords]], options: type) -> dict[str, dict[str, str]]:
    """Return the entries of the keywords in a class of options, by section and by name.

    What the docstring of the class says of a keyword replaces what that of its group says. Of
    several groups that have a keyword the first counts that the class has whole, else the first.
    """
    own, taken = entries_in(options.__doc__ or ""), options.__annotations__.keys()
    groups = list(groups)
    home: dict[str, type[Keywords]] = {}
    for group in (*(one for one in groups if one.defaults().keys() <= taken), *groups):
        for name in group.defaults().keys() & taken:
            home.setdefault(name, group)
    sections: dict[str, dict[str, str]] = {}
    for group in groups:
        entries = entries_in(group.documented.__doc__ or "")
        for name in group.defaults():
            if home.get(name) is group:
                section = sections.setdefault(group.heading, {})
                section[name] = own.get(name) or entries[name]
    return sections


def whole_docstring(doc: str, sections: Mapping[str, Mapping[str, str]]) -> str:
    """Return a docstring with the shared entries in place of their names.

    ``**options`` becomes the entries of ``sections``, except those that the docstring has itself.
    """
    doc = cleandoc(doc)
    own = re.findall(r"^(\w[\w, ]*?)(?: : .*)?\n(?=    )", doc, re.MULTILINE)
    described = {name for names in own for name in names.split(", ")}
    text = ""
    for heading, entries in sections.items():
        more = [entry for name, entry in entries.items() if name not in described]
        if more:
            text += f"\n{heading}\n{'-' * len(heading)}\n" if heading else ""
            text += "".join(more)
    known = {**SHARED, "**options": text}

    def unfold(line: re.Match[str]) -> str:
        names = line[1].split(", ")
        return "".join(known[name] for name in names) if known.keys() >= set(names) else line[0]

    # what a description follows has one of its own
    names = r"^([*\w]+(?:, \w+)*)(?:\n(?! )|\Z)"
    return re.sub(names, unfold, doc, flags=re.MULTILINE)
