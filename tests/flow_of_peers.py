"""Flow directions of pyflwdir and sums of pysheds, as they are recorded.

    pip install pyflwdir pysheds
    python tests/flow_of_peers.py

To import pysheds compiles it, which takes a minute of a processor in every process. Directions and
sums are whole numbers, so nothing depends on how numbers are rounded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RECORD = Path(__file__).with_suffix(".npz")


def steep_heights() -> npt.NDArray[np.float64]:
    """Return heights without flats, shape (60, 70)."""
    return np.random.default_rng(9).random((60, 70))


def esri_codes() -> npt.NDArray[np.uint8]:
    """Return the recorded directions of pyflwdir on `fractal(150)`, filled; Esri's codes."""
    codes: npt.NDArray[np.uint8] = np.load(RECORD)["codes"]
    return codes


def filled_by_pyflwdir() -> npt.NDArray[np.uint8]:
    """Return the same by pyflwdir, which takes six seconds to compile."""
    import pyflwdir
    from terrain_cases import fractal

    return np.asarray(pyflwdir.dem.fill_depressions(fractal(150))[1], np.uint8)


def directions(heights: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the directions of pysheds, Esri's codes; not above 0 where it has none."""
    grid, raster = _raster(heights, np.float64(-1))
    return np.asarray(grid.flowdir(raster)).astype(np.int64)


def sums(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of cells that drain through each cell, by pysheds."""
    grid, raster = _raster(codes, np.int64(-1))
    return np.asarray(grid.accumulation(raster)).astype(np.int64)


def _raster(cells: npt.NDArray[Any], nodata: Any) -> tuple[Any, Any]:
    vars(np).setdefault("in1d", np.isin)  # NumPy has it no more
    from pysheds.sgrid import sGrid
    from pysheds.sview import Raster, ViewFinder

    raster = Raster(cells, ViewFinder(shape=cells.shape, nodata=nodata))
    return sGrid.from_raster(raster), raster


def main() -> None:
    """Write the record."""
    codes = filled_by_pyflwdir()
    np.savez_compressed(
        RECORD,
        directions=directions(steep_heights()).astype(np.int16),
        codes=codes,
        sums=sums(codes.astype(np.int64)).astype(np.int32),
    )


if __name__ == "__main__":
    main()
