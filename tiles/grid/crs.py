"""Parse, compare and transform between coordinate reference systems (CRS)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    from pyproj import CRS

Coordinates = npt.NDArray[np.float64]


class HasWkt(Protocol):
    """A CRS of pyproj, rasterio or another library that writes well-known text."""

    def to_wkt(self) -> str:
        """Return the CRS as well-known text."""


CRSLike = str | int | Mapping[str, Any] | tuple[str, str | int] | HasWkt
"""A CRS in a form that pyproj accepts: text, an EPSG code, PROJ parameters, or a CRS."""


@contextmanager
def report_crs_error(what: str) -> Iterator[None]:
    """Raise InputError in place of pyproj's errors within this context."""
    from pyproj.exceptions import CRSError

    try:
        yield
    except (CRSError, TypeError, ValueError) as error:  # ValueError: not text of UTF-8
        raise InputError(f"{what}: its CRS is not understood ({error}); set another") from None


def parse_crs(given: CRSLike, what: str) -> CRS:
    """Parse a CRS in any form that pyproj accepts; return its horizontal part.

    Raises
    ------
    InputError
        If pyproj does not understand it.
    """
    from pyproj import CRS

    with report_crs_error(what):
        crs = CRS.from_user_input(given)
    # A bound CRS carries a transformation to another datum. In a compound CRS the horizontal part
    # comes before the vertical one.
    if crs.is_bound and crs.source_crs is not None:
        crs = crs.source_crs
    if crs.is_compound:
        crs = crs.sub_crs_list[0]
    return crs.to_2d()


def same_crs(one: CRS, other: CRS) -> bool:
    """Return whether two CRSs place the same (x, y) at the same location.

    The order of the axes and the way in which a CRS is written do not matter.
    """
    if one.equals(other, ignore_axis_order=True):
        return True
    code = one.to_epsg()
    return code is not None and code == other.to_epsg()


def reproject(
    points: Coordinates,
    given: CRSLike | None,
    raster_crs: CRSLike | None,
    name: str,
    numbers: npt.NDArray[Any] | None = None,
    whose: str = "the raster's ",
) -> Coordinates:
    """Reproject the points of a vector layer to the CRS of a raster.

    Parameters
    ----------
    points
        Shape (n, 2), x and y.
    given
        CRS of the layer, None if it has none.
    raster_crs
        CRS of the raster, None if it has none.
    name
        Argument that holds the points, for the message.
    numbers
        Of which geometry of the layer each point is; by default each is one.
    whose
        Says of whom ``raster_crs`` is, for the message.

    Raises
    ------
    InputError
        If only one of the two has a CRS, or a point cannot be transformed to that of the raster.
    """
    if given is None:
        if raster_crs is None:
            return points
        raise InputError(
            f"{name}: they have no CRS, but the raster's is {parse_crs(raster_crs, 'raster').name};"
            " set theirs (.set_crs(...), a .prj file), or pass bare coordinates (x, y) in the "
            "raster's"
        )
    source = parse_crs(given, name)
    if raster_crs is None:
        raise InputError(
            f"{name}: their CRS is {source.name}, but the raster has none; set it with "
            "rio.write_crs(...), or pass bare coordinates (x, y) in the raster's"
        )
    target = parse_crs(raster_crs, "raster")
    if same_crs(source, target):
        return points
    from pyproj import Transformer
    from pyproj.exceptions import ProjError

    try:
        transformer = Transformer.from_crs(source, target, always_xy=True)
        moved = np.stack(transformer.transform(points[:, 0], points[:, 1]), axis=1)
    except ProjError as error:
        raise InputError(
            f"{name}: {source.name} cannot be brought to {whose}{target.name} ({error}); "
            "reproject them yourself, and pass bare coordinates (x, y)"
        ) from None
    # PROJ gives infinite coordinates to a point outside the domain of the projection.
    lost = ~np.isfinite(moved).all(axis=1)
    if lost.any():
        at = int(lost.argmax())
        what = f"point {at}" if numbers is None else f"geometry {numbers[at]}"
        raise InputError(
            f"{name}: {what} ({points[at, 0]:.10g}, {points[at, 1]:.10g} in {source.name}) has no "
            f"place in {whose}{target.name}; leave it out, or check the CRS of the points"
        )
    return moved
