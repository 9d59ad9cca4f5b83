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
    from orograph.components import connected_components
    from orograph.dense_paths.all_pairs import all_pairs
    from orograph.distance.cost_distance import cost_distance
    from orograph.distance.hop_distance import hop_distance
    from orograph.distance.paths import LeastCostPath, corridor, least_cost_path, path_mask
    from orograph.execution.clusters import cluster
    from orograph.execution.run import Progress, Run
    from orograph.forest import minimum_spanning_forest
    from orograph.graphs.shortest_paths import shortest_paths
    from orograph.index.distance_index import DistanceIndex
    from orograph.planning.plan import Plan, plan
    from orograph.reachability.st_connected import Reach, st_connected
    from orograph.settings import config
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
    from orograph.tiles.graph.graph import Graph
    from orograph.tiles.graph.read import read_graph
    from orograph.tiles.store.dataset import open_dataset as open
    from orograph.tiles.store.export import to_geotiff
    from orograph.tiles.store.ingest import ingest

_HOMES = {
    "orograph.dense_paths.all_pairs": ("all_pairs",),
    "orograph.execution.clusters": ("cluster",),
    "orograph.settings": ("config",),
    "orograph.components": ("connected_components",),
    "orograph.distance.cost_distance": ("cost_distance",),
    "orograph.forest": ("minimum_spanning_forest",),
    "orograph.distance.hop_distance": ("hop_distance",),
    "orograph.graphs.shortest_paths": ("shortest_paths",),
    "orograph.index.distance_index": ("DistanceIndex",),
    "orograph.distance.paths": ("LeastCostPath", "corridor", "least_cost_path", "path_mask"),
    "orograph.planning.plan": ("Plan", "plan"),
    "orograph.reachability.st_connected": ("Reach", "st_connected"),
    "orograph.execution.run": ("Progress", "Run"),
    "orograph.tiles.store.dataset": ("open",),
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
    "orograph.tiles.graph.graph": ("Graph",),
    "orograph.tiles.graph.read": ("read_graph",),
    "orograph.tiles.store.export": ("to_geotiff",),
    "orograph.tiles.store.ingest": ("ingest",),
}
_TRUE_NAME = {"open": "open_dataset"}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BackendError",
    "Cancelled",
    "DamagedChunkError",
    "DistanceIndex",
    "Graph",
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
    "read_graph",
    "shortest_paths",
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
