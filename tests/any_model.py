"""Distances and indices by any cost model: calls that name friction and elevation by themselves."""

from __future__ import annotations

from typing import Any

import orograph as og
from orograph.distance.costs.surface import COSTS


def first_raster(friction: Any, elevation: Any, cost: str) -> tuple[Any, dict[str, Any]]:
    """Return the raster that operations take first, and the other one as their argument."""
    if cost == "friction":
        return friction, {}
    return elevation, {} if friction is None or cost in COSTS else {"friction": friction}


def distance(
    friction: Any = None, sources: Any = None, *, elevation: Any = None, cost: str = "friction",
    **options: Any,
) -> Any:  # fmt: skip
    """Return the distances of `cost_distance` or `walking_time`, whichever has the model.

    The variable of times is named ``cost`` too.
    """
    first, other = first_raster(friction, elevation, cost)
    if cost in COSTS:
        return og.cost_distance(first, sources, cost=cost, **options)
    if "outputs" in options:
        names = {"cost": "time"}
        options["outputs"] = [names.get(name, name) for name in options["outputs"]]
    found = og.walking_time(first, sources, model=cost, **other, **options)
    return found.rename({"time": "cost"})


def build(
    friction: Any = None, store: Any = None, *, elevation: Any = None, cost: str = "friction",
    **options: Any,
) -> og.DistanceIndex:  # fmt: skip
    """Return an index of the model's rasters."""
    first, other = first_raster(friction, elevation, cost)
    return og.DistanceIndex.build(first, store, cost=cost, **other, **options)
