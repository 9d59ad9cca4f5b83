"""Colours of values as a caller chooses them, for `plot` and `explore`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orograph.results.units import parse_unit, unit_scale
from orograph.tiles.arguments import as_plain, check_number, shown
from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize

    from orograph.tiles.arrays import Array
    from orograph.tiles.vector.layer import VectorLayer


class Look(NamedTuple):
    """Choice of colours for values; None is what is not chosen."""

    cmap: str | Colormap | None = None
    vmin: float | None = None
    vmax: float | None = None
    unit: str | None = None
    column: str | None = None
    """Column of a layer by which its shapes are coloured."""

    @classmethod
    def checked(cls, cmap: Any, vmin: Any, vmax: Any, unit: Any, column: Any = None) -> Look:
        """Return the arguments of that name; raise InputError if one cannot be used."""
        from matplotlib import colormaps
        from matplotlib.colors import Colormap

        named = isinstance(cmap, str) and cmap in colormaps
        if not (cmap is None or named or isinstance(cmap, Colormap)):
            raise InputError(f"cmap: {shown(cmap)}; give the name of a colour map of matplotlib")
        low, high = _bound("vmin", vmin), _bound("vmax", vmax)
        if low is not None and high is not None and low >= high:
            raise InputError(f"vmin: {shown(vmin)}; it must be below vmax, {shown(vmax)}")
        return cls(cmap, low, high, None if unit is None else parse_unit(unit), column)

    def refuse(self, names: tuple[str, ...], what: str) -> None:
        """Raise InputError if one of some arguments is given, which has no use for ``what``."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"{name}: not for {what}; leave it out")

    def scaled(self, values: Array, units: str | None) -> tuple[Array, str | None]:
        """Return values in the unit that is chosen, and the unit."""
        if self.unit is None:
            return values, units
        return values * unit_scale(units, self.unit, "result"), self.unit

    def norm(self, values: Array, spread: str = "even") -> Normalize:
        """Return the norm of values, an array or a masked one.

        Parameters
        ----------
        values : array
        spread : {"even", "root", "log"}
            Spread of colours over values: the others show small values if few are large.
        """
        from matplotlib.colors import LogNorm, Normalize, PowerNorm

        known = np.ma.masked_invalid(values).compressed()
        if not known.size:
            return Normalize(0.0, 1.0)
        least = 0.0 if spread == "root" else float(known.min())
        # At most the other bound, where all values lie beyond the one that is given.
        low = min(least, least if self.vmax is None else self.vmax)
        low = low if self.vmin is None else self.vmin
        high = max(float(known.max()), low) if self.vmax is None else self.vmax
        if spread == "log" and low <= 0:
            raise InputError(f"vmin: {low:g}; it must be above 0, as colours go by logarithms")
        if spread == "log":
            return LogNorm(low, high)
        return PowerNorm(0.5, low, high) if spread == "root" else Normalize(low, high)


NO_LOOK = Look()
"""Nothing is chosen."""


def _bound(name: str, given: Any) -> float | None:
    """Return a bound of values as a number; raise InputError if it is not a finite one."""
    if given is None:
        return None
    bound = check_number(name, as_plain(given))
    if math.isinf(bound):
        raise InputError(f"{name}: {shown(given)}; it must be finite")
    return bound


def column_of(layer: VectorLayer, column: str) -> Array:
    """Return a column of a layer; raise InputError if it does not have it."""
    if not isinstance(column, str) or column not in layer.columns:
        listed = ", ".join(layer.columns) or "no columns"
        raise InputError(f"column: {shown(column)}; the layer has {listed}")
    return layer.columns[column]
