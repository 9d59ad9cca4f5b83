"""Exact graph algorithms on elevation grids of any size.

>>> import orograph as og

Public names are imported when they are first used; xarray at once, to which an accessor is added:
``raster.orograph.cost_distance(sources)``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import orograph.accessor
import orograph.forked  # noqa: F401  (both register what they hold)

__version__ = version("orograph")

if TYPE_CHECKING:
    from orograph.components import connected_components
    from orograph.components_table import component_table
    from orograph.dense_paths.all_pairs import all_pairs
    from orograph.distance.cost_distance import cost_distance
    from orograph.distance.hop_distance import hop_distance
    from orograph.distance.paths import (
        LeastCostPath,
        LeastCostPaths,
        corridor,
        least_cost_path,
        path_mask,
    )
    from orograph.execution.clusters import cluster
    from orograph.execution.run import Progress, Run
    from orograph.forest import minimum_spanning_forest
    from orograph.forest_edges import forest_lines
    from orograph.graphs.shortest_paths import shortest_paths
    from orograph.index.distance_index import DistanceIndex
    from orograph.operation import Operation
    from orograph.planning.plan import Plan, RasterSpec
    from orograph.plotting.plot import plot
    from orograph.reachability.st_connected import Reach, st_connected
    from orograph.settings import config
    from orograph.terrain.depressions import depressions
    from orograph.terrain.fill import fill_depressions
    from orograph.terrain.flood import flood_level
    from orograph.terrain.passes import pass_elevation
    from orograph.terrain.peaks import peaks
    from orograph.tiles.convert.export import to_geotiff
    from orograph.tiles.convert.ingest import ingest
    from orograph.tiles.convert.rasterize import rasterize
    from orograph.tiles.errors import (
        BackendError,
        Cancelled,
        DamagedChunkError,
        DamagedStoreError,
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
    from orograph.tiles.store.verify import StoreReport, verify
    from orograph.tiles.vector.layer import VectorLayer

_HOMES = {
    "orograph.dense_paths.all_pairs": ("all_pairs",),
    "orograph.execution.clusters": ("cluster",),
    "orograph.settings": ("config",),
    "orograph.components_table": ("component_table",),
    "orograph.components": ("connected_components",),
    "orograph.distance.cost_distance": ("cost_distance",),
    "orograph.forest": ("minimum_spanning_forest",),
    "orograph.distance.hop_distance": ("hop_distance",),
    "orograph.graphs.shortest_paths": ("shortest_paths",),
    "orograph.index.distance_index": ("DistanceIndex",),
    "orograph.distance.paths": (
        "LeastCostPath",
        "LeastCostPaths",
        "corridor",
        "least_cost_path",
        "path_mask",
    ),
    "orograph.forest_edges": ("forest_lines",),
    "orograph.operation": ("Operation",),
    "orograph.planning.plan": ("Plan", "RasterSpec"),
    "orograph.plotting.plot": ("plot",),
    "orograph.reachability.st_connected": ("Reach", "st_connected"),
    "orograph.terrain.depressions": ("depressions",),
    "orograph.terrain.fill": ("fill_depressions",),
    "orograph.terrain.flood": ("flood_level",),
    "orograph.terrain.passes": ("pass_elevation",),
    "orograph.terrain.peaks": ("peaks",),
    "orograph.execution.run": ("Progress", "Run"),
    "orograph.tiles.store.dataset": ("open",),
    "orograph.tiles.errors": (
        "BackendError",
        "Cancelled",
        "DamagedChunkError",
        "DamagedStoreError",
        "InputError",
        "NegativeCycle",
        "OrographError",
        "RunError",
        "StorageFullError",
        "StoreExistsError",
    ),
    "orograph.tiles.graph.graph": ("Graph",),
    "orograph.tiles.graph.read": ("read_graph",),
    "orograph.tiles.store.verify": ("StoreReport", "verify"),
    "orograph.tiles.convert.export": ("to_geotiff",),
    "orograph.tiles.convert.ingest": ("ingest",),
    "orograph.tiles.vector.layer": ("VectorLayer",),
    "orograph.tiles.convert.rasterize": ("rasterize",),
}
_TRUE_NAME = {"open": "open_dataset"}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BackendError",
    "Cancelled",
    "DamagedChunkError",
    "DamagedStoreError",
    "DistanceIndex",
    "Graph",
    "InputError",
    "LeastCostPath",
    "LeastCostPaths",
    "NegativeCycle",
    "Operation",
    "OrographError",
    "Plan",
    "Progress",
    "RasterSpec",
    "Reach",
    "Run",
    "RunError",
    "StorageFullError",
    "StoreExistsError",
    "StoreReport",
    "VectorLayer",
    "all_pairs",
    "cluster",
    "component_table",
    "config",
    "connected_components",
    "corridor",
    "cost_distance",
    "depressions",
    "fill_depressions",
    "flood_level",
    "forest_lines",
    "hop_distance",
    "ingest",
    "least_cost_path",
    "minimum_spanning_forest",
    "open",
    "pass_elevation",
    "path_mask",
    "peaks",
    "plot",
    "rasterize",
    "read_graph",
    "shortest_paths",
    "st_connected",
    "to_geotiff",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'orograph' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), _TRUE_NAME.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
