"""The function `explore`, which shows any result on an interactive map."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.forest.edges import forest_lines
from orograph.plotting.layers import (
    LAYERS,
    MOST_CLASSES,
    PATHS,
    SOURCES,
    Coloured,
    colour_layer,
)
from orograph.plotting.look import Look
from orograph.plotting.plot import MOST_PIXELS, move_points, read_result, units_of
from orograph.plotting.rasters import Drawing, colour_raster, is_drawn_as_lines, lazily
from orograph.plotting.relief import shadows
from orograph.plotting.sampled_raster import HALF, Extent, read_picture
from orograph.plotting.tables import read_marks
from orograph.results.paths import LeastCostPath, LeastCostPaths
from orograph.tiles.arguments import as_plain, check_integer, is_number, shown
from orograph.tiles.arrays import Array
from orograph.tiles.errors import InputError, own_errors, report_missing
from orograph.tiles.grid.crs import parse_crs
from orograph.tiles.raster.raster import RasterLike, open_raster
from orograph.tiles.vector.layer import VectorLayer, VectorLike

if TYPE_CHECKING:
    from folium import FeatureGroup, Map
    from matplotlib.colors import Colormap

    from orograph.tiles.raster.points import PointsLike

MERCATOR, DEGREES = "EPSG:3857", "EPSG:4326"
STEPS = 32  # colours of a colour bar


@own_errors
def explore(
    result: RasterLike | VectorLike,
    *,
    variable: str | None = None,
    column: str | None = None,
    cmap: str | Colormap | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    unit: str | None = None,
    sources: PointsLike | None = None,
    basemap: RasterLike | None = None,
    map: Map | None = None,
    tiles: str | None = "OpenStreetMap",
    opacity: float = 0.7,
    max_pixels: int = 1000,
) -> Map:
    """Show a result on an interactive map, in a notebook or as a web page.

    A raster is reprojected to Web Mercator and embedded in the page as a picture, so that the map
    does not need a server. Layers, paths and tables become shapes that show their columns on
    hovering.

    Parameters
    ----------
    result : Dataset, DataArray, path, LeastCostPath, VectorLayer, or anything that is one
        Result to draw, as for `plot`. It needs a CRS.
    variable : str, optional
        Raster of a Dataset to draw; by default the one that the operation is named for.
    column, cmap, vmin, vmax, unit
        Colours of values, as for `plot`.
    sources : sequence of (x, y), or vector layer, optional
        Sources to mark; by default those that `plot` marks.
    basemap : DataArray, array or path, optional
        Elevation whose hillshade is drawn over the colours of the result.
    map : folium.Map, optional
        The map to draw on; by default a new one.
    tiles : str, optional
        Name or address of the map tiles below the result, as for `folium.Map`; None omits them. The
        browser loads them; apart from folium's scripts, only they need a network.
    opacity : float
        Opacity of rasters, from 0 to 1.
    max_pixels : int
        Number of pixels along the longer side of a picture.

    Returns
    -------
    folium.Map
        The map. Notebooks display it, and its method ``save`` writes a page.

    Raises
    ------
    InputError
        If the argument cannot be drawn, or does not have a CRS.
    OrographError
        If folium or matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np, rioxarray, xarray as xr
    >>> import orograph as og
    >>> axes = {"y": [46.02, 46.01, 46.0], "x": [7.0, 7.01, 7.02, 7.03]}
    >>> heights = xr.DataArray(np.ones((3, 4)), axes, ("y", "x")).rio.write_crs("EPSG:4326")
    >>> m = og.explore(og.walking_time(heights, [(7.0, 46.0)]))
    >>> m.save("hours.html")
    """
    with report_missing("explore", "folium and matplotlib", "explore"):
        import folium
        import matplotlib  # noqa: F401
    max_pixels = check_integer("max_pixels", max_pixels, 1, MOST_PIXELS)
    share = as_plain(opacity)
    if not is_number(share) or not 0 <= share <= 1:
        raise InputError(f"opacity: {shown(opacity)}; it must be a number from 0 to 1")
    if tiles is not None and not (isinstance(tiles, str) and tiles):
        raise InputError(f"tiles: {shown(tiles)}; give the name or address of tiles, or None")
    if map is not None and not isinstance(map, folium.Map):
        raise InputError(f"map: {shown(map)}; it must be a folium.Map, or be left out")
    look = Look.checked(cmap, vmin, vmax, unit, column)
    table, layer, raster, crs, marked = read_result(result, variable, sources)
    if crs is None:
        raise InputError(
            "result: it has no CRS, so it has no place on a map; set it with rio.write_crs(...), "
            "or draw it with og.plot"
        )
    terrain = None if basemap is None else open_raster(basemap, argument="basemap")
    # The map of Web Mercator ends at 85 degrees; what is nearer to the poles is cut off.
    within = (-HALF, HALF)
    drawing = shades = None
    if raster is not None and is_drawn_as_lines(raster):
        look.refuse(Look._fields, "a forest, which is drawn as lines")
        layer = forest_lines(lazily(raster))
    elif raster is not None:
        units = units_of(result, raster)
        drawing = colour_raster(raster, MERCATOR, max_pixels, units, look, within=within)
    if terrain is not None:
        shades = read_picture(terrain, MERCATOR, max_pixels, "basemap", within)
    title = str(raster.attrs.get("long_name") or raster.name) if raster is not None else "layer"
    # What is drawn over a picture that goes on beyond 180 degrees goes on there, too.
    first, degrees = -np.inf, parse_crs(crs, "result").is_geographic
    if drawing is not None and drawing.extent[1] > HALF and not degrees:
        first = sum(drawing.extent[:2]) / 2 / HALF * 180 - 180
    groups: list[FeatureGroup] = []
    bounds: list[Array] = []
    if drawing is not None:
        groups.append(folium.FeatureGroup(_text(title)))
        bounds.append(_add_image(groups[0], drawing.rgba(), drawing.extent, share))
    if shades is not None:
        groups.append(folium.FeatureGroup("hillshade"))
        bounds.append(_add_image(groups[-1], shadows(shades, MERCATOR), shades.extent, 1.0))
    coloured = None
    if layer is not None:
        is_path = isinstance(result, LeastCostPath | LeastCostPaths)
        name = "path" if is_path else title
        placed = _on_map(layer, "result", first)
        coloured = colour_layer(placed, look)
        fills = None if coloured is None else coloured.colours
        groups.append(_shapes(placed, name, PATHS if is_path else LAYERS, fills))
        bounds.append(placed.points()[0])
    if table is not None:
        look.refuse(Look._fields, "tables")
        from shapely import LineString

        _, paths, marks = read_marks(table)
        paths = [path for path in paths if len(path) > 1]
        if paths:
            lines = VectorLayer(np.array([LineString(path) for path in paths], object), {}, crs)
            groups.append(_shapes(_on_map(lines, "result", first), "path", PATHS))
        for mark, places in marks:
            bounds.append(_turned(move_points(places, crs, DEGREES), first))
            groups.append(_points(bounds[-1], mark.label, mark.colour))
    if isinstance(marked, VectorLayer):
        groups.append(_shapes(_on_map(marked, "sources", first), "source", SOURCES))
    elif marked is not None:
        places = _turned(move_points(marked, crs, DEGREES), first)
        groups.append(_points(places, "source", SOURCES))
    # A map that was passed in keeps its view and its controls.
    m = folium.Map(tiles=tiles, control_scale=True) if map is None else map
    for group in groups:
        group.add_to(m)
    legend = drawing or coloured
    if legend is not None and legend.scale is not None:
        _add_colorbar(m, legend)
    elif legend is not None and legend.classes:
        _add_classes(m, legend.classes, legend.label)
    if map is None:
        folium.LayerControl().add_to(m)
        (left, bottom), (right, top) = _around(bounds)
        m.fit_bounds([[bottom, left], [top, right]])
    return m


def _add_image(
    group: FeatureGroup, colours: npt.NDArray[np.float64], extent: Extent, opacity: float
) -> Array:
    """Add a picture in Web Mercator; return its corners, longitude and latitude."""
    from folium.raster_layers import ImageOverlay

    left, right, bottom, top = extent
    corners = move_points(np.array([[left, bottom], [right, top]]), MERCATOR, DEGREES)
    corners[:, 0] = np.array([left, right]) * 180 / HALF  # also beyond 180 degrees
    pixels = np.round(colours * 255).astype(np.uint8)
    ImageOverlay(pixels, bounds=corners[:, ::-1].tolist(), opacity=opacity, pixelated=True).add_to(
        group
    )
    return corners


def _on_map(layer: VectorLayer, name: str, first: float) -> VectorLayer:
    """Return a layer in degrees, cut at the 180th meridian unless it was in degrees before.

    Longitudes below ``first`` become those a turn further east.
    """
    import shapely

    if layer.crs is None or parse_crs(layer.crs, name).is_geographic:
        return layer.in_crs(DEGREES, name)
    cut = layer.in_degrees(DEGREES, name)
    turned = shapely.transform(cut.geometry, lambda points: _turned(points, first))
    return replace(cut, geometry=turned)


def _turned(points: Array, first: float) -> Array:
    """Return points in degrees, those west of ``first`` a turn further east."""
    return points + np.stack([360.0 * (points[:, 0] < first), 0.0 * points[:, 1]], axis=1)


def _shapes(layer: VectorLayer, name: str, colour: str, fills: Array | None = None) -> FeatureGroup:
    """Return the shapes of a layer in degrees, with their columns."""
    import folium
    from matplotlib.colors import to_hex

    spoken = layer.__geo_interface__
    for number, feature in enumerate(spoken["features"]):
        properties = {
            _text(str(key)): _text(str(value)) for key, value in feature["properties"].items()
        }
        feature["properties"] = properties
        fill = colour if fills is None else to_hex(fills[number])
        outlined = fills is not None and "Polygon" in feature["geometry"]["type"]
        feature["style"] = {
            "color": "#202020" if outlined else fill,
            "weight": 1 if outlined else 3,
            "fillColor": fill,
            "fillOpacity": 0.2 if fills is None else 0.7,
        }
    group = folium.FeatureGroup(_text(name))
    columns = [_text(str(column)) for column in layer.columns]
    folium.GeoJson(
        spoken,
        style_function=lambda feature: feature["style"],
        marker=folium.CircleMarker(radius=5, fill=True),
        tooltip=folium.GeoJsonTooltip(columns) if columns else _text(name),
    ).add_to(group)
    return group


def _points(places: Array, name: str, colour: str) -> FeatureGroup:
    """Return circles at points in degrees; points without coordinates are left out."""
    import folium

    name = _text(name)
    features = [
        {
            "type": "Feature",
            "properties": {name: str(number)},
            "geometry": {"type": "Point", "coordinates": place},
        }
        for number, place in enumerate(places.tolist())
        if np.isfinite(place).all()
    ]
    group = folium.FeatureGroup(name)
    if features:
        style = {"color": "#202020", "weight": 1, "fillColor": colour, "fillOpacity": 1.0}
        folium.GeoJson(
            {"type": "FeatureCollection", "features": features},
            style_function=lambda feature: style,
            marker=folium.CircleMarker(radius=5, fill=True),
            tooltip=folium.GeoJsonTooltip([name]),
        ).add_to(group)
    return group


def _text(text: str) -> str:
    """Return text as HTML that is neither markup, nor code of the page or of its template."""
    # folium renders scripts as Jinja templates ({), with template literals of JavaScript (`, $, \\)
    return re.sub(r"[`$\\{}]", lambda sign: f"&#{ord(sign[0])};", escape(text))


def _add_colorbar(m: Map, drawing: Drawing | Coloured) -> None:
    """Add a colour bar that places each colour according to the norm of the values."""
    from branca.colormap import LinearColormap

    scale: Any = drawing.scale
    shares = np.linspace(0, 1, STEPS)
    values = np.asarray(scale.norm.inverse(shares), float)
    if not values[-1] > values[0]:
        # A colour bar needs rising values.
        values = values[0] + shares  # one value
    bar = LinearColormap(
        [tuple(colour) for colour in scale.cmap(shares)[:, :3].tolist()],
        index=values.tolist(),
        vmin=float(values[0]),
        vmax=float(values[-1]),
        caption=re.sub(r"\{(?=[{%#])", "{ ", drawing.label),  # a text node, in a Jinja template
    )
    bar.add_to(m)


def _add_classes(m: Map, classes: tuple[tuple[str, Any], ...], title: str) -> None:
    """Add the legend of classes in a corner of the map."""
    from branca.element import Element
    from matplotlib.colors import to_hex

    many = len(classes) > MOST_CLASSES
    title = f"{len(classes)} in all; colours repeat" if many else title
    rows = "" if many else "".join(
        f"<div><span style='display:inline-block;width:1em;height:1em;"
        f"background:{to_hex(colour)}'></span> {_text(name)}</div>"
        for name, colour in classes
    )  # fmt: skip
    legend = (
        "<div style='position:absolute;bottom:24px;right:10px;z-index:1000;background:white;"
        f"padding:6px;border-radius:4px'><strong>{_text(title)}</strong>{rows}</div>"
    )
    root: Any = m.get_root()
    root.html.add_child(Element(legend))


def _around(bounds: list[Array]) -> tuple[list[float], list[float]]:
    """Return the south-west and north-east corners around points."""
    points = np.concatenate(bounds)
    points = points[np.isfinite(points).all(axis=1)]
    low, high = points.min(axis=0), points.max(axis=0)
    return low.tolist(), high.tolist()
