"""Border of a tile and the halo around it, the data that neighbouring tiles exchange.

`probe_border` bounds what a tile can improve in its neighbours: it looks at the edges from its
border into the halo. Only cells that hold less than what was last sent count. Serial, each edge
looked at once; the same bits as the sweeps, for it is the same `edge`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from orograph.kernels.compiled import compiled
from orograph.kernels.relax.edge_costs import edge
from orograph.kernels.vectors.lanes import MOVES, borrowed
from orograph.tiles.arrays import Array
from orograph.tiles.grid.neighbours import NEIGHBOURS

if TYPE_CHECKING:
    from orograph.kernels.relax.tile import TileState

Border = list[Any]
"""Cells that face each of the eight `NEIGHBOURS`, in their order; None in place of no cells."""

# neighbours: north, south, west, east, north-west, north-east, south-west, south-east
_NEIGHBOUR = np.array([[4, 0, 5], [2, -1, 3], [6, 1, 7]])


@compiled
def _part(i, length):
    return 0 if i < 0 else (2 if i >= length else 1)


@compiled
def _probe(dist, friction, elevation, rules, passable, north, south, west, east, keys):
    friction, elevation, rules = borrowed((friction, elevation, rules))
    reach = rules.reach
    height = dist.shape[0] - 2 * reach
    width = dist.shape[1] - 2 * reach
    cost = np.empty(2, dist.dtype)
    for y in range(height):
        # Rows at the north and the south are looked at from end to end, of all others only the
        # first and the last ``reach`` cells. Where no halo beside them has a passable cell, rows
        # are skipped.
        whole = (y < reach and passable[0]) or (y >= height - reach and passable[1])
        if not (whole or passable[2] or passable[3]):
            continue
        x = 0
        while x < width:
            if y < reach:
                sent = north[y, x]
            elif y >= height - reach:
                sent = south[y - (height - reach), x]
            elif x < reach:
                sent = west[y, x]
            else:
                sent = east[y, x - (width - reach)]
            start = dist[y + reach, x + reach]
            # A value that the neighbours already have improves nothing there. A new value matters
            # only for steps into the halo; steps that stay inside (k < 0) are this tile's own work.
            if start < sent:
                for m in range(2 * rules.steps + 2):
                    dy = MOVES[m, 0]
                    dx = MOVES[m, 1]
                    k = _NEIGHBOUR[_part(y + dy, height), _part(x + dx, width)]
                    if k < 0 or start >= dist[y + dy + reach, x + dx + reach]:
                        continue
                    # Costs are not negative: a halo cell that holds no more than this one was
                    # skipped without the edge's cost being computed. The sum goes by way of an
                    # array, which rounds it to the dtype of distances.
                    edge(friction, elevation, y + reach, x + reach, dy, dx, rules, cost)
                    cost[1] = start + cost[0]
                    value = cost[1]
                    if value < dist[y + dy + reach, x + dx + reach] and value <= rules.limit:
                        keys[k] = min(keys[k], value)
            x += 1
            if not whole and x == reach and width - reach > reach:
                x = width - reach


def probe_border(
    state: TileState, sent: list[npt.NDArray[Any]], passable: tuple[bool, ...] | None = None
) -> npt.NDArray[np.float64]:
    """Return the least value that the changed border cells may pass on to each neighbour.

    Parameters
    ----------
    state : TileState
        A tile whose halo holds the borders last received from the neighbours.
    sent : four arrays
        What the neighbours know of the border: north (r, w), south (r, w), west (h, r), east (h,
        r).
    passable : four bool, optional
        As `passable_sides` gives it, where it is known.

    Returns
    -------
    (8,) float64
        For the neighbours north, south, west, east, north-west, north-east, south-west and
        south-east; infinity where nothing can be improved.
    """
    keys = np.full(8, state.unreached, state.dist.dtype)
    surface = state.dist, state.friction, state.elevation, state.rules
    north, south, west, east = sent
    passable = passable_sides(state) if passable is None else passable
    _probe(*surface, passable, north, south, west, east, keys)
    out = keys.astype(np.float64)
    out[keys >= state.unreached] = np.inf
    return out


def passable_sides(state: TileState) -> tuple[bool, ...]:
    """Return whether the halo north, south, west and east has a passable cell.

    Beyond the grid it has none, and there is nothing to weigh.
    """
    rasters = [raster for raster in (state.friction, state.elevation) if raster.size]
    return tuple(
        all(bool((strip < state.unreached).any()) for strip in strips)
        for strips in zip(*(halo_strips(r, state.rules.reach) for r in rasters), strict=True)
    )


def halo_strips(dist: Any, reach: int) -> list[Any]:
    """Return the halo of a tile as views: rows north and south, then west and east between them.

    Parameters
    ----------
    dist : (h + 2 r, w + 2 r)
    reach : int
        r.
    """
    inside = dist[reach:-reach]
    return [dist[:reach], dist[-reach:], inside[:, :reach], inside[:, -reach:]]


def inner_of(padded: Array, reach: int) -> Array:
    """Return a padded array without its halo."""
    return padded[reach:-reach, reach:-reach]


def facing(inner: Array, reach: int) -> list[Array]:
    """Return the parts of a tile that face each of its neighbours, in the order of `NEIGHBOURS`."""
    rows = {-1: slice(None, reach), 0: slice(None), 1: slice(-reach, None)}
    return [inner[rows[dy], rows[dx]] for dy, dx in NEIGHBOURS]


def last_sent(sent: Border, own: list[Array], unreached: Any) -> list[Array]:
    """Return the last sent border; unreached where nothing was sent."""
    return [
        np.full(part.shape, unreached, part.dtype) if before is None else before
        for part, before in zip(own, sent, strict=True)
    ]


def improved_parts(own: list[Array], sent: list[Array]) -> Border:
    """Return the parts of a border that hold less than was last sent, None for the others."""
    return [
        # A restored state can hold more than was sent before it was lost. What was sent remains
        # true, so the neighbour gets the lesser of both.
        np.minimum(part, before) if (part < before).any() else None
        for part, before in zip(own, sent, strict=True)
    ]


def set_halo(strips: list[Array], halo: Border, reach: int, unreached: Any) -> tuple[int, bool]:
    """Set the halo to the neighbours' borders; return the sides where it fell, and if it changed.

    It may rise: a state may hold what a visit to a neighbour sent whose result was lost with its
    worker. Such values are right, but the neighbour must not be taken to hold them.

    Parameters
    ----------
    strips : four arrays
        The halo as `halo_strips` gives it; changed in place.
    halo : Border
        The borders of the neighbours that face the tile; None: unreached.
    reach : int
        Width of the halo in cells.
    unreached : number

    Returns
    -------
    sides : int
        Bit 0 north, 1 south, 2 west, 3 east; a corner belongs to both of its sides.
    changed : bool
    """
    sides, changed = 0, False
    for k, (dy, dx) in enumerate(NEIGHBOURS):
        # Corners are the ends of the strips north and south; the strips west and east lie between
        # these.
        strip = strips[{-1: 0, 1: 1}[dy] if dy else {-1: 2, 1: 3}[dx]]
        columns = {-1: np.s_[:reach], 0: np.s_[reach:-reach], 1: np.s_[-reach:]}[dx]
        mine = strip[:, columns] if dy else strip
        news = halo[k]
        if news is None:
            news = unreached
        elif news.shape != mine.shape:
            # a neighbour at the grid's end may be thinner than the halo; it lies against the tile
            y = mine.shape[0] - news.shape[0] if dy < 0 else 0
            mine = mine[y : y + news.shape[0], : news.shape[1]]
        if (news != mine).any():
            # Only a value that has fallen can lower cells of the tile, so only then is a side
            # woken.
            if (news < mine).any():
                sides |= {-1: 1, 0: 0, 1: 2}[dy] | {-1: 4, 0: 0, 1: 8}[dx]
            mine[...] = news
            changed = True
    return sides, changed
