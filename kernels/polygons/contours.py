"""Lines of equal value and the bands between them, piece by piece.

Values are interpolated on the squares between the centres of four cells, linearly along the sides,
and lines are straight within a square (marching squares). Where only some of the four cells have a
value, the quarters of these cells that lie in the square are taken one by one: values at the middle
of a side and at the corner where cells meet are the means of the cells that meet there and have
one. So bands reach to the edges of cells without a value, and of the grid. A value that equals a
level counts as above it. Of a square whose corners lie alternately above and below, the middle is
above where the mean of its corners is.

Where the grid wraps, the squares between its last column and its first are cut along their middle,
the seam. Each half belongs to its own side of the grid: lines end at the seam, and the outline runs
along either side of it, through the same places. Lines are straight across the seam, so areas and
lengths are those of the grid cut elsewhere.

Places are those of a lattice of half cells: corners, middles of sides and centres of cells, of
which centres have odd rows and columns. A row of them is numbered from the centre before the grid
to the one beyond it, as edges over the seam begin there. *Edges* lead from a place to the next in
its row (2 times the place) or column (and 1); between the centres of two cells that have a value
there is one, from the first centre to the second. A *crossing* of an edge and a level is the edge
times the number of levels, plus the level. Corners of the outline, which follow the edges of cells,
are numbered after all crossings. So what two squares share has one number in both, and its position
is computed by one formula from the same two values.

A *piece* is a straight line between two crossings or corners, with the side of greater values, or
the band, on its left as seen with rows downwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array, Integers

NO_BAND = 255
"""Band of a cell without a value."""
# rows and columns of the corners of a square: south-west, and on with the square on the left
_ROW, _COLUMN = np.array([1, 1, 0, 0]), np.array([0, 1, 1, 0])


@compiled
def find_bands(values: Array, valid: Array, levels: Array, bands: Array) -> None:
    """Write the number of levels at or below each value, `NO_BAND` where it is missing."""
    for y in range(values.shape[0]):
        for x in range(values.shape[1]):
            band = 0
            for level in levels:
                band += values[y, x] >= level
            bands[y, x] = band if valid[y, x] else NO_BAND


@compiled(inline=True)
def _offset(level, start, end):
    """Return the place between two values, from 0 to 1, at which a level is crossed."""
    way = end - start
    # The difference overflows where both values are large: half of everything has the same
    # quotient.
    if np.isinf(way):
        way, level, start = end / 2 - start / 2, level / 2, start / 2
    return min(max((level - start) / way, 0.0), 1.0) if way != 0 else 0.5


@compiled
def _grown(array, count):
    if count <= array.shape[0]:
        return array
    larger = np.empty((2 * count, array.shape[1]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@compiled
def _chords(bands, edges, starts, ends, middle, levels, found, places, count):
    """Append the pieces of lines across a square, given its corners and sides in their order."""
    least, most = min(bands), max(bands)
    down, up = np.empty(2, np.int64), np.empty(2, np.int64)
    for level in range(least, most):
        falls = rises = 0
        for side in range(4):
            here, there = bands[side] > level, bands[(side + 1) % 4] > level
            if here and not there:
                down[falls] = side
                falls += 1
            elif there and not here:
                up[rises] = side
                rises += 1
        for n in range(falls):
            # from where it falls below the level to where it rises above: around the low corner,
            # or, of two, where the middle is low, around the high one
            m = n
            if falls == 2 and (middle >= levels[level]) != (bands[0] > level):
                m = 1 - n
            found, places = _grown(found, count + 1), _grown(places, count + 1)
            found[count, 0] = level
            for k, side in enumerate((down[n], up[m])):
                found[count, k + 1] = edges[side] * levels.size + level
                places[count, k] = _offset(levels[level], starts[side], ends[side])
            count += 1
    return found, places, count


@compiled
def _outline(bands, corners, edge, start, end, levels, found, places, count):
    """Append the pieces of an edge of the outline from one corner to another, band by band."""
    first, last = bands
    step = 1 if last > first else -1
    key, place = corners[0], 0.0
    for band in range(first, last + step, step):
        level = band if step > 0 else band - 1  # that it ends at
        key_after, place_after = corners[1], 0.0
        if band != last:
            key_after = edge * levels.size + level
            place_after = _offset(levels[level], start, end)
        found, places = _grown(found, count + 1), _grown(places, count + 1)
        found[count, 0], found[count, 1], found[count, 2] = band, key, key_after
        places[count, 0], places[count, 1] = place, place_after
        count += 1
        key, place = key_after, place_after
    return found, places, count


@compiled
def _cut_at_seam(own, middles, edges, ends, east, levels, found, places, first, count):
    """Cut the pieces from ``first`` on, across a square, and keep those in one of its halves.

    ``middles`` are the bands in the middle of the northern and the southern side, ``edges`` and
    ``ends`` the numbers of the four sides and of the two halves of the seam. Return how many pieces
    there are then, and the rows at which pieces of each level meet the seam: of one that comes from
    the northern side, and of another; NaN if there is none.
    """
    rows = np.full((2, levels.size), np.nan)
    x, y, western = np.empty(2), np.empty(2), np.empty(2, np.bool_)
    kept = first
    for k in range(first, count):
        level = found[k, 0]
        south_only = 1
        for n in range(2):
            side = 0
            while edges[side] * levels.size + level != found[k, n + 1]:
                side += 1
            # Sides are the southern, the eastern, the northern and the western one.
            if side % 2 == 0:
                x[n], y[n] = places[k, n], side == 0
                corner, middle = (own[0], middles[1]) if side == 0 else (own[3], middles[0])
                western[n] = (corner > level) != (middle > level)
            else:
                x[n], y[n] = side == 1, places[k, n]
                western[n] = side == 3
            if side == 2:
                south_only = 0
        found[kept], places[kept] = found[k], places[k]
        if western[0] == western[1]:
            kept += western[0] != east
            continue
        # From the western end, so that both halves get the same row.
        w = 0 if western[0] else 1
        way = x[1 - w] - x[w]
        share = min(max((0.5 - x[w]) / way, 0.0), 1.0) if way > 0 else 0.0
        rows[south_only, level] = 2 * (y[w] + share * (y[1 - w] - y[w]))
        beyond = w if east else 1 - w
        found[kept, beyond + 1] = ends[south_only] * levels.size + level
        places[kept, beyond] = rows[south_only, level] - south_only
        kept += 1
    return kept, rows


@compiled
def _outline_of_seam(middles, corners, ends, east, rows, levels, found, places, count):
    """Append the pieces of the seam within a square, of the half that lies on one side of it.

    ``corners`` are its northern and its southern end, ``ends`` the numbers of its two halves and
    ``rows`` as by `_cut_at_seam`.
    """
    # The band falls or rises to the one where levels that are met twice are met again.
    turn = middles[1]
    for level in range(levels.size):
        if not (np.isnan(rows[0, level]) or np.isnan(rows[1, level])):
            if middles[0] > level:
                turn = min(turn, level)
            else:
                turn = max(turn, level + 1)
    band, key, place = middles[0], corners[0], 0.0
    for target in (turn, middles[1], -1):
        while band != target:
            after, key_after, place_after = target, corners[1], 0.0
            if target >= 0:
                after = band + (1 if target > band else -1)
                level = min(band, after)
                half = 1 if np.isnan(rows[0, level]) else 0
                key_after = ends[half] * levels.size + level
                place_after = rows[half, level] - half
                rows[half, level] = np.nan
            found, places = _grown(found, count + 1), _grown(places, count + 1)
            # Southwards the eastern half lies on the left.
            start, end = (1, 2) if east else (2, 1)
            found[count, 0], found[count, start], found[count, end] = band, key, key_after
            places[count, start - 1], places[count, end - 1] = place, place_after
            count += 1
            band, key, place = after, key_after, place_after
    return found, places, count


@compiled
def _fill_square(values, bands, i, j, node, band, levels):
    """Write the values and bands of a square in which some cells have no value."""
    for r in range(3):
        for c in range(3):
            number, least, most = 0, NO_BAND, -1
            rows = range(i + r // 2, i + min(r, 1) + 1)
            columns = range(j + c // 2, j + min(c, 1) + 1)
            for y in rows:
                for x in columns:
                    if bands[y, x] != NO_BAND:
                        number += 1
                        least, most = min(least, int(bands[y, x])), max(most, int(bands[y, x]))
            mean = 0.0
            for y in rows:
                for x in columns:
                    if bands[y, x] != NO_BAND:
                        mean += values[y, x] / number
            own = 0
            for level in levels:
                own += mean >= level
            node[r, c], band[r, c] = mean, min(max(own, least), most) if number else NO_BAND


@compiled
def trace_contours(
    values: Array,
    bands: Array,
    levels: Array,
    top: int,
    left: int,
    shape: tuple[int, int],
    wraps: bool,
) -> tuple[Array, Array, Array, Array]:
    """Return the pieces of lines and of the outline in the squares of a tile.

    A square belongs to the tile that has its first cell; those before the grid's first row or
    column to the first tiles. Where the grid wraps, squares on the seam belong to the tiles on
    either side of it, half to each.

    Parameters
    ----------
    values : (h + 2, w + 2) float64
        Of a tile and the cells around it.
    bands : (h + 2, w + 2) uint8
        As by `find_bands`; `NO_BAND` beyond the grid. Where it wraps, the cells before its first
        column are those of the last one, and the reverse.
    levels : (n,) float64
        Increasing, at most 254.
    top, left : int
        The place of the tile in the grid.
    shape : (int, int)
        Of the grid.
    wraps : bool
        Whether its last column lies beside its first.

    Returns
    -------
    lines, outline : (n, 3) int64
        The level of each piece of a line, or the band of one of the outline, and its two ends.
    of_lines, of_outline : (n, 2) float64
        Where the ends lie on their edges, from 0 to 1.
    """
    across = 2 * shape[1] + 3
    corners = (2 * shape[0] + 1) * across * 2 * levels.size
    lines, of_lines = np.empty((256, 3), np.int64), np.empty((256, 2))
    outline, of_outline = np.empty((256, 3), np.int64), np.empty((256, 2))
    count = around = 0
    own, edges = np.empty(4, np.int64), np.empty(4, np.int64)
    starts, ends = np.empty(4), np.empty(4)
    node, band = np.empty((3, 3)), np.empty((3, 3), np.int64)
    for i in range(0 if top == 0 else 1, bands.shape[0] - 1):
        for j in range(0 if left == 0 else 1, bands.shape[1] - 1):
            a, b, c, d = bands[i, j], bands[i, j + 1], bands[i + 1, j], bands[i + 1, j + 1]
            # which halves of it lie at the seam: the eastern one in front of the first column
            east, west = wraps & (left + j == 0), wraps & (left + j == shape[1])
            if (a == b) & (a == c) & (a == d) & ((a == NO_BAND) | (not (east | west))):
                continue
            # the place of its first cell's centre, which may lie before the grid
            p, q = 2 * (top + i) - 1, 2 * (left + j)
            if (a != NO_BAND) & (b != NO_BAND) & (c != NO_BAND) & (d != NO_BAND):
                middle = 0.0
                for n in range(4):
                    y, x = i + _ROW[n], j + _COLUMN[n]
                    own[n] = bands[y, x]
                    middle += values[y, x] / 4
                for n in range(4):
                    v, u = min(_ROW[n], _ROW[(n + 1) % 4]), min(_COLUMN[n], _COLUMN[(n + 1) % 4])
                    down = n % 2
                    edges[n] = ((p + 2 * v) * across + q + 2 * u) * 2 + down
                    starts[n] = values[i + v, j + u]
                    ends[n] = values[i + v + down, j + u + 1 - down]
                first = count
                lines, of_lines, count = _chords(
                    own, edges, starts, ends, middle, levels, lines, of_lines, count
                )
                if east | west:
                    _fill_square(values, bands, i, j, node, band, levels)
                    middles, seam = (band[0, 1], band[2, 1]), p * across + q + 1
                    halves = 2 * seam + 1, 2 * (seam + across) + 1
                    count, rows = _cut_at_seam(
                        own, middles, edges, halves, east, levels, lines, of_lines, first, count
                    )
                    outline, of_outline, around = _outline_of_seam(
                        middles,
                        (corners + 2 * seam, corners + 2 * (seam + 2 * across)),
                        *(halves, east, rows, levels),
                        *(outline, of_outline, around),
                    )
                continue
            _fill_square(values, bands, i, j, node, band, levels)
            # where two cells touch at the corner alone, it is another one for each
            touch = ((a == NO_BAND) == (d == NO_BAND)) & ((b == NO_BAND) == (c == NO_BAND))
            for v in range(2):
                for u in range(2):
                    if (band[2 * v, 2 * u] == NO_BAND) | (east & (u == 0)) | (west & (u == 1)):
                        continue
                    middle = 0.0
                    for n in range(4):
                        own[n] = band[v + _ROW[n], u + _COLUMN[n]]
                        middle += node[v + _ROW[n], u + _COLUMN[n]] / 4
                    for n in range(4):
                        down, m = n % 2, (n + 1) % 4
                        r, s = v + min(_ROW[n], _ROW[m]), u + min(_COLUMN[n], _COLUMN[m])
                        # between two centres the edge is one, of both cells
                        far = 1
                        if not down and r != 1 and band[r, 2 - 2 * u] != NO_BAND:
                            s, far = 0, 2
                        if down and s != 1 and band[2 - 2 * v, s] != NO_BAND:
                            r, far = 0, 2
                        edges[n] = ((p + r) * across + q + s) * 2 + down
                        starts[n], ends[n] = node[r, s], node[r + far * down, s + far * (1 - down)]
                        # the cell beyond the side, of the sides that lie on edges of cells; each
                        # side of the seam has its own outline
                        if down and s == 1:
                            beyond = NO_BAND if east | west else band[2 * v, 2 - 2 * u]
                        elif not down and r == 1:
                            beyond = band[2 - 2 * v, 2 * u]
                        else:
                            continue
                        if beyond != NO_BAND:
                            continue
                        one = ((p + v + _ROW[n]) * across + q + u + _COLUMN[n]) * 2
                        other = ((p + v + _ROW[m]) * across + q + u + _COLUMN[m]) * 2
                        if touch and v == 1:
                            one += (v + _ROW[n] == 1) & (u + _COLUMN[n] == 1)
                            other += (v + _ROW[m] == 1) & (u + _COLUMN[m] == 1)
                        outline, of_outline, around = _outline(
                            (own[n], own[m]),
                            (corners + one, corners + other),
                            *(edges[n], starts[n], ends[n], levels),
                            *(outline, of_outline, around),
                        )
                    lines, of_lines, count = _chords(
                        own, edges, starts, ends, middle, levels, lines, of_lines, count
                    )
    return (
        lines[:count].copy(),
        of_lines[:count].copy(),
        outline[:around].copy(),
        of_outline[:around].copy(),
    )


@compiled
def follow(onward: Integers, order: Integers, ends: Integers) -> int:
    """List pieces so that each follows the one before it; return the number of chains.

    onward : the piece that follows each, -1 at the end of a chain.
    order : as large; becomes all pieces, chain by chain.
    ends : as large; becomes where each chain ends in ``order``.
    Chains that begin somewhere come first, by their first pieces; then circles, which begin with
    their first piece.
    """
    seen = np.zeros(onward.size, np.uint8)  # 1: another leads to it; 2: listed
    for i in onward:
        if i >= 0:
            seen[i] = 1
    count = done = 0
    for circles in range(2):
        for first in range(onward.size):
            if seen[first] != circles:
                continue
            i = first
            while i >= 0 and seen[i] != 2:
                seen[i] = 2
                order[done] = i
                done += 1
                i = onward[i]
            ends[count] = done
            count += 1
    return count


def compile_kernels(dtype: np.dtype[Any]) -> None:
    """Compile, or load from the cache, the functions for tiles of a dtype."""
    kind = np.int64 if dtype.kind in "iub" else np.float64
    bands = np.empty((3, 3), np.uint8)
    find_bands(np.zeros((3, 3), dtype), np.ones((3, 3), np.bool_), np.zeros(1, kind), bands)
    trace_contours(np.zeros((3, 3)), bands, np.zeros(1), 0, 0, (1, 1), False)
    follow(*np.full((3, 1), -1))
