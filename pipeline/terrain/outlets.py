"""Outlets and sinks: cells where water leaves, beside the edge of the grid or in its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from orograph.arguments.places import are_valid, values_at
from orograph.arguments.routing import OPEN, RoutingSpec
from orograph.arguments.sources import Sources, SourceSpec, is_source, parse_sources
from orograph.terrain.water import Marks, Outlets
from orograph.tiles.arguments import refuse_arguments
from orograph.tiles.arrays import Integers
from orograph.tiles.errors import InputError
from orograph.tiles.grid.neighbours import NEIGHBOURS
from orograph.tiles.raster.raster import Raster


def parse_outlets(
    elevation: Raster, given: RoutingSpec, method: str
) -> tuple[Outlets | None, dict[str, Raster]]:
    """Check where water may leave; return it, and the rasters that mark it by argument.

    Raises
    ------
    InputError
        If water could leave nowhere, or the method has no use for outlets.
    """
    closed = given.edges != OPEN
    places = {"outlets": given.outlets, "sinks": given.sinks}
    asked = {name: place is not None for name, place in places.items()} | {"edges": closed}
    if method != "d8":
        refuse_arguments(f"method={method!r}", **asked)
    origins = {
        name: parse_sources(place, elevation, SourceSpec(), name=name, skips=False)
        for name, place in places.items()
        if place is not None
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


def leave_at(
    cells: Integers,
    elevation: Raster,
    outlets: Outlets | None,
    rasters: Iterable[Raster],
    wraps: bool,
) -> npt.NDArray[np.bool_]:
    """Return which cells, row-major in the grid, water leaves; ``rasters`` mark some of them."""
    height, width = elevation.shape
    where = np.stack(np.divmod(cells, width), axis=1)
    found = np.zeros(len(cells), np.bool_)
    if outlets is None or not outlets.closed:
        for step in NEIGHBOURS:
            y, x = (where + step).T
            x = x % width if wraps else x
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            inside[inside] = are_valid(elevation, np.stack([y, x], axis=1)[inside])
            found |= ~inside
    if outlets is not None:
        if outlets.points is not None:
            found |= np.isin(cells, outlets.points.rows * width + outlets.points.columns)
        for marks, raster in zip(outlets.marked, rasters, strict=True):
            found |= is_source(values_at(raster, where), *marks)
    return found
