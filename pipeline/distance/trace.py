"""Follow back directions from cell to cell, window by window and over links."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orograph.distance.links import LINK_ENDS, NO_LINK
from orograph.kernels.shortest_path_tree.backtrack import (
    LEFT,
    LINKED,
    LOST,
    SOURCE,
    follow,
    follow_all,
)
from orograph.kernels.shortest_path_tree.tile import CODES, NO_DIRECTION
from orograph.tiles.arrays import Integers
from orograph.tiles.errors import InputError
from orograph.tiles.grid.orientation import Orientation
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.points import cells_of
from orograph.tiles.raster.raster import Raster, open_raster
from orograph.tiles.raster.wrap import NO_POLES, states_poles, touched_poles

if TYPE_CHECKING:
    import xarray as xr

READ_SIDE = 512


class PathReader:
    """Reader of back directions that keeps the last windows it has read."""

    def __init__(
        self, directions: Raster, result: xr.Dataset, orientation: Orientation, *, wraps: bool
    ) -> None:
        self._directions = directions
        self._result = result
        # of each code by the compass that by rows and columns
        self._codes = np.arange(256, dtype=np.uint8)
        # Other codes stand for sources, links and unreached cells. They stay.
        self._codes[1 : len(CODES) + 1] = 1 + orientation.order(list(CODES))
        self._side = directions.tile or READ_SIDE
        self.wraps = wraps
        """Whether paths go on from the last column to the first."""
        self.poles = touched_poles(directions) if states_poles(directions) else NO_POLES
        """Whether they go on over a pole from the first and from the last row."""
        self._kept: dict[tuple[int, int], tuple[Window, npt.NDArray[np.uint8]]] = {}

    def trace(
        self, number: int, row: int, column: int
    ) -> tuple[npt.NDArray[np.int64], dict[int, npt.NDArray[np.float64]]]:
        """Return the cells of the path from a cell to its source, and the links that it goes along.

        Of these the map coordinates (x, y) of both ends, by the place in the path of the cell from
        which they lead back.

        Ends: a way that goes on for ever goes round inside a window, or comes into one twice where
        it has come in before.
        """
        parts: list[npt.NDArray[np.int64]] = []
        links: dict[int, npt.NDArray[np.float64]] = {}
        entered: set[tuple[int, int]] = set()
        height, width = self._directions.shape
        while True:
            entered.add((row, column))
            window, codes = self._window(row, column)
            cells, how, outside = follow(codes, row - window.y, column - window.x)
            parts.append(cells + np.array([window.y, window.x]))
            if how == SOURCE:
                return np.concatenate(parts), links
            y, x = parts[-1][-1].tolist()
            if how == LINKED:
                (row, column), ends = self._over_link(number, y, x)
                links[sum(map(len, parts)) - 1] = ends
            else:
                row, column = outside[0] + window.y, outside[1] + window.x
                if self.wraps:
                    column %= width
                if (row < 0 and self.poles[0]) or (row >= height and self.poles[1]):
                    row, column = y, (column + width // 2) % width
            if how == LOST or (row, column) in entered:
                raise InputError(
                    f"result: back directions of point {number} lead nowhere at row {y}, column "
                    f"{x}; is back_direction what cost_distance has written, whole?"
                )
            if not (0 <= row < height and 0 <= column < width):
                raise InputError(
                    f"result: the path of point {number} leaves it at row {y}, column {x}, towards "
                    f"row {row}, column {column}: it is a part of a result; give the whole one, or "
                    "a part with the way to the source"
                )

    def trace_all(self, starts: Integers) -> tuple[Integers, Integers]:
        """Return the cells of the paths from several cells, path after path, and their numbers.

        No path goes along a link. A window is read once, unless more are on the way than are kept.
        """
        at = starts.copy()
        number, count, cells = [], [], []  # of the part of a path in a window
        length = np.zeros(len(starts), np.int64)
        going = np.arange(len(starts))
        while going.size:
            # Paths that go on in the same window are followed together, so it is read once a round.
            rows, columns = at[going].T // self._side
            order = np.lexsort((columns, rows))
            going, rows, columns = going[order], rows[order], columns[order]
            other = (np.diff(rows) != 0) | (np.diff(columns) != 0)
            left = []
            for paths in np.split(going, np.flatnonzero(other) + 1):
                window, codes = self._window(*at[paths[0]].tolist())
                corner = np.array([window.y, window.x])
                passed, counts, how, ends = follow_all(codes, at[paths] - corner)
                at[paths] = ends + corner
                if self.wraps:
                    at[paths, 1] %= self._directions.shape[1]
                number.append(paths)
                count.append(counts)
                cells.append(passed + corner)
                length[paths] += counts
                self._check_on_the_way(paths, how, at[paths], length[paths])
                left.append(paths[how == LEFT])
            going = np.concatenate(left)
        if not number:
            return np.empty((0, 2), np.int64), length
        numbers, counts = np.concatenate(number), np.concatenate(count)
        # Parts of a path were listed in the order in which it passes windows, which a stable sort
        # by path keeps; ``place`` then gathers the cells of the parts one after the other.
        order = np.argsort(numbers, kind="stable")
        first = (np.cumsum(counts) - counts)[order]
        counts = counts[order]
        place = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        return np.concatenate(cells)[place], length

    def _check_on_the_way(
        self,
        paths: Integers,
        how: Integers,
        at: Integers,
        length: Integers,
    ) -> None:
        """Raise InputError for paths that lead nowhere, or out of the raster."""
        shape = np.array(self._directions.shape)
        # A path of more cells than the grid has goes in a circle through several windows.
        wrong = (how == LOST) | (how == LINKED) | (length > shape.prod())
        wrong |= ((at < 0) | (at >= shape)).any(axis=1)
        if wrong.any():
            path = int(wrong.argmax())
            y, x = at[path].tolist()
            raise InputError(
                f"result: back directions of point {paths[path]} lead nowhere at row {y}, column "
                f"{x}; is back_direction what cost_distance has written, whole?"
            )

    def _over_link(
        self, number: int, row: int, column: int
    ) -> tuple[tuple[int, int], npt.NDArray[np.float64]]:
        """Return the cell at the other end of the link by which a cell was reached, and its ends.

        These are map coordinates (x, y), first of the end in the cell.
        """
        missing = {"back_link", *LINK_ENDS} - set(self._result)
        if missing:
            raise InputError(
                f"result: the path of point {number} goes along a link, and it has no "
                f"{min(missing)}; give all that cost_distance has returned, or the path of its "
                ".zarr or .nc, as a GeoTIFF holds no table of links"
            )
        edge = int(self._links.read(Window(row, column, 1, 1))[0, 0])
        ends = [self._result[name] for name in LINK_ENDS]
        if not 0 <= edge < ends[0].shape[0]:
            raise InputError(
                f"result: back_link at row {row}, column {column} is not a link: {edge}"
            )
        points = np.stack([axis[edge].values for axis in ends], axis=1)
        place, shape = self._directions.georeference, self._directions.shape
        try:
            cells = np.stack(cells_of(points, place, shape, "links"), axis=1).tolist()
        except InputError:
            raise InputError(
                f"result: the path of point {number} leaves it at row {row}, column {column}, "
                f"along link {edge}: it is a part of a result; give the whole one"
            ) from None
        # A link of an undirected edge may be listed from either end.
        if cells[0] != [row, column]:
            cells, points = cells[::-1], points[::-1]
        return (cells[1][0], cells[1][1]), points

    @cached_property
    def _links(self) -> Raster:
        return open_raster(self._result["back_link"], nodata=NO_LINK)

    def _window(self, row: int, column: int) -> tuple[Window, npt.NDArray[np.uint8]]:
        name = row // self._side, column // self._side
        if name not in self._kept:
            # 64 windows of `READ_SIDE` take 16 MiB; the one read first is dropped.
            if len(self._kept) >= 64:
                self._kept.pop(next(iter(self._kept)))
            window = Window(name[0] * self._side, name[1] * self._side, self._side, self._side)
            window = window.clip(self._directions.shape)
            codes = self._directions.read(window)
            if codes.dtype != np.uint8:  # xarray has made NaN of the code of unreached cells
                codes = np.nan_to_num(codes, nan=NO_DIRECTION).astype(np.uint8)
            self._kept[name] = window, self._codes[codes]
        return self._kept[name]
