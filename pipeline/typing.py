"""Types of what operations take, to annotate functions that pass it on.

>>> from orograph.typing import RasterLike, SourcesLike
"""

from __future__ import annotations

from orograph.arguments.barriers import BarriersLike
from orograph.arguments.sources import SourcesLike
from orograph.tiles.graph.graph import VerticesLike
from orograph.tiles.graph.read import GraphLike
from orograph.tiles.grid.crs import CRSLike
from orograph.tiles.raster.points import PointsLike
from orograph.tiles.raster.raster import RasterLike
from orograph.tiles.raster.snapping import SnapLike
from orograph.tiles.vector.layer import VectorLike

__all__ = [
    "BarriersLike",
    "CRSLike",
    "GraphLike",
    "PointsLike",
    "RasterLike",
    "SnapLike",
    "SourcesLike",
    "VectorLike",
    "VerticesLike",
]
