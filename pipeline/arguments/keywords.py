"""Keywords that operations share, each declared once, in groups.

A group is two classes. A `TypedDict` has the keywords with their types and describes them in its
docstring; the class of an operation's ``**options`` derives from those whose keywords it takes. A
frozen dataclass has their defaults and checks their values. Signatures, help, the shell and the
reference pages come from the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from inspect import cleandoc
from typing import Any, ClassVar, Self, TypedDict

from orograph.tiles.arguments import check_flag
from orograph.tiles.raster.raster import CHOICE, Raster, RasterLike, open_raster


class Keywords:
    """The keywords of a group that were given; derived classes are frozen dataclasses."""

    heading: ClassVar[str]
    """Section of a docstring that describes them; empty: that of the operation's own parameters."""
    documented: ClassVar[type]
    """The `TypedDict` whose docstring describes them."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the group's part of an operation's options, checked."""
        return cls(**{name: options[name] for name in cls.defaults() if name in options})

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default of each keyword by name."""
        known = fields(cls)  # type: ignore[arg-type]
        return {f.name: f.default for f in known if f.default is not MISSING}

    def changed(self) -> dict[str, bool]:
        """Return a dict that tells for each keyword if its value is not the default."""
        return {name: _differ(getattr(self, name), v) for name, v in self.defaults().items()}


def _differ(value: object, usual: object) -> bool:
    """Return whether a value is another than the usual one, as an array always is."""
    if usual is None:
        return value is not None
    try:
        return bool(value != usual)
    except ValueError:
        return True


class RasterChoice(TypedDict, total=False):
    """Keywords that choose what is read of the first raster.

    nodata : float or int, optional
        Nodata value of the first raster, in place of its own. NaN and infinite cells are nodata
        too.
    band : int, optional
        Which band of the first raster to read, from 1, if it has several.
    variable : str, optional
        Which variable to read if the first raster is one of several in its dataset, file or store.
    wrap : bool, optional
        Whether the first and the last column of the raster are neighbours, as around the globe.
        Longitudes must span 360 degrees; a raster without them is a cylinder. By default as the
        attribute ``wraps`` of the raster says, which results have: ``"x"`` if they wrap.
    """

    nodata: float | int | None
    band: int | None
    variable: str | None
    wrap: bool | None


@dataclass(frozen=True)
class Choice(Keywords):
    """Choice of what is read of the first raster; see `RasterChoice`."""

    heading = ""
    documented = RasterChoice

    nodata: float | int | None = None
    band: int | None = None
    variable: str | None = None
    wrap: bool | None = None

    def __post_init__(self) -> None:
        if self.wrap is not None:
            object.__setattr__(self, "wrap", check_flag("wrap", self.wrap))

    @property
    def choice(self) -> dict[str, Any]:
        """The arguments of `open_raster` for the first raster."""
        return {**{name: getattr(self, name) for name in CHOICE}, "offers": CHOICE}

    def open(self, raster: RasterLike, argument: str, usual: Sequence[str] = ()) -> Raster:
        """Open the first raster; ``usual`` as `open_raster` takes it."""
        return open_raster(raster, argument=argument, usual=usual, **self.choice)


def entries_in(doc: str) -> dict[str, str]:
    """Return the entries of parameters, or of exceptions, in a docstring by their names."""
    found = re.findall(r"^\w+(?: : .*)?\n(?:    .*\n?)+", cleandoc(doc), re.MULTILINE)
    return {entry.split(maxsplit=1)[0]: entry.rstrip() + "\n" for entry in found}
