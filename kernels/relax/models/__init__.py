"""Cost models: the cost of an edge, one row of `MODELS` each.

Arguments, commands, the layout of indices and docs/cost_models.md follow from the rows. A model of
slopes is two files of this folder: its row with the formula for Numba, and the same for CUDA.

Every expression is evaluated in the order written, without fused multiply-add, so that any backend
that keeps the order gets the same bits. ``u`` is where the step starts, ``v`` where it ends; an
edge into or out of a cell whose costs are NaN or infinite (integers: BARRIER and more) is never
taken.

- ``friction``: (f[u] + f[v]) * (length / 2). A knight's move counts the two cells it passes
  between as well, as GRASS r.cost does: ((f[m] + f[n]) + (f[u] + f[v])) * (length / 4). In
  integers f is a multiple of `friction_unit`, and its share, f / unit, is what tiles hold: the
  factor is then the length (16 neighbours: twice the length, but for a knight's move).
- ``absolute_difference``: |z[v] - z[u]|, whatever the length; a knight's move is barred where one
  of the two cells it passes between is.
- The models of slopes have their formulas in their files.

These depend on the direction of travel and are computed in float64, then rounded to the state's
dtype. Their exponential is our own (exponential.py), since no two mathematics libraries agree on
the last bit.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.kernels.formulas import rows_in
from orograph.kernels.relax.models.model import Model
from orograph.kernels.vectors.lanes import STEPS

FRICTION, ABSOLUTE_DIFFERENCE = range(2)  # numbers of the two that kernels compute themselves
FOLDER = Path(__file__).parent


MODELS: dict[str, Model] = {
    "friction": Model(
        summary="mean friction of the two cells, times the length",
        needs=("friction",),
        symmetric=True,
        integers=True,
    ),
    "absolute_difference": Model(
        summary="difference of the two heights, whatever the length",
        needs=("elevation",),
        symmetric=True,
        integers=True,
    ),
    **rows_in(__name__, FOLDER, Model),
}
"""The models by name; the place of a model is the number by which compiled code knows it."""


NAMED = tuple(name for name, row in MODELS.items() if row.by_name)
"""The models that operations take by their names."""


def lacking_on_gpu(model: str) -> str:
    """Return words for a cost model whose formulas a GPU lacks; empty if it lacks nothing."""
    there = MODELS[model].formula is None or (FOLDER / f"{model}.cuh").exists()
    return "" if there else f"the cost model {model!r}"


EXTRA = "max_slope", "barrier_penalties"
"""Names of the attributes of results that tell the greatest slope and penalties."""
CROSSED = "crossed"
"""Name of the raster that tells the barriers of a cell that paths may cross at a penalty."""
MOST_CROSSED = 24
"""Number of such barriers that there may be: as many bits as float32 holds exactly."""
BARRIER = 2**60  # integers: "unreachable" and "impassable"; four of them still fit int64

EAST_WEST, NORTH_SOUTH, DIAGONAL, TWO_ROWS, TWO_COLUMNS = range(5)  # rows of the length table


class CostModel(NamedTuple):
    """A cost model with its coefficients; formulas and sources are at the top of this file."""

    name: str = "friction"
    """One of `MODELS`."""
    reverse: bool = False
    """Count each step in the other direction: cost *to* the sources instead of *from* them."""
    coefficients: tuple[float, ...] = ()
    """Coefficients in the order of `Model.coefficients`, then a table; empty for the defaults."""
    max_slope: float = math.inf
    """Greatest slope of a step, as rise by length; steeper ones are impassable, up or down."""
    crossing: tuple[float, ...] = ()
    """Half of the penalty for crossing each barrier; bit k of the raster `CROSSED` marks barrier k.

    A step that leads into a barrier or out of it costs this half more; a knight's move is in each
    barrier that one of the two cells between its ends is in.
    """

    @property
    def further(self) -> tuple[str, ...]:
        """Rasters that are needed in addition to friction and elevation."""
        return (*MODELS[self.name].further, *((CROSSED,) if self.crossing else ()))

    @property
    def bars(self) -> bool:
        """Whether a step between passable cells can be impassable."""
        return MODELS[self.name].bars or self.max_slope < math.inf

    @property
    def extra_attributes(self) -> dict[str, Any]:
        """Attributes of a result that tell the greatest slope and the penalties, if any."""
        slope = round(math.degrees(math.atan(self.max_slope)), 12)
        found = slope if self.max_slope < math.inf else None, [2 * half for half in self.crossing]
        return {
            name: value for name, value in zip(EXTRA, found, strict=True) if value not in (None, [])
        }


BY_FRICTION = CostModel()


class Rules(NamedTuple):
    """Parameters of the edge costs of a tile, as compiled code takes them."""

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
    """(5, padded rows): lengths, or what the sum of frictions is multiplied by (see the top)."""
    coefficients: Any
    """Coefficients of the model, then its table; for Numba, then the padded further rasters."""
    by_step: Any
    """True for a model of slopes that weighs each step by itself, else None."""
    by_row: Any
    """True for a model of slopes that weighs a row of steps at once, else None.

    None has another type than True, so Numba compiles only the formulas of one kind of model.
    """
    further: int = 0
    """Number of further rasters; those of the model come first."""
    extra: Any = None
    """Greatest slope, then half of the penalty of each barrier (see `CostModel`), float64.

    None without either, of another type than an array, so that nothing is compiled for it.
    """


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
    """Check a cost model and convert it to the form of compiled code.

    Parameters
    ----------
    dtype : float64, float32 or int64
    lengths : (5, padded rows)
        See `edge_lengths`.
    model, connectivity, max_cost
        See `orograph.kernels.relax.tile.tile_state`.
    given : set
        Which rasters there are: ``"friction"``, ``"elevation"``, and further ones of the model.

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
    row = MODELS[model.name]
    for needed in row.needs:
        if needed not in given:
            raise ValueError(f"the model {model.name} needs {needed}")
    integer = dtype.kind == "i"
    if integer and not row.integers:
        raise ValueError(f"the model {model.name} needs a float dist; it is {dtype}")
    usual = tuple(row.coefficients.values())
    coefficients = model.coefficients or usual
    if len(coefficients) != len(usual) and not (row.table and len(coefficients) > len(usual)):
        raise ValueError(f"{len(coefficients)} coefficients for {model.name}; must be {len(usual)}")
    if row.table and len(coefficients) == len(usual):
        raise ValueError(f"the model {model.name} needs the table {row.table}")
    if row.check:
        row.check(*coefficients)
    laid_out = np.array(row.lay_out(*coefficients) if row.lay_out else coefficients, np.float64)
    if not row.table and laid_out.size != row.count:
        raise ValueError(
            f"lay_out of {model.name} returns {laid_out.size} coefficients, but {row.count} of the "
            "usual ones"
        )
    if model.max_slope < math.inf and row.formula is None:
        raise ValueError(f"max_slope: the model {model.name} has no slopes")
    if model.crossing and CROSSED not in given:
        raise ValueError(f"penalties for crossing barriers need {CROSSED}")
    if lengths.ndim != 2 or lengths.shape[0] != 5:
        raise ValueError(f"lengths has shape {lengths.shape}; must be (5, padded rows)")
    # With fewer neighbours no step takes its length from the rows behind these.
    used = lengths[: {4: 2, 8: 3, 16: 5}[connectivity]]
    factors = lengths.astype(dtype)
    if not (np.isfinite(used) & (used > 0)).all():
        raise ValueError(f"lengths go from {used.min()} to {used.max()}; must be above 0, finite")
    number = list(MODELS).index(model.name)
    if integer and number == FRICTION and (factors[: len(used)] != used).any():
        raise ValueError("lengths must be whole numbers where dist is int64; round them before")
    # Halves and quarters of lengths, so that a step takes one multiplication of the sum of
    # frictions.
    if number == FRICTION and not integer:
        factors[:TWO_ROWS] *= dtype.type(0.5)
        factors[TWO_ROWS:] *= dtype.type(0.25)
    elif number == FRICTION and connectivity == 16:
        factors[:TWO_ROWS] *= 2  # tiles hold quarters of friction, of which these steps add two
    limit = dtype.type(min(max_cost, BARRIER - 1) if integer else max_cost)
    if not integer and float(limit) > max_cost:  # rounded up
        limit = np.nextafter(limit, dtype.type(-np.inf))
    return Rules(
        model=number,
        steps=len(STEPS[connectivity]),
        reach=2 if connectivity == 16 else 1,
        reverse=bool(model.reverse),
        symmetric=row.symmetric,
        integer=integer,
        uniform=bool((factors == factors[:, :1]).all()),
        has_friction="friction" in given and "friction" in row.takes,
        has_elevation="elevation" in row.needs,
        barrier=dtype.type(BARRIER if integer else np.nan),
        unreached=dtype.type(BARRIER if integer else np.inf),
        limit=limit,
        factors=factors,
        coefficients=laid_out,
        by_step=True if row.formula is not None and row.row is None else None,
        by_row=True if row.row is not None else None,
        further=len(model.further),
        extra=(
            np.array([model.max_slope, *model.crossing], np.float64)
            if model.crossing or model.max_slope < math.inf
            else None
        ),
    )


def friction_unit(model: str, dtype: np.dtype[Any], connectivity: int) -> int:
    """Return the number that frictions must be multiples of, so that steps cost whole numbers.

    A step costs the mean friction of two cells, a knight's move that of four. 1 where costs are
    floats or do not come from friction.
    """
    if dtype.kind != "i" or model != "friction":
        return 1
    return 4 if connectivity == 16 else 2


def model_table() -> str:
    """Return the table of cost models, in Markdown, as docs/cost_models.md shows it."""
    lines = [
        "| cost | a step costs | rasters | symmetric | int64 | coefficients |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in MODELS.items():
        rasters = list(row.needs)
        if row.neutral_friction is not None:
            rasters.append(f"friction ({row.neutral_friction:g} if none)")
        values = [f"{key} {value:g}" for key, value in row.coefficients.items()]
        values += [f"table {row.table}"] if row.table else []
        cells = (
            f"`{name}`" if row.by_name else "by `TerrainCost`",
            row.summary,
            ", ".join(rasters),
            "yes" if row.symmetric else "no",
            "yes" if row.integers else "no",
            (", ".join(values) or "none") if row.by_name else "those of a factor of slope",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
