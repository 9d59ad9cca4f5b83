"""Definition of a cost model, except how compiled code reaches its formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

RASTERS = ("friction", "elevation")
"""The rasters that arguments of operations name; a model may need others."""

SCRATCH = 6
"""Numbers for a step that a model's form for a row may overwrite."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Definition of a cost model."""

    summary: str
    """Description of the cost of a step, in a line."""
    needs: tuple[str, ...]
    """Rasters without which there is no cost: ``"friction"``, ``"elevation"``, and further ones."""
    symmetric: bool
    """Whether a step costs the same in both directions."""
    integers: bool
    """Whether costs of whole numbers are whole, so that int64 is allowed."""
    by_name: bool = True
    """Whether operations take it by its name; if not, a value such as `TerrainCost` chooses it."""
    bars: bool = False
    """Whether a step between passable cells can be impassable: the formula gives NaN."""
    units: str = ""
    """Units of costs, if they do not depend on those of the rasters."""
    neutral_friction: float | None = None
    """Friction where none is given; None: friction is needed, or plays no part."""
    coefficients: Mapping[str, float] = field(default_factory=dict)
    """Names and defaults, in the order in which the formula takes them."""
    table: str = ""
    """Name of a table of coefficients, any number of them, which follow the others; "": none."""
    check: Callable[..., None] | None = None
    """Raises ValueError for coefficients, given in that order, that can make a cost negative."""
    lay_out: Callable[..., Any] | None = None
    """Returns the coefficients, given in that order, as the formula takes them; None: as given.

    Without a table it returns as many for all values.
    """
    formula: Any = None
    """Compiled: the cost of a step in float64, of ``(dz, length, friction, p)``, and of
    ``(dz, length, friction, p, start, end)`` if the model needs further rasters.

    ``dz`` is the rise, ``friction`` the mean, ``p`` the coefficients, and ``start`` and ``end``
    hold the values of the further rasters where the step starts and ends, in the order of
    ``needs``. The CUDA function of the model's name, in the ``.cuh`` of that name, has the same
    expressions. None: the cost is not one of slopes, and kernels compute it themselves.
    """
    vectors: Callable[..., Any] | None = None
    """Emits the formula as LLVM vector code; without it costs are computed one by one.

    Of ``(builder, steps, p)``: the steps are vectors ``(dz, slope, length, friction)``, of which it
    returns the costs. It is best written for all steps in turns, as they do not need one another.
    """
    row: Callable[..., None] | None = None
    """Compiled: the formula for a row of steps at once, there and back, where loops are quicker.

    Of ``(ahead, back, u, v, length, friction, p, further, at_u, at_v, plane, scratch)``: the costs
    to set, of steps from u to v and from v to u; heights at u and at v; lengths and means. Rows of
    the further rasters at u and v are from places ``at_u`` and ``at_v`` of ``further`` on, those of
    each raster ``plane`` behind the one before. ``scratch`` is float64, `SCRATCH` for a step.
    """

    def __post_init__(self) -> None:
        """Refuse rows that kernels could not work with."""
        if self.formula is not None and "elevation" not in self.needs:
            raise ValueError(f"needs: {self.needs}; a model with a formula needs elevation")
        if self.vectors is not None and (self.further or self.table):
            raise ValueError("vectors: a model of further rasters or a table has none")

    @cached_property
    def count(self) -> int:
        """The number of coefficients that the formula takes, if the model has no table."""
        usual = self.coefficients.values()
        return len(usual if self.lay_out is None or self.table else self.lay_out(*usual))

    @property
    def takes(self) -> tuple[str, ...]:
        """Rasters that play a part."""
        optional = ("friction",) if self.neutral_friction is not None else ()
        return optional + self.needs

    @property
    def further(self) -> tuple[str, ...]:
        """Rasters that the model needs in addition to friction and elevation."""
        return tuple(name for name in self.needs if name not in RASTERS)
