"""Draw the hillshade of a terrain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orograph.plotting.sampled_raster import Picture, read_picture
from orograph.tiles.grid.crs import CRSLike, parse_crs
from orograph.tiles.raster.raster import Raster

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AZIMUTH, ALTITUDE = math.radians(315), math.radians(45)
STEEP = 0.6  # the slope to which the 90th percentile of a terrain's slopes is raised
DARK, LIGHT = 0.75, 0.45  # how far shadows are blackened and lit slopes whitened


def draw_relief(axes: Axes, elevation: Raster, crs: CRSLike | None, max_pixels: int) -> None:
    """Darken shadows and lighten lit slopes in a picture, so that flat ground keeps its colours."""
    terrain = read_picture(elevation, crs, max_pixels, "basemap")
    axes.imshow(shadows(terrain, crs), extent=terrain.extent, zorder=0.8, interpolation="bilinear")


def shadows(terrain: Picture, crs: CRSLike | None) -> npt.NDArray[np.float64]:
    """Return black where a terrain lies in the shade and white where it is lit, shape (h, w, 4)."""
    heights = np.where(terrain.known, terrain.cells, np.nan).astype(float)
    left, right, bottom, top = terrain.extent
    height, width = heights.shape
    north, east = abs(top - bottom) / height, abs(right - left) / width
    if crs is not None and parse_crs(crs, "basemap").is_geographic:
        # Only the ratio of both sides matters, since slopes are scaled below.
        east *= max(math.cos(math.radians((top + bottom) / 2)), 0.05)
    light = np.ones_like(heights) * math.sin(ALTITUDE)
    if min(heights.shape) > 1:
        rise_south, rise_east = np.gradient(heights, north, east)
        slope = np.hypot(rise_south, rise_east)
        known = slope[np.isfinite(slope)]
        # Slopes are scaled such that flat land shows its relief and mountains are not all black.
        usual = np.percentile(known, 90) if known.size else 0.0
        scale = STEEP / usual if usual > 0 else 0.0
        # Rise towards the light, whose azimuth is clockwise from the north, then Lambert's cosine.
        towards = rise_south * math.cos(AZIMUTH) - rise_east * math.sin(AZIMUTH)
        light = (math.sin(ALTITUDE) + math.cos(ALTITUDE) * scale * towards) / np.hypot(
            1, scale * slope
        )
    flat = math.sin(ALTITUDE)
    drawn = np.zeros((height, width, 4))
    lit = light > flat
    drawn[lit, :3] = 1.0
    drawn[..., 3] = np.where(
        lit, LIGHT * (light - flat) / (1 - flat), DARK * (flat - np.maximum(light, 0)) / flat
    )
    drawn[~np.isfinite(light), 3] = 0.0
    return drawn
