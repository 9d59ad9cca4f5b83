"""Units of length: of coordinates, of a coordinate reference system (CRS), and of heights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from orograph.tiles.errors import InputError
from orograph.tiles.grid.crs import parse_crs

if TYPE_CHECKING:
    from pyproj import CRS, Geod


class LengthUnit(NamedTuple):
    """A unit of length."""

    name: str
    """Short name, such as ``"m"`` or ``"us-ft"``; for rare units the name that the CRS has."""
    metres: float
    """Length of the unit in metres."""


METRE = LengthUnit("m", 1.0)
_FOOT = LengthUnit("ft", 0.3048)
# In the United States a survey foot was defined as 1200/3937 of a metre.
_SURVEY_FOOT = LengthUnit("us-ft", 1200 / 3937)
_SPELLINGS = {
    METRE: "m metre meter metres meters",
    LengthUnit("km", 1000.0): "km kilometre kilometer kilometres kilometers",
    LengthUnit("dm", 0.1): "dm decimetre decimeter decimetres decimeters",
    LengthUnit("cm", 0.01): "cm centimetre centimeter centimetres centimeters",
    LengthUnit("mm", 0.001): "mm millimetre millimeter millimetres millimeters",
    _FOOT: "ft foot feet international-foot international-feet intl-foot ift",
    _SURVEY_FOOT: "us-ft us-foot us-feet usft ftus foot-us us-survey-foot us-survey-feet "
    "survey-foot u.s.-survey-foot u.s.-survey-feet ussurveyfoot sfoot",
}
UNSTATED = frozenset(("", "1", "-", "none", "unknown"))
"""Texts of an attribute ``units`` that tell nothing."""
_KNOWN = {name: unit for unit, names in _SPELLINGS.items() for name in names.split()}

ELEVATION_UNITS = {"m": METRE, "ft": _FOOT, "us-ft": _SURVEY_FOOT}
"""Units that an argument can give to heights."""
_OF_METRES = "The unit is that of the coordinates; the CRS was in metres."
"""Remark in a CRS whose unit has been replaced: where it was metres, heights are metres too."""


def parse_length_unit(text: object) -> LengthUnit | None:
    """Return the unit of length that a text names, in any usual spelling; None if there is none.

    Examples
    --------
    >>> parse_length_unit("US_survey_foot").name, parse_length_unit("kilometres").metres
    ('us-ft', 1000.0)
    """
    return _KNOWN.get("-".join(str(text).lower().replace("_", " ").split()))


def unit_of_crs(crs: CRS) -> LengthUnit:
    """Return the unit of a grid's lengths in a CRS: of its axes, metres if these are degrees."""
    if crs.is_geographic or not crs.axis_info:
        return METRE
    axis = crs.axis_info[0]
    known = parse_length_unit(axis.unit_name)
    return LengthUnit(known.name if known else axis.unit_name, float(axis.unit_conversion_factor))


def ellipsoid_of(crs: CRS | None) -> Geod:
    """Return the ellipsoid of a CRS for geodesics; that of WGS 84 without a CRS."""
    from pyproj import Geod

    shape = None if crs is None else crs.ellipsoid
    usual = shape is None or (shape.semi_major_metre, round(shape.inverse_flattening, 9)) == (
        6378137.0,
        298.257223563,
    )
    # by its name: `get_geod` rounds the flattening otherwise
    geod = None if usual or crs is None else crs.get_geod()
    return geod or Geod(ellps="WGS84")


def in_unit_of_coordinates(wkt: str, axes: tuple[Mapping[str, Any], Mapping[str, Any]]) -> str:
    """Return a projected CRS in the unit that both coordinates name by CF's attribute ``units``.

    As GDAL does it: a CRS in metres becomes one in kilometres if the coordinates are. Coordinates
    of a geostationary view in radians are multiples of the height of the satellite.

    Raises
    ------
    InputError
        If the coordinates are in another unit than a geographic CRS has, in one that is not known,
        or in two.
    """
    named = {str(attrs.get("units", "")).strip() for attrs in axes} - UNSTATED
    return _in_units(wkt, frozenset(named))


