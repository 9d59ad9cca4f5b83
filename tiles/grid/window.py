"""Windows: rectangles of cells of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from orograph.tiles.arguments import check_integer, shown
from orograph.tiles.errors import InputError

# Coordinates of rows and columns are kept in memory: 1 GiB each at this length, which is the
# circumference of the Earth in steps of 0.3 m. Indices of cells and of edges then fit 64 bits.
LONGEST_SIDE = 2**27


def check_sides(shape: tuple[int, int], what: str) -> None:
    """Raise InputError if a grid has more than `LONGEST_SIDE` rows or columns."""
    if max(shape) > LONGEST_SIDE:
        raise InputError(
            f"{what}: {shape[0]} x {shape[1]} cells; at most {LONGEST_SIDE} a side can be "
            "worked on: if that is no mistake in its header, cut it into parts"
        )


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Rectangle of cells: rows ``y`` to ``y + height``, columns ``x`` to ``x + width``."""

    y: int
    x: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.height * self.width

    @property
    def slices(self) -> tuple[slice, slice]:
        """Row and column slices of this window in an array of the whole grid."""
        return slice(self.y, self.y + self.height), slice(self.x, self.x + self.width)

    def within(self, outer: Window) -> tuple[slice, slice]:
        """Return the row and column slices of this window in an array of ``outer``."""
        y, x = self.y - outer.y, self.x - outer.x
        return slice(y, y + self.height), slice(x, x + self.width)

    def grow(self, width: int) -> Window:
        """Return this window with ``width`` more rows and columns on each side."""
        more = 2 * width
        return Window(self.y - width, self.x - width, self.height + more, self.width + more)

    def overlap(self, other: Window) -> Window:
        """Return the part of this window inside another one, possibly empty."""
        y, x = max(self.y, other.y), max(self.x, other.x)
        bottom = min(self.y + self.height, other.y + other.height)
        right = min(self.x + self.width, other.x + other.width)
        return Window(y, x, max(bottom - y, 0), max(right - x, 0))

    def clip(self, shape: tuple[int, int]) -> Window:
        """Return the part of this window inside a grid of ``shape``, possibly empty."""
        return self.overlap(Window(0, 0, *shape))


def parse_window(
    window: Window | tuple[int, int, int, int] | None, shape: tuple[int, int]
) -> Window:
    """Check a window given by a user and return it; None stands for the whole grid.

    Raises
    ------
    InputError
        If it is empty, leaves the grid, or is not four whole numbers.
    """
    if window is None:
        return Window(0, 0, *shape)
    given = (window.y, window.x, *window.shape) if isinstance(window, Window) else window
    try:
        numbers = [check_integer("window", n, -LONGEST_SIDE, LONGEST_SIDE) for n in given]
        part = Window(*numbers)
    except (InputError, TypeError):
        raise InputError(
            f"window: {shown(window)}; give its first row, first column, rows and columns, as "
            "whole numbers"
        ) from None
    if part.size <= 0 or min(part.height, part.width) < 1 or part.clip(shape) != part:
        raise InputError(
            f"window: {(part.y, part.x, *part.shape)} (row, column, rows, columns) is empty or "
            f"leaves the raster of {shape[0]} x {shape[1]} cells; give a part of it"
        )
    return part


def corners_and_middle(shape: tuple[int, int], side: int) -> list[Window]:
    """Return up to five windows of a grid: those at its corners and the one in its middle.

    Examples
    --------
    >>> [(window.y, window.x) for window in corners_and_middle((9, 9), 3)]
    [(0, 0), (0, 6), (6, 0), (6, 6), (3, 3)]
    >>> corners_and_middle((2, 3), 3)
    [Window(y=0, x=0, height=2, width=3)]
    """
    windows = []
    for places in ((0, 0), (0, 2), (2, 0), (2, 2), (1, 1)):
        y, x = (max(n - side, 0) * place // 2 for n, place in zip(shape, places, strict=True))
        windows.append(Window(y, x, side, side).clip(shape))
    return list(dict.fromkeys(windows))
