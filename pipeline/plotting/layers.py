"""Draw points, lines and areas so that they can be seen over any ground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.plotting.colours import GREY, PALETTE, as_rgb, spread_colours
from orograph.plotting.frame import add_classes, add_colorbar
from orograph.plotting.look import Look, column_of
from orograph.tiles.vector.layer import VectorLayer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

    from orograph.tiles.vector.layer import Geometries

PATHS, LAYERS, SOURCES, OUTLINES = "#d1495b", "#2f6fde", "#ffd23f", "#202020"
HALO = 1.6  # points on each side of a line
MOST_CLASSES = 12

Coordinates = npt.NDArray[np.float64]


def halo(width: float) -> list[Any]:
    """Return path effects that draw a light edge around a line, for dark ground."""
    from matplotlib.patheffects import Normal, Stroke

    return [Stroke(linewidth=width + 2 * HALO, foreground="white", alpha=0.85), Normal()]


def draw_layer(
    axes: Axes,
    layer: VectorLayer,
    colour: str,
    width: float = 1.8,
    label: str | None = None,
    look: Look | None = None,
) -> None:
    """Draw a layer: lines and outlines with a halo, points with a light edge."""
    from matplotlib.collections import LineCollection
    from shapely import boundary, get_coordinates, get_dimensions

    from orograph.tiles.vector.burn import simple_parts

    parts, of = simple_parts(layer.geometry)
    kinds = get_dimensions(parts)
    inks: Any = np.full(len(parts), colour, object)
    drawing = colour_layer(layer, look)
    if drawing is not None:
        inks = [tuple(rgb) for rgb in drawing.colours[of].tolist()]
        if (kinds == 2).any():
            colour, width = OUTLINES, 0.8
            areas = get_dimensions(layer.geometry) == 2
            _fill_areas(axes, layer.geometry[areas], drawing.colours[areas])
        if drawing.scale is not None:
            add_colorbar(axes, drawing.scale, drawing.label)
        else:
            name_classes(axes, list(drawing.classes), drawing.label)
    outlines, _ = simple_parts(boundary(parts[kinds == 2]))
    lines = [get_coordinates(line) for line in [*parts[kinds == 1], *outlines]]
    of_lines = [ink for ink, kind in zip(inks, kinds, strict=True) if kind == 1]
    colours = [*of_lines, *[colour] * len(outlines)]
    collection = LineCollection(lines, linewidths=width, colors=colours or colour)
    if width > 1:  # a halo would hide other lines of a dense net
        collection.set_path_effects(halo(width))
    collection.set_label(label if lines else None)
    axes.add_collection(collection)
    points = get_coordinates(parts[kinds == 0])
    if len(points) and drawing is not None:
        of_points = [ink for ink, kind in zip(inks, kinds, strict=True) if kind == 0]
        axes.scatter(points[:, 0], points[:, 1], s=36, c=of_points, edgecolors="white", zorder=3)
    elif len(points):
        draw_points(axes, points, "o", colour, None if lines else label, size=6, edge="white")
    axes.autoscale_view()


def draw_points(
    axes: Axes,
    points: Coordinates,
    marker: str,
    colour: str,
    label: str | None,
    *,
    size: float = 7,
    edge: str = "black",
) -> None:
    """Draw marks with an edge of another lightness."""
    axes.plot(
        *(*points.T, marker),
        color=colour,
        markeredgecolor=edge,
        markersize=size,
        markeredgewidth=size / 8,
        label=label,
        linestyle="none",
        zorder=3,
    )


class Coloured(NamedTuple):
    """Colours of the geometries of a layer, and their legend."""

    colours: npt.NDArray[np.float64]
    """Red, green and blue of each geometry, from 0 to 1; grey where there is no value."""
    label: str = ""
    """Label of the colour bar, or title of the classes."""
    scale: ScalarMappable | None = None
    """Norm and colour map of the values; None where there are classes."""
    classes: tuple[tuple[str, Any], ...] = ()
    """Names and colours of the classes."""


def colour_layer(layer: VectorLayer, look: Look | None) -> Coloured | None:
    """Return the colours of a layer by the column that is chosen, or of areas by their kind.

    Numbers are coloured as values, but few whole ones as classes, like all else. Without a column
    isochrones and polygons of labels have colours; None for any other layer.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable

    if look is None or look.column is None:
        if look is not None:
            look.refuse(("cmap", "vmin", "vmax", "unit"), "layers without column=")
        return _colour_areas(layer)
    values, units = column_of(layer, look.column), layer.units.get(look.column)
    names, index = np.unique(
        values if values.dtype.kind in "iuf" else values.astype(str), return_inverse=True
    )
    few = names.size <= MOST_CLASSES and (look.vmin, look.vmax, look.unit) == (None,) * 3
    if values.dtype.kind in "iu" and few:  # such as orders
        inks = colormaps.get_cmap(look.cmap or "viridis")(np.linspace(0, 1, names.size))[:, :3]
        classes = tuple(zip(map(str, names.tolist()), inks))
        return Coloured(inks[index], look.column, classes=classes)
    if values.dtype.kind in "iuf":
        scaled, units = look.scaled(values.astype(float), units)
        scale = ScalarMappable(look.norm(scaled), look.cmap or "viridis")
        colours = scale.to_rgba(np.ma.masked_invalid(scaled))[:, :3]
        colours[~np.isfinite(scaled)] = GREY
        return Coloured(colours, f"{look.column} [{units}]" if units else look.column, scale)
    look.refuse(("cmap", "vmin", "vmax", "unit"), f"{look.column}, whose values are classes")
    inks = as_rgb(PALETTE)[np.arange(names.size) % len(PALETTE)]
    return Coloured(inks[index], look.column, classes=tuple(zip(names.tolist(), inks)))


