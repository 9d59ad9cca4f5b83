"""Costs that grow from those of a run: multiplied, and at a rate of what has accumulated.

Of a path whose plain cost is c, the accumulated cost a starts at the source's initial cost and
grows by da = multiplier * (1 + rate * a) dc. So a is a function of c alone, which increases:
initial + multiplier * c, or (1 / rate + initial) * expm1(rate * multiplier * c) + initial. A run
finds the least c; sources that start later than the first of the run start at the c at which its
cost is theirs.

Every step of the arithmetic increases with c, rounding included, so that the order of costs is that
of the run. And no mathematics library has a part in it, since no two agree on the last bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orograph.arguments.source_costs import Strength
from orograph.tiles.arrays import Reals
from orograph.tiles.errors import InputError

LN2 = math.log(2)
# Of the series of expm1 below ln 2: the next term is less than 2**-60 of the sum.
TERMS = 18
WIDER = 1 + 1e-6
"""Factor by which a run's bound exceeds that of its costs, which is applied exactly later."""


class Growth(NamedTuple):
    """The accumulated cost as a function of the cost of a run."""

    base: float
    """Initial cost of the first source; its cost in the run is 0."""
    multiplier: float
    rate: float
    most: float
    """Greatest cost; cells of greater costs are unreached."""

    @classmethod
    def of(cls, strength: Strength, first: float, max_cost: float) -> Growth:
        """Return the growth for sources of one strength, of which the first starts at a cost."""
        plain = strength.multiplier == 1 and strength.rate == 0
        most = min(strength.maximum, max_cost)
        return cls(0.0 if plain else first, strength.multiplier, strength.rate, most)

    @property
    def plain(self) -> bool:
        """Whether accumulated costs are those of the run."""
        return self.multiplier == 1 and self.rate == 0 and self.base == 0

    def inverse(self, accumulated: Any) -> Any:
        """Return the cost of the run at which so much has accumulated, but for rounding."""
        if self.plain:
            return accumulated
        above = accumulated - self.base
        if self.rate:
            above = np.log1p(above / (1 / self.rate + self.base)) / self.rate
        return above / self.multiplier

    def starts(self, initial: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the costs in the run at which sources start.

        Raises
        ------
        InputError
            If they are too large for the dtype of costs.
        """
        with np.errstate(over="ignore"):
            found: npt.NDArray[Any] = np.asarray(self.inverse(initial))
        if dtype.kind == "f" and not (found <= np.finfo(dtype).max / 2).all():
            raise InputError(
                f"source_cost: multiplier: {self.multiplier:g} is too small for initial costs up "
                f"to {initial.max():g} in {dtype}; give a greater one"
            )
        return found

    @property
    def bound(self) -> float:
        """The greatest cost of the run that may count."""
        if self.plain or math.isinf(self.most):
            return self.most
        # A maximum below the initial cost leaves only the sources in the run; `LeastOfRuns` drops
        # them.
        return max(float(self.inverse(max(self.most, self.base))) * WIDER, 0.0)

    def apply(self, cost: Reals) -> Reals:
        """Return accumulated costs, infinite where they are too large for float64."""
        found = cost * self.multiplier
        if self.rate:
            found = (1 / self.rate + self.base) * grown(self.rate * found)
        return found + self.base


def grown(x: Reals) -> Reals:
    """Return exp(x) - 1 of numbers that are not negative, within 1e-13 of them.

    A series of positive terms between multiples of the logarithm of 2, cut off at 1, increases
    with x as computed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        # exp(x) = 2**halvings * exp(rest) with 0 <= rest < ln 2. Beyond 1e4 the result is infinite
        # anyway.
        halvings = np.floor(np.minimum(x, 1e4) / LN2)
        rest = np.maximum(x - halvings * LN2, 0.0)
        series = np.ones_like(rest)
        # Horner's scheme.
        for term in range(TERMS, 1, -1):
            series = 1.0 + series * rest / term
        fraction = np.minimum(series * rest, 1.0)
        powers = np.ldexp(1.0, np.nan_to_num(halvings).astype(np.int32))
        found: Reals = np.where(halvings == 0, fraction, powers * (1.0 + fraction) - 1.0)
    return found
