"""Colours of categories and directions that people with colour blindness can tell apart too.

All pairs of each palette differ by at least 15 in CIEDE2000, for normal vision and for full
deuteranopia and protanopia as Machado, Oliveira and Fernandes (2009, doi:10.1109/TVCG.2009.113)
simulate them; the tests measure it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orograph.tiles.arrays import Array

PALETTE = (
    "#9580ff", "#eaea80", "#801500", "#004095", "#55806a", "#eabfff", "#008095", "#6a2a40",
    "#956a15", "#aaaa00", "#95bf95", "#6aaaaa",
)  # fmt: skip
COMPASS = ("#475592", "#564147", "#79501e", "#aa7f2a", "#c5b875", "#acd4cb", "#80c1f8", "#4a87dd")
"""Colours of the eight directions, from east clockwise."""
GREY = np.array([0.6, 0.6, 0.6])
MOST_ROUNDS = 500  # they end sooner unless a region has too many neighbours

Colours = npt.NDArray[np.float64]


def as_rgb(colours: tuple[str, ...]) -> Colours:
    """Return hexadecimal colours as red, green and blue from 0 to 1, shape (n, 3)."""
    return np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])


def region_colours(cells: Array, known: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the labels in a picture, ascending, and for each the index of its colour.

    Neighbours are labels next to one another in a row or in a column, with nothing or only unknown
    cells between them.

    Parameters
    ----------
    cells : integer array, shape (h, w)
        Labels.
    known : bool array, shape (h, w)
        Which cells have one.
    """
    labels, index = np.unique(cells[known], return_inverse=True)
    numbers = np.full(cells.shape, -1)
    numbers[known] = index
    pairs = [np.empty((2, 0), int)]
    # Where colours do not repeat, neighbours do not matter. Nonzero lists the known cells line by
    # line, so labels that follow one another in a line are neighbours, also across unknown cells.
    for lines in (numbers, numbers.T) if labels.size > len(PALETTE) else ():
        line, _ = at = np.nonzero(lines >= 0)
        values = lines[at]
        beside = (line[1:] == line[:-1]) & (values[1:] != values[:-1])
        pairs.append(np.stack([values[:-1][beside], values[1:][beside]]))
    return labels, spread_colours(labels.size, np.concatenate(pairs, axis=1))


def spread_colours(count: int, pairs: Array) -> Array:
    """Return the index of a colour of `PALETTE` for each region.

    As many regions as there are colours differ from one another; of more, neighbours differ.

    Parameters
    ----------
    count : int
        Number of regions.
    pairs : integer array, shape (2, n)
        Neighbours, in any order.
    """
    colour = np.arange(count) % len(PALETTE)
    if count <= len(PALETTE):
        return colour
    # Regions choose in the order of their numbers of neighbours, the most first, each a colour that
    # no neighbour before it has; ties in random order, so that few wait for one another in a chain.
    # In each round those choose anew, at once, that have the colour of a neighbour before them.
    degree = np.bincount(pairs.ravel(), minlength=count)
    order = np.lexsort((np.random.default_rng(0).random(count), -degree))
    rank = np.argsort(order)
    colour = colour[order]
    before, after = np.unique(np.sort(rank[pairs], axis=0), axis=1)
    for _ in range(MOST_ROUNDS):
        clash = colour[before] == colour[after]
        if not clash.any():
            break
        chosen = np.unique(after[clash])
        taken = np.zeros(count, np.int64)
        np.bitwise_or.at(taken, after, 1 << colour[before])
        turned = (colour[chosen, None] + np.arange(1, len(PALETTE))) % len(PALETTE)
        free = taken[chosen, None] >> turned & 1 == 0
        colour[chosen] = turned[np.arange(chosen.size), free.argmax(axis=1)]
    return colour[rank]
