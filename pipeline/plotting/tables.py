"""Draw tables of peaks, passes and depressions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import InputError
from orograph.tiles.storage import open_storage
from orograph.tiles.store.dataset import open as open_dataset

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


class _Marks(NamedTuple):
    prefix: str
    """Of the columns with the coordinates."""
    marker: str
    colour: str
    label: str


# by a column that only this table has: its title, and what is marked
_TABLES: dict[str, tuple[str, tuple[_Marks, ...]]] = {
    "prominence": (
        "peaks and their key cols",
        (_Marks("", "^", "#ffffff", "peak"), _Marks("col_", "X", "#d1495b", "key col")),
    ),
    "spill_elevation": (
        "depressions and where they spill",
        (_Marks("pit_", "o", "#2b8cbe", "lowest cell"), _Marks("spill_", "X", "#d1495b", "spill")),
    ),
    "pass_x": (
        "passes between points",
        (
            _Marks("target_", "s", "#2b8cbe", "target"),
            _Marks("point_", "o", "#ffffff", "point"),
            _Marks("pass_", "D", "#ffd23f", "pass"),
        ),
    ),
}


def read_table(result: Any) -> xr.Dataset | None:
    """Return a table of peaks, passes or depressions, also from a store; else None."""
    import xarray as xr

    if isinstance(result, str | os.PathLike) and os.path.isdir(result):
        try:
            result = open_dataset(open_storage(result, "result"))
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
    title, marks = next(drawn for name, drawn in _TABLES.items() if name in table)
    if "path_cells" in table:
        stops = np.cumsum(table["path_cells"].values)[:-1]
        places = np.stack([table["path_x"].values, table["path_y"].values], axis=1)
        for path in np.split(move(places), stops):
            axes.plot(*path.T, color="#d1495b", linewidth=1.4)
    for prefix, marker, colour, label in marks:
        places = np.stack([table[f"{prefix}{axis}"].values.ravel() for axis in "xy"], axis=1)
        axes.plot(
            *(*move(places).T, marker),
            color=colour,
            markeredgecolor="black",
            markersize=7,
            label=label,
            linestyle="none",
        )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_title(title)
