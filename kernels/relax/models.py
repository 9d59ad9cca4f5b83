"""What an edge costs: the models of the shortest-path kernel, one edge or a row of them.

Every expression is evaluated in the order written, without fused multiply-add, so that any backend
that keeps the order gets the same bits. ``u`` is where the step starts, ``v`` where it ends; an
edge into or out of a cell whose costs are NaN or infinite (integers: BARRIER and more) is never
taken.

- ``friction``: (f[u] + f[v]) * (length / 2). A knight's move counts the two cells it passes
  between as well, as GRASS r.cost does: ((f[m] + f[n]) + (f[u] + f[v])) * (length / 4). In
  integers the factor is the length itself: twice (four times) the cost, so that it stays whole.
- ``absolute_difference``: |z[v] - z[u]|, whatever the length; a knight's move is barred where one
  of the two cells it passes between is.
- ``tobler``: seconds for metres; length * pace * exp(3.5 * |slope + 0.05|) * mean friction, slope
  positive uphill. pace 0.6 s/m is 6 km/h (Tobler 1993, NCGIA Technical Report 93-1).
- ``walk``: GRASS r.walk, rise + length * a + lambda * mean friction * length, where rise is dz * b
  uphill, dz * c downhill, dz * d on slopes below slope_factor (Aitken 1977, Langmuir 1984).

The last two depend on the direction of travel and are computed in float64, then rounded to the
state's dtype. Their exponential is our own, from additions and multiplications alone (at most
2 ulp off), since no two mathematics libraries agree on the last bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.relax.lanes import STEPS

FRICTION, ABSOLUTE_DIFFERENCE, TOBLER, WALK = range(4)
MODELS = ("friction", "absolute_difference", "tobler", "walk")
DEFAULTS = {"tobler": (0.6,), "walk": (0.72, 6.0, 1.9998, -1.9998, -0.2125, 1.0)}
BARRIER = 2**60  # integers: "unreachable" and "impassable"; four of them still fit int64

EAST_WEST, NORTH_SOUTH, DIAGONAL, TWO_ROWS, TWO_COLUMNS = range(5)  # rows of the length table


class CostModel(NamedTuple):
    """What a step costs; formulas and sources at the top of this file."""

    name: str = "friction"
    """``"friction"``, ``"absolute_difference"``, ``"tobler"`` or ``"walk"``."""
    reverse: bool = False
    """Count each step in the other direction: cost *to* the sources instead of *from* them."""
    coefficients: tuple[float, ...] = ()
    """tobler: (seconds per metre at best,); walk: (a, b, c, d, slope_factor, lambda)."""


BY_FRICTION = CostModel()


class Rules(NamedTuple):
    """How a tile's edges cost, as compiled code wants it."""

    model: int
    steps: int
    """Edges of a row to the rows before it: 1, 3 or 7 for 4, 8 or 16 neighbours."""
    reach: int
    """Width of the halo: 1, or 2 for 16 neighbours."""
    reverse: bool
    symmetric: bool
    integer: bool
    uniform: bool
    """Whether all rows have the same lengths."""
    has_friction: bool
    has_elevation: bool
    barrier: Any
    unreached: Any
    limit: Any
    """Greatest distance of interest."""
    factors: Any
    """(5, padded rows): lengths, or their half (knight's moves: quarter) for ``friction``."""
    coefficients: Any


def edge_lengths(rows: int, dx: float = 1.0, dy: float = 1.0) -> npt.NDArray[np.float64]:
    """Lengths of the steps in a planar grid.

    Parameters
    ----------
    rows : int
        Rows of the padded arrays.
    dx, dy : float
        Size of a cell.

    Returns
    -------
    (5, rows) float64
        At padded row i: 0 east-west in row i; 1 north-south, 2 diagonal and 4 knight's move of two
        columns between rows i - 1 and i; 3 knight's move of two rows between i - 2 and i.
        Geographic grids fill such a table row by row with geodesic lengths.
    """
    kinds = (dx, dy, math.hypot(dx, dy), math.hypot(dx, 2 * dy), math.hypot(2 * dx, dy))
    return np.repeat(np.array(kinds, np.float64)[:, None], rows, axis=1)


