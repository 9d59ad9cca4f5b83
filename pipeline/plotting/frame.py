"""Axis labels, aspect, scale bar and legends of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from orograph.tiles.grid.crs import CRSLike, parse_crs

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

GAP, BAR = 0.12, 0.16  # inches: to the next legend or colour bar, and the width of a bar
BAR_SPACE = 0.34, 0.16  # shares of the axes that a scale bar takes
BELOW = 36  # points between the axes and a legend below them, for ticks and axis label


@contextmanager
def same_view(axes: Axes) -> Iterator[None]:
    """Restore the axis limits on exit if the axes already show a raster."""
    view = (axes.get_xlim(), axes.get_ylim()) if axes.images else None
    yield
    if view is not None:
        axes.set(xlim=view[0], ylim=view[1])


def name_axes(axes: Axes, crs: CRSLike | None) -> None:
    """Set axis labels with units, unless the axes have labels; write coordinates in full."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    unit, east, north = "", "x", "y"
    if crs is not None:
        parsed = parse_crs(crs, "result")
        unit = min({axis.unit_name for axis in parsed.axis_info} or {""})
        unit = f" [{ {'metre': 'm', 'degree': '°'}.get(unit, unit) }]"
        east, north = ("longitude", "latitude") if parsed.is_geographic else ("x", "y")
    if not axes.get_xlabel() and not axes.get_ylabel():
        axes.set(xlabel=f"{east}{unit}", ylabel=f"{north}{unit}")
    for axis in (axes.xaxis, axes.yaxis):
        if isinstance(axis.get_major_formatter(), ScalarFormatter):
            formatter = ScalarFormatter(useOffset=False)
            formatter.set_scientific(False)
            axis.set_major_formatter(formatter)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def set_aspect(axes: Axes, crs: CRSLike | None) -> None:
    """Draw a metre to the east as long as one to the north, in the middle of the map."""
    low, high = axes.get_ylim()
    aspect = 1.0
    if crs is not None and parse_crs(crs, "result").is_geographic:
        # A degree of longitude shrinks with the cosine of the latitude. Beyond 87 degrees the
        # aspect stays as it is there, so that maps of a pole remain readable.
        aspect = 1 / max(math.cos(math.radians((low + high) / 2)), 0.05)
    axes.set_aspect(aspect)


def draw_scale_bar(axes: Axes, crs: CRSLike | None) -> Artist:
    """Draw a bar of 1, 2 or 5 times a power of ten, about a quarter of the width.

    It has the length on the ground in the middle of the map, and stands in the corner in which it
    hides the fewest marks.
    """
    from mpl_toolkits.axes_grid1.anchored_artists import AnchoredSizeBar

    left, right = axes.get_xlim()
    low, high = sorted(axes.get_ylim())
    a_unit, unit = 1.0, "cells"
    if crs is not None:
        a_unit, unit = _metres(crs, (left + right) / 2, (low + high) / 2, abs(right - left)), "m"
    quarter = abs(right - left) * a_unit / 4
    power = 10.0 ** math.floor(math.log10(quarter))
    # n = 1 fits always, since the power of ten is at most a quarter.
    length = max(n * power for n in (1, 2, 5) if n * power <= quarter)
    text = f"{length / 1000:g} km" if unit == "m" and length >= 1000 else f"{length:g} {unit}"
    bar = AnchoredSizeBar(
        *(axes.transData, length / a_unit, text, _free_corner(axes)),
        size_vertical=(high - low) / 150,
        pad=0.3,
        borderpad=0.6,
        sep=3,
        label_top=True,
        fill_bar=True,
    )
    bar.patch.set(alpha=0.75, linewidth=0)  # to be read over any colours
    return axes.add_artist(bar)


