"""`TerrainCost`: friction times the length along the ground, times factors of slope and heading."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orograph.distance.costs.horizontal_factors import horizontal_coefficients_of
from orograph.distance.costs.slope_factors import FactorLike, factor_coefficients, slope_limit
from orograph.tiles import html
from orograph.tiles.arguments import shown
from orograph.tiles.errors import InputError
from orograph.tiles.grid.units import check_elevation_unit
from orograph.tiles.raster.raster import RasterLike, open_raster

HORIZONTAL = "horizontal_raster"


class TerrainCost:
    """Cost of a step over terrain: mean friction, times true length, times factors.

    Use it as ``cost=`` of `cost_distance`. The true length is the square root of the horizontal
    length squared plus the rise squared. Factors depend on the slope, and on the angle between the
    step and a direction, such as that of the wind.

    Parameters
    ----------
    surface : raster, optional
        Heights for measuring lengths, with the shape of the friction. By default those of
        ``elevation``. One of the two is required, except with a ``horizontal_raster``, where the
        ground is level without them.
    elevation : raster, optional
        Heights for computing slopes. By default those of ``surface``.
    elevation_unit : {"m", "ft", "us-ft"}, optional
        Unit of the heights of ``surface`` and ``elevation``, as for `walking_time`. Heights are
        converted to the unit of the CRS; without coordinates they are in the unit of
        ``cell_size``.
    vertical_factor : str, mapping, sequence or path, optional
        Factor of a step as a function of its slope in degrees, positive uphill; by default 1.
        Either one of ArcGIS's functions by name: ``"binary"``, ``"linear"``,
        ``"symmetric_linear"``, ``"inverse_linear"``, ``"symmetric_inverse_linear"``, ``"cos"``,
        ``"sec"``, ``"cos_sec"`` or ``"sec_cos"``; or ``"tobler"`` or ``"irmischer_clarke"``, in
        seconds per metre. Or a table of slopes and factors, interpolated linearly: a mapping,
        pairs, or the path of a text file with two columns. Slopes beyond the ends of a table, or
        beyond the cuts of a named function, are impassable.
    vertical_coefficients : mapping of str to float, optional
        Coefficients of a named factor: those of ``zero_factor``, ``low_cut``, ``high_cut``,
        ``slope``, ``cos_power`` and ``sec_power`` that it has. Missing ones have ArcGIS's defaults.
    horizontal_raster : raster, optional
        Direction in each cell, such as that in which the wind blows, in degrees clockwise from
        north; negative where there is none, so that the factor is 1.
    horizontal_factor : str, mapping, sequence or path, optional
        Factor as a function of the angle between the step and that direction, from 0 to 180
        degrees; by default ``"binary"``. Either one of ArcGIS's functions by name: ``"binary"``,
        ``"forward"``, ``"linear"`` or ``"inverse_linear"``; or a table, as for ``vertical_factor``.
        The friction at each end of a step is multiplied by the factor there.
    horizontal_coefficients : mapping of str to float, optional
        Coefficients of a named factor: those of ``zero_factor``, ``cut_angle``, ``slope`` and
        ``side_value`` that it has. Missing ones have ArcGIS's defaults.
    max_slope : float, optional
        Greatest slope of a step in degrees, up or down, by the heights for slopes; steeper steps
        are impassable, whatever the factor. By default there is none.

    Raises
    ------
    InputError
        If an argument is invalid.

    References
    ----------
    Esri, "How the horizontal and vertical factors affect path distance", ArcGIS Pro documentation.

    Examples
    --------
    >>> import numpy as np
    >>> import orograph as og
    >>> heights = np.array([[0.0, 0.0, 3.0, 3.0]])
    >>> true_length = og.TerrainCost(surface=heights)
    >>> og.cost_distance(np.ones((1, 4)), [(0, 0)], cost=true_length, cell_size=4)["cost"].values
    array([[ 0.,  4.,  9., 13.]])
    >>> gentle = og.TerrainCost(surface=heights, vertical_factor={-30: 1, 0: 1, 30: 3})
    >>> og.cost_distance(np.ones((1, 4)), [(0, 0)], cost=gentle, cell_size=4)["cost"].values
    array([[ 0.,  4., nan, nan]])
    """

    def __init__(
        self,
        *,
        surface: RasterLike | None = None,
        elevation: RasterLike | None = None,
        elevation_unit: str | None = None,
        vertical_factor: FactorLike | None = None,
        vertical_coefficients: Mapping[str, float] | None = None,
        horizontal_raster: RasterLike | None = None,
        horizontal_factor: FactorLike | None = None,
        horizontal_coefficients: Mapping[str, float] | None = None,
        max_slope: float | None = None,
    ) -> None:
        level = surface is None and elevation is None
        self.max_slope = slope_limit(max_slope)
        """Greatest slope of a step, as rise by length."""

        if level and self.max_slope < math.inf:
            raise InputError(
                f"max_slope: {shown(max_slope)} without heights; give surface or elevation"
            )
        if level and (horizontal_raster is None or vertical_factor is not None):
            raise InputError("surface: None, and so is elevation; give one of them")
        rasters = {"surface": surface, "elevation": elevation, HORIZONTAL: horizontal_raster}
        for name, raster in rasters.items():
            if raster is not None:
                open_raster(raster, argument=name)  # refuses others; no cell is read
        others = {"factor": horizontal_factor, "coefficients": horizontal_coefficients}
        for name, given in others.items():
            if given is not None and horizontal_raster is None:
                raise InputError(
                    f"horizontal_{name}: {shown(given)} without a horizontal_raster; give one"
                )
        self.surface = surface
        self.elevation = elevation
        check_elevation_unit(elevation_unit)
        self.elevation_unit = elevation_unit
        self.horizontal_raster = horizontal_raster
        self.coefficients = factor_coefficients(vertical_factor, vertical_coefficients)
        """Coefficients of the factor of slope."""

        self.horizontal: tuple[float, ...] = ()
        """Coefficients of the factor of direction; none without one."""
        if horizontal_raster is not None:
            factor = "binary" if horizontal_factor is None else horizontal_factor
            self.horizontal = horizontal_coefficients_of(factor, horizontal_coefficients)
        self._factor, self._horizontal_factor = vertical_factor, horizontal_factor
        self._max_slope = max_slope

    def __repr__(self) -> str:
        return f"<orograph.TerrainCost: {self.model}>"

    def _repr_html_(self) -> str:
        """Return the arguments as a table."""
        rows = {
            "surface": shown(self.surface),
            "elevation": shown(self.elevation),
            **({} if self.elevation_unit is None else {"unit of heights": self.elevation_unit}),
            "vertical factor": shown(self._factor),
            **({} if self._max_slope is None else {"max_slope": f"{self._max_slope:g} degrees"}),
        }
        if self.horizontal_raster is not None:
            rows["horizontal raster"] = shown(self.horizontal_raster)
            rows["horizontal factor"] = shown(self._horizontal_factor or "binary")
        return html.table("Terrain cost", rows)

    @property
    def model(self) -> str:
        """Name of the cost model: with directions, with one raster of heights, or with two."""
        if self.horizontal_raster is not None:
            return "terrain_horizontal"
        # One raster given for both lengths and slopes is read once, by the model with one raster.
        both = self.surface is not None and self.elevation is not None
        return "terrain_surface" if both and self.surface is not self.elevation else "terrain"

    @property
    def rasters(self) -> dict[str, Any]:
        """The rasters that the model needs in addition to friction, by name."""
        heights = self.surface if self.elevation is None else self.elevation
        if self.model == "terrain":
            return {"elevation": heights}
        lengths = heights if self.surface is None else self.surface
        # The model with directions takes two rasters of heights, so one given alone serves as both.
        directions = {HORIZONTAL: self.horizontal_raster} if self.horizontal else {}
        return {"elevation": heights, "surface": lengths, **directions}
