"""Check that rasters lie on the same grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orograph.tiles.arguments import as_text
from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import parse_crs, same_crs
from orograph.tiles.grid.georeference import Georeference
from orograph.tiles.raster.raster import Raster

if TYPE_CHECKING:
    from pyproj import CRS


def check_same_grid(name: str, raster: Raster, first: Raster) -> None:
    """Raise InputError unless a raster's grid is that of the first raster."""
    check_same_place(name, raster.shape, raster.georeference, first.shape, first.georeference)


def check_same_place(
    name: str,
    shape: tuple[int, int],
    theirs: Georeference,
    first_shape: tuple[int, int],
    ours: Georeference,
) -> None:
    """Raise InputError if two grids differ in shape, coordinates or CRS."""
    if ours.crs_wkt and theirs.crs_wkt and ours.crs_wkt != theirs.crs_wkt:
        own, first = parse_crs(theirs.crs_wkt, name), parse_crs(ours.crs_wkt, "first raster")
        if not same_crs(own, first):
            one, other = (
                (own.name, first.name) if own.name != first.name else _differing(own, first)
            )
            raise InputError(
                f"{name}: its CRS is {one}, that of the first raster {other}; bring them to one "
                "grid first (rio.reproject_match)"
            )
    if shape != first_shape:
        raise InputError(
            f"{name}: {shape[0]} x {shape[1]} cells, but the first raster has "
            f"{first_shape[0]} x {first_shape[1]}; bring them to one grid first "
            "(rio.reproject_match)"
        )
    for axis, a, b in (("y", ours.y, theirs.y), ("x", ours.x, theirs.x)):
        if a is None or b is None:
            continue
        # One row or column has no step. A thousandth of one allows for rounded coordinates.
        step = abs(float(a[-1] - a[0])) / max(a.size - 1, 1) or 1.0
        off = np.abs(a - b)
        if off.max() > 1e-3 * step:
            at = int(off.argmax())
            raise InputError(
                f"{name}: its {axis} coordinate {at} is {as_text(b[at])}, that of the first raster "
                f"{as_text(a[at])}; bring them to one grid first (rio.reproject_match)"
            )


def _differing(own: CRS, first: CRS) -> tuple[str, str]:
    """Return texts of two CRSs of one name that show where they differ."""
    one, other = own.to_wkt(), first.to_wkt()
    same = (number for number, (a, b) in enumerate(zip(one, other)) if a != b)
    at = max(next(same, 0) - 40, 0)
    return (
        f"{own.name} (... {one[at : at + 80]} ...)",
        f"{first.name} (... {other[at : at + 80]} ...)",
    )
