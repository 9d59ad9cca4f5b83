"""Grids on which readings of the terrain are compared with their oracles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from oracle_forest import valid_cells

DTYPES = (
    *(f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
WIDE = ("int64", "uint64")
"""Drawn in half of the cases: dtypes whose heights float64 cannot hold."""

properties = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


@dataclass(frozen=True)
class Case:
    """A grid, how it is read and how it is cut."""

    elevation: np.ndarray
    nodata: float | int | None
    connectivity: int
    cut: dict[str, Any]

    @property
    def valid(self) -> np.ndarray:
        return valid_cells(self.elevation, self.nodata)

    @property
    def how(self) -> dict[str, Any]:
        return {"connectivity": self.connectivity, "nodata": self.nodata}


@st.composite
def cases(draw: st.DrawFn, longest: int = 22) -> Case:
    """A case: any dtype, many ties, ends of the dtype, holes, one row or column, ragged tiles.

    Most of 64-bit integers stand about or beyond 2**53, where float64 has gaps.
    """
    dtype = np.dtype(draw(st.sampled_from(DTYPES) | st.sampled_from(WIDE)))
    side = st.integers(1, longest)
    shape = draw(st.tuples(side, side) | st.tuples(st.just(1), side) | st.tuples(side, st.just(1)))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    heights = rng.integers(0, draw(st.sampled_from([1, 3, 12, 120])), shape)
    if draw(st.booleans()):
        heights += 3 * np.maximum(
            abs(np.arange(shape[0])[:, None] - 9), abs(np.arange(shape[1]) - 7)
        )
    elevation = heights.astype(dtype)
    base = 0
    if dtype.name in WIDE:
        high = 2**53 - 9, 2**60, -(2**60) if dtype.kind == "i" else 2**63 - 9
        base = draw(st.sampled_from((0, *high)))
        elevation += dtype.type(base)
    if dtype.kind == "f":
        elevation -= 2
        elevation[rng.random(shape) < 0.1] = -0.0
        elevation[rng.random(shape) < 0.02] = np.finfo(dtype).max
    else:
        elevation[rng.random(shape) < 0.05] = np.iinfo(dtype).min
        elevation[rng.random(shape) < 0.05] = np.iinfo(dtype).max
    nodata = draw(st.sampled_from([None, base + 1]))
    if dtype.kind == "f":
        gaps = rng.random(shape) < draw(st.sampled_from([0, 0.1, 0.4]))
        elevation[gaps] = rng.choice([np.nan, np.inf, -np.inf], shape)[gaps]
    tile = draw(st.sampled_from([None, 1, 3, 4, 8]))
    cut = {} if tile is None else {"tile": tile, "shard": tile * draw(st.sampled_from([1, 2]))}
    return Case(elevation, nodata, draw(st.sampled_from([4, 8])), cut)


def fractal(side: int, seed: int = 3) -> np.ndarray:
    """Smooth float32 heights, some hundred metres high."""
    rng = np.random.default_rng(seed)
    frequency = np.fft.fftfreq(side)[:, None] ** 2 + np.fft.rfftfreq(side)[None] ** 2
    frequency[0, 0] = 1
    spectrum = np.fft.rfft2(rng.standard_normal((side, side))) * frequency**-1.1
    heights = np.fft.irfft2(spectrum, s=(side, side))
    return (600 * (heights - heights.min()) / np.ptp(heights)).astype(np.float32)
