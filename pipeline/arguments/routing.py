"""Keywords about how water flows over heights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from orograph.arguments.keywords import Keywords
from orograph.tiles.arguments import check_choice, shown
from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    from orograph.arguments.sources import SourcesLike
    from orograph.tiles.raster.raster import RasterLike
    from orograph.tiles.vector.layer import VectorLike

OPEN = "open"
"""Water also leaves at the edge of the raster and into nodata."""
CHOICES: dict[str, tuple[Any, ...]] = {
    "depressions": ("fill", "breach", "keep"),
    "flats": ("nearest", "gradient"),
    "connectivity": (4, 8),
    "edges": (OPEN, "closed"),
}


class RoutingOptions(TypedDict, total=False):
    """Keywords about how water flows over heights.

    depressions : {"fill", "breach", "keep"}
        Fill depressions first, so that all water leaves the grid or flows into nodata; or dig
        trenches from pits as `breach_depressions` does, and fill what is left; or keep depressions,
        so that water can also end in pits.
    max_length : int, optional
        Greatest length of trenches in cells, as for `breach_depressions`: 64 by default.
    max_depth : float, optional
        Greatest depth of trenches, as for `breach_depressions`: infinite by default.
    flats : {"nearest", "gradient"}
        Flow across flats: by the fewest steps to a cell that drains; or away from higher ground and
        towards a cell that drains, so that flow paths meet in the middle.
    cell_size : float or (float, float), optional
        Side of a cell, or its (y, x) sides, in place of those given by the coordinates. On
        geographic grids steps have the lengths of geodesics.
    connectivity : {8, 4}
        Number of neighbours to which water may flow; 4 leaves out the diagonals (D4).
    outlets : raster, points or vector layer, optional
        Cells where water leaves, such as a sea or lakes, beside the edge of the raster and nodata,
        or in their place: cells of a raster that are not 0 or nodata, points (x, y), or a layer.
        Water that reaches one ends there, as in a pit.
    sinks : raster, points or vector layer, optional
        Pits that stay, where water ends too, such as sinkholes.
    edges : {"open", "closed"}
        Whether water also leaves at the edge of the raster and into nodata. ``"closed"`` needs
        ``outlets`` or ``sinks``; ground from which none can be reached stays as it is.
    streams : raster or vector layer, optional
        Streams that are known. Lines drawn downstream: water flows along each to its end, whatever
        the heights, see the notes of `flow_direction`. Cells of a raster that are not 0 or nodata
        are only lowered.
    burn : float, optional
        By how much streams are lowered before anything else, in the unit of heights: 0 by default.
    """

    depressions: str
    max_length: int | None
    max_depth: float | None
    flats: str
    cell_size: float | tuple[float, float] | None
    connectivity: int
    outlets: SourcesLike | None
    sinks: SourcesLike | None
    edges: str
    streams: RasterLike | VectorLike | None
    burn: float | None


@dataclass(frozen=True)
class RoutingSpec(Keywords):
    """Given keywords about how water flows over heights; see `RoutingOptions`."""

    heading = "Flow"
    documented = RoutingOptions

    depressions: str = "fill"
    max_length: int | None = None
    max_depth: float | None = None
    flats: str = "nearest"
    cell_size: float | tuple[float, float] | None = None
    connectivity: int = 8
    outlets: SourcesLike | None = None
    sinks: SourcesLike | None = None
    edges: str = OPEN
    streams: RasterLike | VectorLike | None = None
    burn: float | None = None

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            check_choice(name, getattr(self, name), known)

    def refuse(self) -> None:
        """Raise InputError if one was given for directions, which are of heights."""
        for name, is_given in self.changed().items():
            if is_given:
                raise InputError(
                    f"{name}: {shown(getattr(self, name))}; only heights need it: pass it with "
                    "method='d8'"
                )