def _metres(crs: CRSLike, x: float, y: float, width: float) -> float:
    """Return the metres on the ground of a unit of a CRS to the east of a point.

    In Web Mercator, for instance, the unit of the axes is not a metre away from the equator.
    ``width`` is that of the map.
    """
    from pyproj import Transformer

    parsed = parse_crs(crs, "result")
    stated = float(parsed.axis_info[0].unit_conversion_factor) if parsed.axis_info else 1.0
    geod = parsed.get_geod()
    if geod is None:
        return stated
    if parsed.is_geographic:
        y = min(max(y, -90.0), 90.0)
        return float(geod.line_length([0, 1], [y, y]))
    # A central difference over a fiftieth of the map: its scale in the middle.
    step = width / 100
    degrees = Transformer.from_crs(parsed, parsed.geodetic_crs, always_xy=True)
    longitudes, latitudes = degrees.transform([x - step, x + step], [y, y])
    if not np.isfinite([longitudes, latitudes]).all():  # the middle is beyond the projection
        return stated
    return float(geod.line_length(longitudes, latitudes)) / (2 * step) or stated


def _free_corner(axes: Axes) -> str:
    """Return the corner of the axes with the fewest marks; of several the first."""
    places = [line.get_xydata() for line in axes.lines if line.get_linestyle() == "None"]
    marks = np.concatenate([np.empty((0, 2)), *places])
    # From data to shares of the axes, by way of pixels.
    shares = axes.transAxes.inverted().transform(axes.transData.transform(marks))
    corners = {"lower left": (0, 0), "lower right": (1, 0), "upper left": (0, 1),
               "upper right": (1, 1)}  # fmt: skip

    def hidden(corner: str) -> int:
        return int((np.abs(shares - corners[corner]) < BAR_SPACE).all(axis=1).sum())

    return min(corners, key=hidden)


def add_classes(axes: Axes, entries: list[tuple[str, Any]], title: str) -> None:
    """Add a legend of colours to the right of the axes and of what stands there."""
    from matplotlib.legend import Legend
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=colour, label=label) for label, colour in entries]
    legend = Legend(
        axes,
        patches,
        [label for label, _ in entries],
        title=title or None,
        loc="upper left",
        bbox_to_anchor=(_taken(axes) + GAP, 1),
        bbox_transform=_beside(axes),
        borderaxespad=0,
    )
    axes.add_artist(legend)
    legend.set_clip_on(False)  # the layout makes room only for artists that axes do not clip


def add_colorbar(axes: Axes, image: ScalarMappable, label: str) -> None:
    """Add a colour bar to the right of the axes and of what stands there."""
    bounds = (_taken(axes) + GAP, 0.1, BAR, 0.8)
    axes.figure.colorbar(image, cax=axes.inset_axes(bounds, transform=_beside(axes)), label=label)


def _beside(axes: Axes) -> Any:
    """Return the transform from inches to the right of the axes, and shares of their height."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    corner: Any = axes.transAxes
    inches = axes.figure.dpi_scale_trans + ScaledTranslation(1, 0, corner)
    return blended_transform_factory(inches, axes.transAxes)


def _taken(axes: Axes) -> float:
    """Return how many inches to the right of the axes legends and colour bars take."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.legend import Legend

    figure: Any = axes.figure.get_figure(root=True)
    right: float = axes.transAxes.transform((1, 0))[0]
    agg: Any = RendererAgg
    renderer = agg(1, 1, figure.dpi)  # that of the canvas would keep a picture's memory
    there = [*axes.child_axes, *(item for item in axes.artists if isinstance(item, Legend))]
    boxes = [item.get_tightbbox(renderer) for item in there]
    ends: list[float] = [(box.x1 - right) / figure.dpi for box in boxes if box is not None]
    return max([0.0, *ends])


def update_marks(axes: Axes) -> None:
    """Write the legend of points and lines, below the axes, where it hides nothing."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    if not named:
        return
    below = ScaledTranslation(0, -BELOW / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        named.values(),
        named.keys(),
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below,
        borderaxespad=0,
        ncols=min(len(named), 4),
        facecolor="0.85",
    )