def cost_rules(
    dtype: np.dtype[Any],
    lengths: npt.NDArray[Any],
    model: CostModel,
    connectivity: int,
    max_cost: float,
    given: set[str],
) -> Rules:
    """Check a cost model and put it the way compiled code wants it.

    Parameters
    ----------
    dtype : float64, float32 or int64
    lengths : (5, padded rows)
        See `edge_lengths`.
    model, connectivity, max_cost
        See `orograph.kernels.relax.tile.tile_state`.
    given : set
        Which of ``"friction"`` and ``"elevation"`` there is.

    Raises
    ------
    ValueError
        If the model, its coefficients, the lengths or the rasters do not fit together.
    """
    if connectivity not in STEPS:
        raise ValueError(f"connectivity={connectivity}; must be 4, 8 or 16")
    if dtype not in (np.float64, np.float32, np.int64):
        raise ValueError(f"dist is {dtype}; must be float64, float32 or int64")
    if model.name not in MODELS:
        raise ValueError(f"model {model.name!r}; must be one of {', '.join(MODELS)}")
    code = MODELS.index(model.name)
    needed = "friction" if code == FRICTION else "elevation"
    if needed not in given:
        raise ValueError(f"the model {model.name} needs {needed}")
    integer = dtype.kind == "i"
    symmetric = code in (FRICTION, ABSOLUTE_DIFFERENCE)
    if integer and not symmetric:
        raise ValueError(f"the model {model.name} needs a float dist; it is {dtype}")
    usual = DEFAULTS.get(model.name, ())
    coefficients = model.coefficients or usual
    if len(coefficients) != len(usual):
        raise ValueError(f"{len(coefficients)} coefficients for {model.name}; must be {len(usual)}")
    if code == TOBLER and not coefficients[0] > 0:
        raise ValueError(f"tobler pace {coefficients[0]}; must be above 0 s/m")
    if code == WALK:
        a, b, c, d, slope_factor, weight = coefficients
        if not (min(a + min(0.0, c * slope_factor), b, -d, weight) >= 0 and slope_factor <= 0):
            raise ValueError(
                f"walk coefficients {coefficients} can make a step's cost negative: "
                "a + c * slope_factor, b, -d, -slope_factor and lambda must not be below 0"
            )
    if lengths.ndim != 2 or lengths.shape[0] != 5:
        raise ValueError(f"lengths has shape {lengths.shape}; must be (5, padded rows)")
    used = lengths[: {4: 2, 8: 3, 16: 5}[connectivity]]
    factors = lengths.astype(dtype)
    if not (np.isfinite(used) & (used > 0)).all():
        raise ValueError(f"lengths go from {used.min()} to {used.max()}; must be above 0, finite")
    if integer and code == FRICTION and (factors[: len(used)] != used).any():
        raise ValueError("lengths must be whole numbers where dist is int64; round them before")
    if code == FRICTION and not integer:
        factors[:TWO_ROWS] *= dtype.type(0.5)
        factors[TWO_ROWS:] *= dtype.type(0.25)
    limit = dtype.type(min(max_cost, BARRIER - 1) if integer else max_cost)
    if float(limit) > max_cost:  # rounded up
        limit = np.nextafter(limit, dtype.type(-np.inf))
    return Rules(
        model=code,
        steps=len(STEPS[connectivity]),
        reach=2 if connectivity == 16 else 1,
        reverse=bool(model.reverse),
        symmetric=symmetric,
        integer=integer,
        uniform=bool((factors == factors[:, :1]).all()),
        has_friction="friction" in given and code != ABSOLUTE_DIFFERENCE,
        has_elevation=code != FRICTION,
        barrier=dtype.type(BARRIER if integer else np.nan),
        unreached=dtype.type(BARRIER if integer else np.inf),
        limit=limit,
        factors=factors,
        coefficients=np.array(coefficients, np.float64),
    )
