"""Outlets and sinks: cells where water leaves, beside the edge of the grid or in its place."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from orograph.arguments.sources import Sources, SourcesLike, SourceSpec, parse_sources
from orograph.terrain.water import Marks, Outlets
from orograph.tiles.arguments import check_choice, refuse_arguments
from orograph.tiles.errors import InputError
from orograph.tiles.raster.raster import Raster

OPEN = "open"
EDGES = (OPEN, "closed")


def parse_outlets(
    elevation: Raster,
    outlets: SourcesLike | None,
    sinks: SourcesLike | None,
    edges: str,
    method: str | None,
    depressions: str | None,
) -> tuple[Outlets | None, dict[str, Raster]]:
    """Check where water may leave; return it, and the rasters that mark it by argument.

    Raises
    ------
    InputError
        If water could leave nowhere, or the method or the way to treat depressions has no use for
        outlets.
    """
    closed = check_choice("edges", edges, EDGES) != OPEN
    asked = {"outlets": outlets is not None, "sinks": sinks is not None, "edges": closed}
    if isinstance(method, str) and method != "d8":
        refuse_arguments(f"method={method!r}", **asked)
    if isinstance(depressions, str) and depressions == "breach":
        refuse_arguments("depressions='breach'", **asked)
    origins = {
        name: parse_sources(given, elevation, SourceSpec(), name=name, skips=False)
        for name, given in (("outlets", outlets), ("sinks", sinks))
        if given is not None
    }
    if not origins:
        if closed:
            raise InputError(
                "edges: 'closed', so that water leaves nowhere; pass outlets= or sinks= too"
            )
        return None, {}
    rasters = {name: o.raster for name, o in origins.items() if o.raster is not None}
    marked = tuple(Marks(raster.nodata, origins[name].targets) for name, raster in rasters.items())
    points = [origin.cells for origin in origins.values() if origin.cells is not None]
    joined = None
    if points:
        names = [field.name for field in fields(Sources)]
        joined = Sources(*(np.concatenate([getattr(p, name) for p in points]) for name in names))
    return Outlets(joined, marked, closed), rasters
