"""Keywords about the steps of paths: how cells are joined, what a step costs, how far paths go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from orograph.arguments.keywords import Keywords
from orograph.tiles.arguments import check_choice, check_number

if TYPE_CHECKING:
    from orograph.arguments.barriers import BarriersLike
    from orograph.tiles.graph.graph import Graph
    from orograph.tiles.raster.raster import RasterLike

DTYPES = ("float64", "float32", "int64")
"""Names of the dtypes that distances may have."""


class StepOptions(TypedDict, total=False):
    """Keywords of all that sums the costs of steps."""

    connectivity: int
    cell_size: float | tuple[float, float] | None
    dtype: str


class ReachOptions(StepOptions, total=False):
    """Keywords of distances, which may end before they reach all cells."""

    max_cost: float


class WayOptions(TypedDict, total=False):
    """Keywords of what is in the way of paths, or makes a way for them."""

    barriers: BarriersLike | None
    links: Graph | None


class PathOptions(WayOptions, ReachOptions, total=False):
    """Keywords of distances along paths.

    barriers : raster, vector layer or list, optional
        Cells that no path may enter, except along links: cells of a raster that are not 0 or
        nodata, or all cells that the lines and areas of a layer touch, so that no path slips by.
        Several go into a list. With a number, as in ``[fence, (river, 600.0)]``, a barrier can be
        crossed at that cost, in the units of the result: half of it is added to each step that
        enters the barrier's cells and half to each that leaves them, with every cost but
        ``"eikonal"``. At most 24 barriers have such a penalty. With ``dtype="int64"`` penalties are
        multiples of 2.
    links : Graph, optional
        Roads, bridges, ferries: edges between cells, as returned by `read_graph` or `roads`. A
        vertex lies in the cell of its coordinates, in the CRS of the raster; in a graph without
        coordinates, its id is the number of the cell, counted row by row from 0. Weights are costs
        and must not be negative. Edges can be used in both directions unless the graph is directed.
    poles : bool
        Of a global raster that wraps: whether a cell of a row that touches a pole has the cell half
        a turn away in that row as its neighbour too, at twice the distance to the pole.
    travel : {"from", "to"}
        With directed links or costs: cost ``"from"`` the sources, or ``"to"`` them.
    connectivity : {8, 4, 16}
        Number of neighbours. 16 adds knight's moves, as ``r.cost -k`` does; such a step costs the
        mean friction of four cells, its ends and the two between them, and any of them can block
        it.
    max_cost : float
        Cells with a greater cost stay unreached; exact.
    cell_size : float or (float, float), optional
        Side of a cell, or (y, x) sides, in the unit of the CRS (metres if it is in degrees), in
        place of those of the coordinates; 1 measures in cells. By default degrees become metres
        along the ellipsoid of the CRS, row by row.
    dtype : {"float64", "float32", "int64"}
        Dtype of the costs; with ``"float32"`` steps are float32 too. ``"int64"`` is exact and needs
        integers throughout: heights, weights of links, ``initial_cost`` and, with ``"friction"``,
        lengths of steps, usually with ``cell_size=1`` and 4 neighbours. Frictions must be multiples
        of 2 (of 4 with 16 neighbours), as a step costs the mean of two (four). Costs are limited to
        2**60.
    """

    poles: bool
    travel: str


@dataclass(frozen=True)
class StepSpec(Keywords):
    """Given keywords about the steps of paths; see `PathOptions`.

    The dtypes and connectivities that there are depend on the operation, which checks them.

    Raises
    ------
    InputError
        If ``travel`` or ``max_cost`` cannot be used.
    """

    heading = "Steps"
    documented = PathOptions

    barriers: BarriersLike | None = None
    links: Graph | None = None
    poles: bool = False
    travel: str = "from"
    connectivity: int = 8
    max_cost: float = math.inf
    cell_size: float | tuple[float, float] | None = None
    dtype: str = "float64"

    def __post_init__(self) -> None:
        check_choice("travel", self.travel, ("from", "to"))
        object.__setattr__(self, "max_cost", check_number("max_cost", self.max_cost, 0))


class SlopeOptions(TypedDict, total=False):
    """Keywords of costs that depend on slopes.

    elevation_unit : {"m", "ft", "us-ft"}, optional
        Unit of the heights: metres, international feet or US survey feet. By default that of the
        raster's attribute ``units`` or of a vertical CRS, else metres. It is required if none of
        these tells it and the CRS is neither in metres nor in degrees.
    friction : raster, optional
        Additional cost of walking in each cell, shape (y, x), not negative; nodata cells are
        barriers. ``"tobler"`` multiplies the time of a step by the mean friction of its two cells
        (default 1); ``"walk"`` adds their mean times ``lambda`` times the length (default 0).
    coefficients : mapping of str to float, optional
        Coefficients of the model; missing ones have their usual values. For ``"tobler"``: ``pace``,
        seconds per metre at best. For ``"walk"``: ``a``, ``b``, ``c``, ``d``, ``slope_factor``,
        ``lambda``, as in GRASS.
    max_slope : float, optional
        Greatest slope of a step in degrees, up or down; steeper steps are impassable. By default
        there is none.
    """

    elevation_unit: str | None
    friction: RasterLike | None
    coefficients: Mapping[str, float] | None
    max_slope: float | None


@dataclass(frozen=True)
class SlopeSpec(Keywords):
    """Given keywords about costs that depend on slopes; see `SlopeOptions`."""

    heading = ""
    documented = SlopeOptions

    elevation_unit: str | None = None
    friction: RasterLike | None = None
    coefficients: Mapping[str, float] | None = None
    max_slope: float | None = None