@lru_cache(maxsize=16)
def _in_units(wkt: str, named: frozenset[str]) -> str:
    crs = parse_crs(wkt, "raster")
    if crs.is_geographic:
        _check_degrees(crs, named)
        return wkt
    if not named:
        return wkt
    definition = crs.to_json_dict()
    units = set()
    for text in named:
        unit = parse_length_unit(text)
        if unit is None and text.lower() in ("rad", "radian", "radians"):
            unit = _satellite_height(definition)
        if unit is None:
            raise InputError(
                f"the coordinates are in {text!r} by their attribute units, which is not a length "
                f"as their CRS has it, {crs.name}; correct the attribute, or the CRS"
            )
        units.add(unit)
    unit = units.pop()
    if any(abs(other.metres / unit.metres - 1) > 1e-5 for other in units):
        raise InputError(
            f"the coordinates are in {' and '.join(sorted(named))} by their attributes units; "
            "bring both to one unit"
        )
    if abs(unit.metres / unit_of_crs(crs).metres - 1) < 1e-5:
        return wkt  # as it is: both kinds of feet are called feet
    length = {"type": "LinearUnit", "name": unit.name, "conversion_factor": unit.metres}
    for axis in definition["coordinate_system"]["axis"]:
        axis["unit"] = length
    # With another unit it is no longer the CRS of that EPSG code.
    definition.pop("id", None)
    if unit_of_crs(crs).metres == 1:
        definition["remarks"] = _OF_METRES
    return str(crs.from_json_dict(definition).to_wkt())


def _check_degrees(crs: CRS, named: frozenset[str]) -> None:
    """Raise InputError unless a geographic CRS and its coordinates are in degrees."""
    axes = {axis.unit_name.lower() for axis in crs.axis_info if axis.unit_name != "metre"}
    for text in sorted(axes - {"unknown"} | named):
        if not text.lower().startswith(("degree", "deg", "arc_degree", "°")):
            raise InputError(
                f"the coordinates are in {text!r}, and lengths are measured from degrees; bring "
                "them to degrees, such as to EPSG:4326, or correct the CRS or the attribute units"
            )


def _satellite_height(definition: Mapping[str, Any]) -> LengthUnit | None:
    conversion = definition.get("conversion", {})
    if "geostationary" not in str(conversion.get("method", {}).get("name", "")).lower():
        return None
    heights = [
        float(item["value"])
        for item in conversion.get("parameters", ())
        if item["name"].lower() == "satellite height"
    ]
    return LengthUnit("radians at the height of the satellite", heights[0]) if heights else None


def unit_of_heights(
    attrs: Mapping[str, Any], wkt: str | None, lengths: LengthUnit | None
) -> LengthUnit | None:
    """Return the unit of a raster's heights; None if nothing tells it.

    Parameters
    ----------
    attrs
        Attributes of the raster; ``units`` may name it.
    wkt
        CRS of the raster, of which a vertical part may tell it.
    lengths
        Unit of the raster's lengths: heights are metres where that is the metre or not known, or
        where only the coordinates tell it.
    """
    from pyproj import CRS

    stated = parse_length_unit(attrs.get("units", ""))
    if stated is not None:
        return stated
    crs = None if wkt is None else CRS.from_wkt(wkt)
    vertical = None if crs is None else _vertical_axis(crs)
    if vertical is not None:
        known = parse_length_unit(vertical.unit_name)
        factor = float(vertical.unit_conversion_factor)
        return LengthUnit(known.name if known else vertical.unit_name, factor)
    if lengths is None or lengths.metres == 1 or crs is None or _OF_METRES in str(crs.remarks):
        return METRE
    return None


def _vertical_axis(crs: CRS) -> Any:
    if crs.is_bound and crs.source_crs is not None:
        crs = crs.source_crs
    parts = crs.sub_crs_list if crs.is_compound else [crs]
    axes = [axis for part in parts for axis in part.axis_info]
    return next((axis for axis in axes if axis.direction.lower() in ("up", "down")), None)


def check_elevation_unit(given: object) -> LengthUnit | None:
    """Return the unit of heights that an argument names; None if it is left out.

    Raises
    ------
    InputError
        If it names none of `ELEVATION_UNITS`.
    """
    if given is None:
        return None
    unit = parse_length_unit(given) if isinstance(given, str) else None
    if unit is None or unit.name not in ELEVATION_UNITS:
        raise InputError(
            f"elevation_unit: {given!r}; it must be one of {', '.join(map(repr, ELEVATION_UNITS))}"
        )
    return unit
