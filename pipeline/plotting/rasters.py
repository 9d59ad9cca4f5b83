"""Draw rasters: values by colour, labels and directions as classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.forest.edges import forest_lines
from orograph.kernels.flow.codes import ENCODINGS, LOWEST, SINK
from orograph.plotting.colours import COMPASS, PALETTE, as_rgb, region_colours
from orograph.plotting.frame import add_colorbar
from orograph.plotting.labels import paint_regions
from orograph.plotting.layers import PATHS, draw_layer, name_classes
from orograph.plotting.look import NO_LOOK, Look
from orograph.plotting.sampled_raster import Extent, Picture, read_picture
from orograph.results.names import name_labels
from orograph.tiles.arrays import Array
from orograph.tiles.raster.raster import Raster

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

    from orograph.tiles.grid.crs import CRSLike

_NUMBERED = {"labels", "allocation", "catchment", "depression", "watershed", "link"}
_CLASSES = {*_NUMBERED, "back_direction"}
_WITH_BACKGROUND = {"labels", "depression", "link"}
_POINTS = ("east", "south-east", "south", "south-west", "west", "north-west", "north",
           "north-east")  # fmt: skip
SOURCE = np.zeros(3)
# Most cells of a forest that is drawn as lines, and most labels that are named.
MOST_LINES = 2**18
MOST_NUMBERS = 12


class Drawing(NamedTuple):
    """Colours of a raster on a map, and their legend."""

    cells: Array
    """Masked values, shape (h, w); or colours of classes, shape (h, w, 4)."""
    extent: Extent
    label: str
    """Label of the colour bar, or title of the classes."""
    scale: ScalarMappable | None = None
    """Norm and colour map of the values; None where there are classes."""
    classes: tuple[tuple[str, Any], ...] = ()
    """Names and colours of the classes."""
    numbers: Picture | None = None
    """Labels to be written on the map, where there are too many for a legend."""

    def rgba(self) -> npt.NDArray[np.float64]:
        """Return the colours, shape (h, w, 4)."""
        if self.scale is None:
            return self.cells
        colours: npt.NDArray[np.float64] = self.scale.to_rgba(self.cells)
        return colours


class _Scale(NamedTuple):
    """Colours of values."""

    colours: str = "viridis"
    spread: str = "even"
    """Spread of colours over values: ``"even"``, or ``"root"`` or ``"log"`` if few are large."""
    positive: bool = False
    """Whether only values above 0 are drawn."""


_SCALES = {
    "depth": _Scale("viridis_r", "root", True),
    "accumulation": _Scale("viridis_r", "log", True),
    "length": _Scale("viridis_r", "log", True),
    "order": _Scale("viridis_r", "even", True),
    "paths": _Scale("viridis_r", "log", True),
    "direction": _Scale("twilight"),
}


def is_drawn_as_lines(raster: Raster) -> bool:
    """Return whether a raster is a forest small enough to draw its edges."""
    return raster.name == "edges" and raster.shape[0] * raster.shape[1] <= MOST_LINES


def draw_raster(
    axes: Axes,
    raster: Raster,
    crs: CRSLike | None,
    max_pixels: int,
    units: str | None,
    look: Look = NO_LOOK,
) -> None:
    """Draw a raster on axes whose map has the given CRS."""
    axes.set_title(str(raster.attrs.get("long_name") or raster.name or ""), wrap=True)
    if is_drawn_as_lines(raster):
        look.refuse(Look._fields, "a forest, which is drawn as lines")
        lines = forest_lines(lazily(raster))
        draw_layer(axes, lines if crs is None else lines.in_crs(crs, "result"), PATHS, width=0.6)
        return
    drawing = colour_raster(raster, crs, max_pixels, units, look)
    how: dict[str, Any] = {}
    if drawing.scale is not None:
        how = {"cmap": drawing.scale.cmap, "norm": drawing.scale.norm}
    image = axes.imshow(drawing.cells, extent=drawing.extent, interpolation="nearest", **how)
    if drawing.scale is not None:
        add_colorbar(axes, image, drawing.label)
    else:
        name_classes(axes, list(drawing.classes), drawing.label)
    if drawing.numbers is not None:
        _write_numbers(axes, drawing.numbers)


def colour_raster(
    raster: Raster,
    crs: CRSLike | None,
    max_pixels: int,
    units: str | None,
    look: Look = NO_LOOK,
    **how: Any,
) -> Drawing:
    """Return the colours of a raster on a map with the given CRS; ``how`` is for `read_picture`."""
    name = raster.name or ""
    look.refuse(("column",), "rasters")
    if name in _CLASSES or raster.attrs.get("flow_codes") in ENCODINGS:
        look.refuse(Look._fields, f"{name}, whose values are classes")
    picture = read_picture(raster, crs, max_pixels, **how)
    if name in _NUMBERED:
        # 0 is the background of some labels, and a label like others of the rest.
        known = picture.known & ((picture.cells != 0) | (name not in _WITH_BACKGROUND))
        return _numbers(picture._replace(known=known), raster.attrs)
    if name == "back_direction":
        codes = picture.cells
        # knight's moves are named by the eighth of the compass in which they lie
        eighth = np.where(codes > 8, (codes - 9) // 2 + 1, codes).astype(int) - 1
        return _directions(picture, eighth, codes == 0, "step back", "source")
    if raster.attrs.get("flow_codes") in ENCODINGS:
        numbers = ENCODINGS[raster.attrs["flow_codes"]].numbers()
        steps = numbers[picture.cells.astype(int) - LOWEST].astype(int)
        # Steps are counted counterclockwise from the east, colours clockwise.
        return _directions(picture, -steps % 8, steps == SINK, "flow to the", "pit")
    return _values(name, picture, units, look)


def lazily(raster: Raster) -> Any:
    import xarray as xr

    from orograph.tiles.grid.window import Window

    place = raster.georeference
    cells = raster.read(Window(0, 0, *raster.shape))
    return xr.DataArray(cells, place.coords(), (place.y_name, place.x_name), "edges")


def _values(name: str, picture: Picture, units: str | None, look: Look) -> Drawing:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    (cells, units), known = look.scaled(picture.cells, units), picture.known
    scale = _SCALES.get(name, _Scale())
    if name == "edges":
        # A forest too large for lines: the number of edges that begin in a cell.
        cells = np.bitwise_count(cells)
    if name == "hops":
        known = known & (cells >= 0)
    if scale.positive:
        known = known & (cells > 0)
    drawn = np.ma.masked_array(cells, ~known)
    norm = Normalize(0, 2 * math.pi) if name == "direction" else look.norm(drawn, scale.spread)
    label = f"{name} [{units}]" if units else name
    return Drawing(drawn, picture.extent, label, ScalarMappable(norm, look.cmap or scale.colours))


def _numbers(picture: Picture, attrs: Mapping[str, Any]) -> Drawing:
    """Return labels in colours that differ between neighbours, with names if ``attrs`` have any."""
    cells, known, extent = picture
    numbers, colour = region_colours(cells, known)
    names = name_labels(attrs, numbers.tolist()) or [None] * numbers.size
    texts = [str(number) if name is None else name for name, number in zip(names, numbers)]
    return Drawing(
        paint_regions(cells, known, numbers, colour),
        extent,
        "",
        classes=tuple(zip(texts, as_rgb(PALETTE)[colour])),
        numbers=picture if numbers.size > MOST_NUMBERS else None,
    )


def _directions(picture: Picture, eighth: Array, ends: Array, title: str, end: str) -> Drawing:
    """Return the colours of eighths of the compass, from east clockwise, and of ends of the way."""
    colours = as_rgb(COMPASS)
    drawn = np.zeros((*eighth.shape, 4))
    drawn[..., :3] = colours[eighth % 8]
    drawn[ends, :3] = SOURCE
    drawn[picture.known, 3] = 1.0
    return Drawing(drawn, picture.extent, title, classes=((end, SOURCE), *zip(_POINTS, colours)))


def _write_numbers(axes: Axes, picture: Picture) -> None:
    """Write the labels of the largest regions where these are widest."""
    from matplotlib.patheffects import withStroke
    from scipy.ndimage import distance_transform_edt

    cells, known, (left, right, bottom, top) = picture
    numbers, counts = np.unique(cells[known], return_counts=True)
    for number in numbers[np.argsort(-counts, kind="stable")[:MOST_NUMBERS]].tolist():
        inside = known & (cells == number)
        rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
        part = inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        # Padded, as the edge of the part is an edge of the region as well.
        depth = distance_transform_edt(np.pad(part, 1))[1:-1, 1:-1]
        row, column = np.unravel_index(depth.argmax(), depth.shape)
        x = left + (right - left) * (columns[0] + column + 0.5) / cells.shape[1]
        y = top + (bottom - top) * (rows[0] + row + 0.5) / cells.shape[0]
        text = axes.text(x, y, str(number), ha="center", va="center", size="small", clip_on=True)
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
