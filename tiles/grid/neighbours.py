"""The eight neighbours of a tile, in the order used throughout."""

from __future__ import annotations

NEIGHBOURS = ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
"""Steps (rows, columns): north, south, west, east, then the corners."""

OPPOSITE = (1, 0, 3, 2, 7, 6, 5, 4)
"""``OPPOSITE[k]`` is the entry of the step back from neighbour ``k``."""
