"""Routing of water over heights, read from the keywords of an operation."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from orograph.arguments.routing import RoutingOptions, RoutingSpec
from orograph.flow.given_streams import parse_streams
from orograph.flow.outlets import leave_at, parse_outlets
from orograph.flow.routing import Routing
from orograph.run.options import RunOptions
from orograph.tiles.arguments import refuse_arguments
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.wrap import wraps_of


class FlowOptions(RoutingOptions, RunOptions, total=False):
    """Options of runs in which water flows over heights.

    cell_size : float or (float, float), optional
        Side of a cell, or its (y, x) sides, in place of those given by the coordinates. On
        geographic grids steps have the lengths of geodesics.
    connectivity : {8, 4}
        Number of neighbours to which water may flow; 4 leaves out the diagonals (D4).
    """


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
    connectivity = given.connectivity
    if method != "d8":
        refuse_arguments(f"method={method!r}", connectivity=connectivity != 8)
    where = given.outlets, given.sinks, given.edges
    outlets, marked = parse_outlets(elevation, *where, method, given.depressions)
    wraps = wraps_of(elevation, wrap)
    rasters = tuple(marked.values())
    streams = parse_streams(
        *(elevation, given.streams, given.burn, connectivity, wraps),
        partial(leave_at, elevation=elevation, outlets=outlets, rasters=rasters, wraps=wraps),
        method=method != "d8",
        depressions=given.depressions != "fill",
        flats=given.flats == "gradient",
    )
    routing = Routing.on(
        elevation,
        depressions=given.depressions,
        max_length=given.max_length,
        max_depth=given.max_depth,
        flats=given.flats,
        codes=codes,
        cell_size=given.cell_size,
        wraps=wraps,
        connectivity=connectivity,
        outlets=outlets,
        marked=tuple(marked),
        streams=streams,
    )
    return Routed(routing, (*rasters, *streams.rasters), dict(streams.notes))
