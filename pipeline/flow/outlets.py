"""Outlets and sinks: cells where water leaves, beside the edge of the grid or in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from orograph.arguments.sources import Sources, SourcesLike, SourceSpec, is_source, parse_sources
from orograph.terrain.water import Marks
from orograph.tiles.arguments import check_choice, refuse_arguments
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import Raster

OPEN = "open"
EDGES = (OPEN, "closed")


@dataclass(frozen=True)
class Outlets:
    """Cells where water leaves the grid, or ends."""

    points: Sources | None
    """Cells that are given as points."""
    marked: tuple[Marks, ...]
    """Marks of such cells in further rasters."""
    closed: bool
    """Whether none leaves at the edge of the grid, or flows into nodata."""

    def within(
        self, window: Window, frame: Window, cells: Sequence[Array]
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of these cells in a window; ``cells`` are those of the rasters."""
        found = np.zeros(window.shape, np.bool_)
        for marks, given in zip(self.marked, cells, strict=True):
            found |= is_source(given[window.within(frame)], *marks)
        if self.points is not None:
            y, x = self.points.rows - window.y, self.points.columns - window.x
            here = (y >= 0) & (y < window.height) & (x >= 0) & (x < window.width)
            found[y[here], x[here]] = True
        return found


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
