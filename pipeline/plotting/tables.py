"""Draw tables of peaks, passes and depressions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.plotting.layers import PATHS, draw_points, halo
from orograph.results.opening import is_table_path, open_result
from orograph.tiles.errors import InputError
from orograph.tiles.vector.turns import split_turns, stated_turn, unwound

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


Coordinates = npt.NDArray[np.float64]
MANY = 300  # marks that are drawn small


class Marks(NamedTuple):
    """Marks of one kind of place in a table."""

    prefix: str
    """Prefix of the columns with the coordinates: ``x`` and ``y`` follow."""
    marker: str
    colour: str
    label: str


# by a column that only this table has: its title, and what is marked; the first kind counts where a
# place is of several, as targets that are the points and the pass from a point to itself
_TABLES: dict[str, tuple[str, tuple[Marks, ...]]] = {
    "prominence": (
        "peaks and their key cols",
        (Marks("", "^", "#ffffff", "peak"), Marks("col_", "X", PATHS, "key col")),
    ),
    "spill_elevation": (
        "depressions and where they spill",
        (Marks("pit_", "o", "#2b8cbe", "lowest cell"), Marks("spill_", "X", PATHS, "spill")),
    ),
    "pass_x": (
        "passes between points",
        (
            Marks("point_", "o", "#ffffff", "point"),
            Marks("target_", "s", "#2b8cbe", "target"),
            Marks("pass_", "D", "#ffd23f", "pass"),
        ),
    ),
}


def read_table(result: object) -> xr.Dataset | None:
    """Return a table of peaks, passes or depressions, also from a store; else None."""
    import xarray as xr

    if isinstance(result, str | os.PathLike) and is_table_path(result):
        try:
            result = open_result(result, "peaks")
        except InputError:
            return None
    if not isinstance(result, xr.Dataset) or "labels" in result:
        return None
    return result if any(name in result for name in _TABLES) else None


def draw_table(
    axes: Axes, table: xr.Dataset, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
) -> None:
    """Draw the points of a table, and its paths if it has any.

    ``move`` takes points, shape (n, 2), from the CRS of the table to that of the axes.
    """
    title, paths, marks = read_marks(table)
    for path in paths:
        axes.plot(*move(path).T, color=PATHS, linewidth=1.4, path_effects=halo(1.4))
    for mark, places in marks:
        size = 7.0 if len(places) <= MANY else 3.5
        draw_points(axes, move(places), mark.marker, mark.colour, mark.label, size=size)
    axes.set_title(title)


def read_marks(
    table: xr.Dataset,
) -> tuple[str, list[Coordinates], list[tuple[Marks, Coordinates]]]:
    """Return the title of a table, its paths, and the places of each kind of mark.

    Paths over the seam of a grid that wraps are cut there.
    """
    title, kinds = next(drawn for name, drawn in _TABLES.items() if name in table)
    paths = []
    if "path_cells" in table:
        stops = np.cumsum(table["path_cells"].values)[:-1]
        paths = np.split(np.stack([table["path_x"].values, table["path_y"].values], axis=1), stops)
        if (turn := stated_turn(table.attrs)) is not None:
            lines = (unwound(path, turn) for path in paths if len(path) > 1)
            paths = [piece for line in lines for piece in split_turns(line, *turn)]
    marks = []
    marked: set[tuple[float, ...]] = set()
    for kind in kinds:
        columns = (table[f"{kind.prefix}{axis}"].values.ravel() for axis in "xy")
        places = np.stack(list(columns), axis=1)
        new = [place not in marked for place in map(tuple, places.tolist())]
        if any(new) or not marked:
            marks.append((kind, places[new]))
        marked.update(map(tuple, places.tolist()))
    return title, paths, marks
