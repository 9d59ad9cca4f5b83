"""Routing of water over heights, read from the keywords of an operation."""

from __future__ import annotations

from typing import Any, NamedTuple

from orograph.arguments.routing import RoutingOptions, RoutingSpec
from orograph.flow.given_streams import parse_streams
from orograph.flow.routing import Routing
from orograph.run.options import RunOptions
from orograph.terrain.outlets import parse_outlets
from orograph.tiles.arguments import refuse_arguments
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.wrap import wraps_of


class FlowOptions(RoutingOptions, RunOptions, total=False):
    """Options of runs in which water flows over heights."""


class Routed(NamedTuple):
    """Routing over an elevation, and what it needs beside that."""

    routing: Routing
    rasters: tuple[Raster, ...]
    """Rasters that mark where water leaves, and where streams are."""
    notes: dict[str, Any]
    """Attributes of the result."""


def read_routing(
    given: RoutingSpec,
    elevation: Raster,
    wrap: bool | None,
    method: str = "d8",
    codes: str = "taudem",
) -> Routed:
    """Return how water flows over an elevation, with all keywords checked.

    ``codes`` are those in which directions are written.
    """
    if method != "d8":
        refuse_arguments(f"method={method!r}", connectivity=given.connectivity != 8)
    outlets, marked = parse_outlets(elevation, given, method)
    wraps, rasters = wraps_of(elevation, wrap), tuple(marked.values())
    streams = parse_streams(elevation, given, method, wraps, outlets, rasters)
    routing = Routing.on(elevation, given, codes, wraps, outlets, tuple(marked), streams)
    return Routed(routing, (*rasters, *streams.rasters), dict(streams.notes))
