"""Exact graph algorithms on elevation grids of any size.

>>> import orograph as og

Public names, which ``__init__.pyi`` lists, are imported when they are first used; xarray at once,
to which an accessor is added: ``raster.orograph.cost_distance(sources)``.
"""

from __future__ import annotations

import lazy_loader

import orograph.accessor
import orograph.execution.forked  # noqa: F401  (both register what they hold)
from orograph._version import __version__  # noqa: F401

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
