"""Flow directions as numbers: the steps in their order, and the encodings of other programs.

Within the kernels a cell holds the number of the step that its water takes, from 0 to 7, or one of
the values below. `decode` makes such numbers of the codes of an encoding, `Encoding.table` codes of
numbers. Numbers are of steps by rows and columns, named as if the first row lay in the north; codes
are compass directions, so both take the orientation of the grid.

Codes are arrays of 8 bits, numbers uint8, both (h, w). Each row is done by itself, so the result
does not depend on an order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orograph.kernels.compiled import compiled
from orograph.tiles.arrays import Array
from orograph.tiles.grid.orientation import NORTH_UP, Orientation

Codes = NDArray[np.uint8]

STEPS = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
"""Steps (rows, columns) in the order in which ties are broken: east, then counterclockwise."""

STEP_NAMES = (
    *("east", "north_east", "north", "north_west"),
    *("west", "south_west", "south", "south_east"),
)

SINK = 8
"""The water ends here, leaves the grid, or flows into nodata."""
MISSING = 9
"""Nodata."""
OUT = 10
"""The water leaves the array for a cell beyond it."""
UNKNOWN = 11
"""A code that the encoding does not have."""
LEAVES = 16
"""Added to the number of a step that leads off the grid or into nodata."""
LOWEST, HIGHEST = -128, 255
"""Bounds of the codes of all encodings."""


class Encoding(NamedTuple):
    """Codes of an encoding."""

    steps: tuple[int, ...]
    """Code of each step."""
    leaving: tuple[int, ...]
    """Code of each step that leads off the grid or into nodata."""
    sink: int
    nodata: int
    dtype: type[np.integer[Any]]

    def flags(self) -> dict[str, Any]:
        """Return the attributes by which CF states the meaning of each code."""
        meanings = dict(zip(self.steps, STEP_NAMES, strict=True))
        for code, name in zip(self.leaving, STEP_NAMES, strict=True):
            meanings.setdefault(code, f"{name}_leaving")
        meanings[self.sink] = "pit"
        return {"flag_values": list(meanings), "flag_meanings": " ".join(meanings.values())}

    def table(self, orientation: Orientation = NORTH_UP) -> Array:
        """Return the code of each number, in a grid of an orientation."""
        table = np.full(LEAVES + len(STEPS), self.nodata, self.dtype)
        order = orientation.order(STEPS)
        table[: len(STEPS)], table[LEAVES:] = (
            np.array(codes)[order] for codes in (self.steps, self.leaving)
        )
        table[SINK] = self.sink
        return table

    def numbers(self, orientation: Orientation = NORTH_UP) -> Codes:
        """Return the number of each code, from `LOWEST` to `HIGHEST`, in a grid."""
        found = np.full(HIGHEST - LOWEST + 1, UNKNOWN, np.uint8)
        for codes in (self.leaving, self.steps):
            found[np.array(codes) - LOWEST] = orientation.order(STEPS)
        found[self.sink - LOWEST], found[self.nodata - LOWEST] = SINK, MISSING
        return found


_TAUDEM = (1, 2, 3, 4, 5, 6, 7, 8)
_ESRI = (1, 128, 64, 32, 16, 8, 4, 2)
_GRASS = (8, 1, 2, 3, 4, 5, 6, 7)
_LDD = (6, 9, 8, 7, 4, 1, 2, 3)

ENCODINGS = {
    "taudem": Encoding(_TAUDEM, _TAUDEM, 0, 255, np.uint8),
    "esri": Encoding(_ESRI, _ESRI, 0, 255, np.uint8),
    "grass": Encoding(_GRASS, tuple(-code for code in _GRASS), 0, -128, np.int8),
    "ldd": Encoding(_LDD, (5,) * len(STEPS), 5, 255, np.uint8),
}
"""The encodings by their names. Of "ldd" all cells whose water goes no further are pits."""


def steps_in_rows(width: int) -> NDArray[np.int64]:
    """Return the change of a row-major index for each direction number; 0 unless it is a step."""
    steps = np.zeros(LEAVES + len(STEPS), np.int64)
    steps[: len(STEPS)] = [dy * width + dx for dy, dx in STEPS]
    return steps


@compiled
def _decode(codes, numbers, steps, out):
    """Write the numbers of codes into a ring of `MISSING`; return how many codes are unknown."""
    height, width = codes.shape
    unknown = 0
    for y in range(height):
        row = codes[y]
        line = out[y + 1, 1 : width + 1]
        for x in range(width):
            number = numbers[row[x]]
            unknown += number == UNKNOWN
            line[x] = number
    flat = out.reshape(-1)
    # A second pass, since a step may lead to a row whose numbers the first one had yet to write.
    # The ring of `MISSING` stands for what is beyond the array.
    for y in range(1, height + 1):
        first = y * (width + 2) + 1
        for i in range(first, first + width):
            number = flat[i]
            if number < SINK and flat[i + steps[number]] == MISSING:
                flat[i] = SINK
    return unknown


def decode(
    codes: Array,
    encoding: Encoding,
    nodata: float | int | None,
    orientation: Orientation = NORTH_UP,
) -> tuple[Codes, bool]:
    """Return the numbers of codes, and whether all are of the encoding.

    Steps that lead out of the array or into nodata become `SINK`.

    Parameters
    ----------
    codes : (h, w) array of any real dtype
    encoding : Encoding
    nodata : number, optional
        A value that stands for nodata, beside that of the encoding.
    orientation : Orientation
        That of the grid.
    """
    numbers = encoding.numbers(orientation)
    if nodata is not None and LOWEST <= nodata <= HIGHEST and nodata == int(nodata):
        numbers[int(nodata) - LOWEST] = MISSING
    if codes.dtype.itemsize == 1:
        # Codes of 8 bits are looked up by their bits, taken as unsigned.
        of_bits = numbers[np.arange(256).astype(np.uint8).view(codes.dtype).astype(int) - LOWEST]
        bits = codes.view(np.uint8)
    else:
        of_bits = np.arange(256).astype(np.uint8)
        # Anything else than a whole number within bounds is unknown before it is looked up.
        known = (codes >= LOWEST) & (codes <= HIGHEST) & (codes == np.trunc(codes))
        bits = np.where(known, numbers[np.where(known, codes, 0).astype(int) - LOWEST], UNKNOWN)
        missing = np.isnan(codes) if codes.dtype.kind == "f" else np.zeros(codes.shape, np.bool_)
        bits[missing if nodata is None else missing | (codes == nodata)] = MISSING
        bits = bits.astype(np.uint8)
    height, width = codes.shape
    out = np.full((height + 2, width + 2), MISSING, np.uint8)
    unknown = _decode(np.ascontiguousarray(bits), of_bits, steps_in_rows(width + 2), out)
    return out[1:-1, 1:-1], unknown == 0


def leave_at_border(numbers: Codes) -> Codes:
    """Return a copy of a tile's numbers in which steps that lead out of it are `OUT`."""
    tile = numbers.copy()
    for line, beyond in (
        (tile[0], [k for k, (dy, _) in enumerate(STEPS) if dy < 0]),
        (tile[-1], [k for k, (dy, _) in enumerate(STEPS) if dy > 0]),
        (tile[:, 0], [k for k, (_, dx) in enumerate(STEPS) if dx < 0]),
        (tile[:, -1], [k for k, (_, dx) in enumerate(STEPS) if dx > 0]),
    ):
        line[np.isin(line, beyond)] = OUT
    return tile
