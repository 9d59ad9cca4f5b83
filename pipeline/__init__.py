"""Exact graph algorithms on elevation grids of any size.

>>> import orograph as og

Public names, which ``__init__.pyi`` lists, are imported when they are first used; xarray at once,
to which an accessor is added: ``raster.orograph.cost_distance(sources)``.
"""

from __future__ import annotations

import lazy_loader

import orograph.accessor
import orograph.run.cluster.forked  # noqa: F401  (both register what they hold)
from orograph._version import __version__  # noqa: F401

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a public name; raise AttributeError with the closest name if there is none."""
    if name in __all__:
        return _import_name(name)
    from orograph.tiles.arguments import closest

    near = closest(name, __all__)
    hint = f"; did you mean {near!r}?" if near else ""
    text = f"module {__name__!r} has no attribute {name!r}{hint}"
    raise AttributeError(text, name=name)
