"""Exact graph algorithms on elevation grids of any size.

>>> import orograph as og

Public names are imported when they are first used, so ``import orograph`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("orograph")

if TYPE_CHECKING:
    from orograph.apsp import all_pairs
    from orograph.clusters import cluster
    from orograph.components import connected_components
    from orograph.distance import cost_distance
    from orograph.forest import minimum_spanning_forest
    from orograph.hops import hop_distance
    from orograph.index import DistanceIndex
    from orograph.paths import LeastCostPath, corridor, least_cost_path, path_mask
    from orograph.planning import Plan, plan
    from orograph.reach import Reach, st_connected
    from orograph.run import Progress, Run
    from orograph.settings import config
    from orograph.tiles.dataset import open_dataset as open
    from orograph.tiles.errors import (
        BackendError,
        Cancelled,
        DamagedChunkError,
        InputError,
        NegativeCycle,
        OrographError,
        RunError,
        StorageFullError,
        StoreExistsError,
    )
    from orograph.tiles.export import to_geotiff
    from orograph.tiles.ingest import ingest

_HOMES = {
    "orograph.apsp": ("all_pairs",),
    "orograph.clusters": ("cluster",),
    "orograph.settings": ("config",),
    "orograph.components": ("connected_components",),
    "orograph.distance": ("cost_distance",),
    "orograph.forest": ("minimum_spanning_forest",),
    "orograph.hops": ("hop_distance",),
    "orograph.index": ("DistanceIndex",),
    "orograph.paths": ("LeastCostPath", "corridor", "least_cost_path", "path_mask"),
    "orograph.planning": ("Plan", "plan"),
    "orograph.reach": ("Reach", "st_connected"),
    "orograph.run": ("Progress", "Run"),
    "orograph.tiles.dataset": ("open",),
    "orograph.tiles.errors": (
        "BackendError",
        "Cancelled",
        "DamagedChunkError",
        "InputError",
        "NegativeCycle",
        "OrographError",
        "RunError",
        "StorageFullError",
        "StoreExistsError",
    ),
    "orograph.tiles.export": ("to_geotiff",),
    "orograph.tiles.ingest": ("ingest",),
}
_TRUE_NAME = {"open": "open_dataset"}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BackendError",
    "Cancelled",
    "DamagedChunkError",
    "DistanceIndex",
    "InputError",
    "LeastCostPath",
    "NegativeCycle",
    "OrographError",
    "Plan",
    "Progress",
    "Reach",
    "Run",
    "RunError",
    "StorageFullError",
    "StoreExistsError",
    "all_pairs",
    "cluster",
    "config",
    "connected_components",
    "corridor",
    "cost_distance",
    "hop_distance",
    "ingest",
    "least_cost_path",
    "minimum_spanning_forest",
    "open",
    "path_mask",
    "plan",
    "st_connected",
    "to_geotiff",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'orograph' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), _TRUE_NAME.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
