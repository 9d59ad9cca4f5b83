"""Exchange values between tiles along links: edges between cells that are not neighbours.

What a border is to a neighbour, the values at the tails of links are to the tiles of their heads:
the driver keeps the last value sent along each link that leads from one tile to another, and gives
a tile those of the links that arrive in it. Links within a tile are the problem's own affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array, Integers
from orograph.tiles.grid.window import Window


class LinksOfTile(NamedTuple):
    """Numbers of the links inside, leaving and arriving in a tile, ascending."""

    inside: Integers
    """Numbers of the links with both ends in the tile."""
    leaving: Integers
    arriving: Integers


@dataclass(frozen=True, eq=False)
class Links:
    """Directed links between cells of the grid, sorted by the row of their tails."""

    tail: Integers
    head: Integers
    """Rows and columns of the cells where links end, (n, 2), as ``tail`` has those where they
    begin."""
    cost: Array
    """Cost of each link, shape (n,), in the dtype of distances."""
    edge: Integers
    """Number of the edge that each link was made of, shape (n,). For a step over a pole, its
    direction: the code of north or south, negative."""
    points: npt.NDArray[np.float64] | None = None
    """Map coordinates of both ends of each link, shape (n, 2, 2), where these are known."""

    @cached_property
    def _by_head(self) -> tuple[Integers, Integers]:
        """Numbers of the links sorted by the rows of their heads, and these rows."""
        order = np.argsort(self.head[:, 0], kind="stable")
        return order, self.head[order, 0]

    @property
    def none(self) -> Links:
        """No links, in the same dtypes."""
        return Links(self.tail[:0], self.head[:0], self.cost[:0], self.edge[:0])

    @property
    def of_graph(self) -> bool:
        """Whether some were made of edges of a graph, rather than all of steps over poles."""
        return not self.edge.size or bool(self.edge.max() >= 0)

    @cached_property
    def symmetric(self) -> bool:
        """Whether for each link there is one back at the same cost."""
        there = np.lexsort((self.cost, *self.head.T, *self.tail.T))
        back = np.lexsort((self.cost, *self.tail.T, *self.head.T))
        return all(
            np.array_equal(one[there], other[back])
            for one, other in (
                (self.tail, self.head),
                (self.head, self.tail),
                (self.cost, self.cost),
            )
        )

    @cached_property
    def backward(self) -> Links:
        """The same links from their heads to their tails."""
        order, _ = self._by_head
        return Links(self.head[order], self.tail[order], self.cost[order], self.edge[order])

    def of_tile(self, window: Window) -> LinksOfTile:
        """Return the numbers of the links that have an end in a window."""
        # Links are sorted by the rows of their tails: only those in the rows of the window are
        # tested.
        first, last = np.searchsorted(self.tail[:, 0], (window.y, window.y + window.height))
        out = np.arange(first, last)
        out = out[_inside(self.tail[out], window)]
        stays = _inside(self.head[out], window)
        # Those that arrive are found by the rows of their heads in the same way.
        by_head, rows = self._by_head
        first, last = np.searchsorted(rows, (window.y, window.y + window.height))
        into = by_head[first:last]
        into = into[_inside(self.head[into], window)]
        into = into[~_inside(self.tail[into], window)]
        return LinksOfTile(out[stays], out[~stays], np.sort(into))


def _inside(cells: Integers, window: Window) -> npt.NDArray[np.bool_]:
    y, x = cells[:, 0] - window.y, cells[:, 1] - window.x
    return np.asarray((y >= 0) & (y < window.height) & (x >= 0) & (x < window.width))


@dataclass(frozen=True)
class LinkBorder:
    """Last values sent along the links that arrive in a tile, and along those that leave it."""

    arriving: list[Array]
    sent: list[Array]


@dataclass(frozen=True)
class LinkNews:
    """New values that a visit to a tile sends along the links that leave it."""

    values: list[Array]
    """Values along the leaving links, one array for each of `LinkBorder.sent`, with the new
    ones."""
    keys: npt.NDArray[np.float64]
    """Least value by which each link may improve the tile of its head; infinite where not new."""

    def after(self, earlier: LinkNews | None) -> LinkNews:
        """Merge with the news of an earlier visit to the same tile: latest values, least keys."""
        if earlier is None:
            return self
        return LinkNews(self.values, np.minimum(self.keys, earlier.keys))


class LinkBoard:
    """The driver's copy of the last values sent along each link."""

    def __init__(self, links: Links, blank: list[Any], tile: int) -> None:
        self.values = [np.full(links.edge.size, value) for value in blank]
        self._links, self._tile = links, tile
        self._of: dict[tuple[int, int], LinksOfTile] = {}

    def border(self, tile: tuple[int, int]) -> LinkBorder:
        """Return the last values sent along the links that arrive in and leave a tile."""
        _, leaving, arriving = self._links_of(tile)
        return LinkBorder(*([v[numbers] for v in self.values] for numbers in (arriving, leaving)))

    def take(self, tile: tuple[int, int], news: LinkNews) -> dict[tuple[int, int], float]:
        """Store the values that a tile sends; return the tiles they may improve, with keys."""
        leaving = self._links_of(tile).leaving
        for known, values in zip(self.values, news.values, strict=True):
            known[leaving] = values
        # The least key for each tile in which a new value arrives, with tiles numbered by rows.
        new = news.keys < np.inf
        row, column = (self._links.head[leaving[new]] // self._tile).T
        columns = int(column.max(initial=0)) + 1
        tiles, number = np.unique(row * columns + column, return_inverse=True)
        least = np.full(tiles.size, np.inf)
        np.minimum.at(least, number, news.keys[new])
        places = zip(*(n.tolist() for n in np.divmod(tiles, columns)), strict=True)
        return dict(zip(places, least.tolist(), strict=True))

    def _links_of(self, tile: tuple[int, int]) -> LinksOfTile:
        if tile not in self._of:
            row, column = (n * self._tile for n in tile)
            self._of[tile] = self._links.of_tile(Window(row, column, self._tile, self._tile))
        return self._of[tile]
