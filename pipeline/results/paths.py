"""Least-cost paths as objects, and their conversion to vector formats."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orograph.tiles import html
from orograph.tiles.arrays import Integers, Reals
from orograph.tiles.errors import own_errors
from orograph.tiles.grid.crs import CRSLike, parse_crs
from orograph.tiles.grid.units import ellipsoid_of, unit_of_crs
from orograph.tiles.vector.layer import VectorLayer
from orograph.tiles.vector.turns import Turn, split_turns

MOST_SHOWN = 10  # rows of a list of paths in a notebook


def line_lengths(points: Reals, counts: Integers, crs: str | None) -> Reals:
    """Return the lengths of lines in metres; in units of the coordinates without a CRS.

    ``points`` (n, 2) are those of all lines, one after the other; ``counts`` has their numbers,
    which are not 0.
    """
    if not len(counts):
        return np.empty(0)
    steps = _steps(points, crs)
    ends = np.cumsum(counts)
    steps = np.append(steps, 0.0)
    steps[ends - 1] = 0.0  # from the end of a line to the next one
    # Sums from the first point of each line to that of the next.
    lengths: Reals = np.add.reduceat(steps, ends - counts)
    return lengths


def _steps(points: Reals, crs: str | None) -> Reals:
    """Return the length from each point to the next, in metres if there is a CRS."""
    parsed = None if crs is None else parse_crs(crs, "path")
    if parsed is not None and parsed.is_geographic:
        return np.asarray(ellipsoid_of(parsed).line_lengths(*points.T))[: len(points) - 1]
    steps: Reals = np.hypot(*np.diff(points, axis=0).T)
    return steps if parsed is None else steps * unit_of_crs(parsed).metres


@dataclass(frozen=True, eq=False, repr=False)
class LeastCostPath:
    """A least-cost path from a point back to its nearest source.

    Two paths are equal if they pass the same cells at the same places, at the same cost.

    Attributes
    ----------
    cells
        Rows and columns of the cells on the path, from the point to the source, shape (n, 2).
    coordinates
        Map coordinates (x, y) of the cell centres, shape (n, 2).
    cost
        Cost at the point; an int if costs are integers.
    crs
        Coordinate reference system of the coordinates as well-known text; None if there is none.
    line
        Map coordinates (x, y) of the path as a line, shape (m, 2): the ends of links that have
        coordinates, such as roads, and the centres of all other cells. Length, geometry and vector
        files are based on this line.
    point, source
        Name of the point, and label or name of the source; None if unknown.
    snap_distance
        How far the point was moved by ``snap``, in metres (without a CRS in the unit of the
        coordinates); None without ``snap``.
    crossed
        Rows and columns of the cells that knight's moves cross between the cells of the path, shape
        (k, 2); empty without 16 neighbours.
    turn
        The x at the western end of a grid that wraps, and the width of a whole turn; None if it
        does not wrap. Where the path crosses the seam of such a grid, ``line`` goes on beyond it,
        and ``geometry`` is cut there.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((1, 3)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> og.least_cost_path(result, [(2, 0)])[0]
    <orograph.LeastCostPath: cost 2, 3 cells, length 2, from (2, 0) to (0, 0)>
    >>> path = og.least_cost_path(result, [(2, 0)])[0]
    >>> path.cost, path.cells.tolist()
    (2.0, [[0, 2], [0, 1], [0, 0]])
    """

    cells: npt.NDArray[np.int64]
    coordinates: npt.NDArray[np.float64]
    cost: float
    crs: str | None = field(default_factory=lambda: None)
    line: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)))
    point: str | int | None = field(default_factory=lambda: None)
    source: str | int | None = field(default_factory=lambda: None)
    crossed: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    snap_distance: float | None = field(default_factory=lambda: None)
    turn: Turn | None = field(default_factory=lambda: None)

    def __post_init__(self) -> None:
        # Without links the line is that through the centres. The class is frozen.
        if not len(self.line):
            object.__setattr__(self, "line", self.coordinates)

    @cached_property
    def length(self) -> float:
        """Length of the path in metres.

        Without a CRS, it is in units of the coordinates; without coordinates, in cells.
        """
        if self.crs is not None and (parsed := parse_crs(self.crs, "path")).is_geographic:
            return float(ellipsoid_of(parsed).line_length(*self.line.T))
        return float(_steps(self.line, self.crs).sum())

    @property
    def geometry(self) -> Any:
        """The path as a shapely LineString, or a Point if it has one cell; needs shapely.

        A MultiLineString if it crosses the seam of a grid that wraps.
        """
        from shapely import LineString, MultiLineString, Point

        if len(self.line) == 1:
            return Point(self.line[0])
        pieces = self._pieces
        return LineString(pieces[0]) if len(pieces) == 1 else MultiLineString(pieces)

    @property
    def _pieces(self) -> list[Reals]:
        """Points of the line, in pieces between seams of the grid."""
        if self.turn is None or len(self.line) == 1:
            return [self.line]
        return split_turns(self.line, *self.turn)

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """The path as a GeoJSON feature, in its own CRS."""
        pieces = [[tuple(point) for point in piece.tolist()] for piece in self._pieces]
        body: dict[str, Any] = {"type": "LineString", "coordinates": pieces[0]}
        if len(self.line) == 1:
            body = {"type": "Point", "coordinates": pieces[0][0]}
        elif len(pieces) > 1:
            body = {"type": "MultiLineString", "coordinates": pieces}
        properties = {"cost": self.cost, "length": self.length}
        return {"type": "Feature", "geometry": body, "properties": properties}

    @property
    def layer(self) -> VectorLayer:
        """The path as a line, see `LeastCostPaths.layer`."""
        return LeastCostPaths([self]).layer

    def to_geodataframe(self) -> Any:
        """Return the path as a ``geopandas.GeoDataFrame`` with one row: cost, length, geometry."""
        return LeastCostPaths([self]).to_geodataframe()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LeastCostPath):
            return NotImplemented
        return (
            (self.cost, self.crs) == (other.cost, other.crs)
            and np.array_equal(self.cells, other.cells)
            and np.array_equal(self.coordinates, other.coordinates)
            and np.array_equal(self.line, other.line)
        )

    def __hash__(self) -> int:
        return hash((self.cost, self.cells.tobytes(), self.coordinates.tobytes()))

    def __repr__(self) -> str:
        start, end = self._ends
        if not self.coordinates.size:
            count = len(self.cells)
            return f"<orograph.LeastCostPath: {count} vertices of a graph, from {start} to {end}>"
        return (
            f"<orograph.LeastCostPath: cost {self.cost:g}, {len(self.cells)} cells, length "
            f"{self.length:g}, from ({start}) to ({end})>"
        )

    def _repr_html_(self) -> str:
        start, end = self._ends
        if not self.coordinates.size:
            rows = {"vertices": len(self.cells), "from": start, "to": end}
            return html.table("Path in a graph", rows)
        crs = "none" if self.crs is None else parse_crs(self.crs, "path").name
        rows = {
            "cost": f"{self.cost:g}",
            "length": f"{self.length:g}",
            "cells": len(self.cells),
            "from": start,
            "to": end,
            "CRS": crs,
        }
        return html.table("Least-cost path", rows, html.sketch(self.line))

    @property
    def _ends(self) -> tuple[str, str]:
        """First and last point of the path; for a graph without coordinates, its vertices."""
        if not self.coordinates.size:
            first, last = self.cells[[0, -1]].tolist()
            return repr(first), repr(last)
        (x, y), (end_x, end_y) = self.coordinates[[0, -1]].tolist()
        return f"{x:.10g}, {y:.10g}", f"{end_x:.10g}, {end_y:.10g}"


class LeastCostPaths(list[LeastCostPath]):
    """A list of paths that can also be used as a vector layer.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> result = og.cost_distance(np.ones((1, 3)), [(0, 0)], outputs=("cost", "back_direction"))
    >>> paths = og.least_cost_path(result, [(2, 0), (1, 0)])
    >>> len(paths), paths.layer.columns["cost"].tolist()
    (2, [2.0, 1.0])
    """

    _outside: int | None = None
    _unreachable: int | None = None

    @property
    def outside(self) -> int | None:
        """Number of points outside the result that were skipped; None if none may be skipped."""
        return self._outside

    @outside.setter
    def outside(self, count: int | None) -> None:
        self._outside = count

    @property
    def unreachable(self) -> int | None:
        """Number of points on unreached cells that were skipped; None if none may be skipped."""
        return self._unreachable

    @unreachable.setter
    def unreachable(self, count: int | None) -> None:
        self._unreachable = count

    @property
    def layer(self) -> VectorLayer:
        """The paths as lines, with columns ``path`` (numbers from 0), ``cost`` and ``length``.

        The columns ``point`` and ``source`` hold the names of the ends if they are known, and
        ``snap_distance`` how far points were moved, if they may have been.
        """
        columns = {
            "path": np.arange(len(self)),
            **self._names,
            "cost": np.array([path.cost for path in self]),
            "length": np.array([path.length for path in self]),
        }
        if self and all(path.snap_distance is not None for path in self):
            columns["snap_distance"] = np.array([path.snap_distance for path in self])
        geometry = np.empty(len(self), object)
        geometry[:] = [path.geometry for path in self]
        crs = self[0].crs if self else None
        units = dict.fromkeys(("length", "snap_distance"), "m") if crs is not None else {}
        units = {name: unit for name, unit in units.items() if name in columns}
        return VectorLayer(geometry, columns, crs, units=units)

    @property
    def _names(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the names of points and sources, if all paths have them."""
        columns = {}
        for end in ("point", "source"):
            names = [getattr(path, end) for path in self]
            if names and all(name is not None for name in names):
                columns[end] = np.array(names, object if isinstance(names[0], str) else None)
        return columns

    @property
    def __geo_interface__(self) -> dict[str, Any]:
        """The paths as a GeoJSON FeatureCollection, in their own CRS."""
        return self.layer.__geo_interface__

    def to_geodataframe(self) -> Any:
        """Return the paths as a ``geopandas.GeoDataFrame``, one row for each path."""
        return self.layer.to_geodataframe()

    @own_errors
    def to_file(
        self,
        path: str | os.PathLike[str],
        *,
        crs: CRSLike | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write the paths to a vector file; see `VectorLayer.to_file`."""
        return self.layer.to_file(path, crs=crs, overwrite=overwrite)

    def _repr_html_(self) -> str:
        shown = {
            f"{number}": repr(path).removeprefix("<orograph.LeastCostPath: ").removesuffix(">")
            for number, path in enumerate(self[:MOST_SHOWN])
        }
        more = {"…": f"{len(self) - MOST_SHOWN} more"} if len(self) > MOST_SHOWN else {}
        return html.table(f"{len(self)} least-cost paths", shown | more)