def _colour_areas(layer: VectorLayer) -> Coloured | None:
    """Return the colours of isochrones and polygons of labels; None for any other layer."""
    from matplotlib import colormaps
    from shapely import STRtree, get_dimensions

    columns = layer.columns
    bounds = {"lower", "upper"} <= columns.keys()
    labelled = "label" in columns and columns["label"].dtype.kind in "iu"
    all_areas = bool((get_dimensions(layer.geometry) == 2).all())
    if not all_areas or not (bounds or labelled):
        return None
    values, index = np.unique(columns["upper" if bounds else "label"], return_inverse=True)
    if bounds:
        lower = np.array([columns["lower"][index == n].min() for n in range(values.size)])
        unit = f" {layer.units['upper']}" if "upper" in layer.units else ""
        names = [f"{low:g} to {up:g}{unit}" for low, up in zip(lower.tolist(), values.tolist())]
        colours = colormaps["viridis"](np.linspace(0, 0.95, values.size))[:, :3]
    else:
        first = np.unique(index, return_index=True)[1]
        given = columns["name"][first] if "name" in columns else [None] * first.size
        names = [str(label) if name is None else str(name) for name, label in zip(given, values)]
        # Areas that touch are neighbours and get different colours; each also meets itself.
        pairs = index[STRtree(layer.geometry).query(layer.geometry, predicate="intersects")]
        colours = as_rgb(PALETTE)[spread_colours(values.size, pairs[:, pairs[0] != pairs[1]])]
    return Coloured(colours[index], classes=tuple(zip(names, colours)))


def _fill_areas(axes: Axes, areas: Geometries, colours: npt.NDArray[np.float64]) -> None:
    """Fill areas with a colour each."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path
    from shapely import get_coordinates, get_parts, get_rings

    paths = []
    for geometry in areas:
        # All rings of an area as one compound path, so that holes stay empty.
        rings = [Path(get_coordinates(ring), closed=True)
                 for part in get_parts([geometry]) for ring in get_rings([part])]  # fmt: skip
        paths.append(Path.make_compound_path(*rings))
    # Below the hillshade, which has zorder 0.8, so that it shades the areas too.
    axes.add_collection(PathCollection(paths, facecolors=colours, edgecolors="none", zorder=0.7))


def name_classes(axes: Axes, entries: list[tuple[str, Any]], title: str = "") -> None:
    """Add the legend of classes; of many, which repeat colours, only their number."""
    if len(entries) > MOST_CLASSES:
        entries, title = [], f"{len(entries)} in all;\ncolours repeat"
    add_classes(axes, entries, title)
