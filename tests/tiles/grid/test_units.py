"""Names of units, and the unit of a CRS."""

from __future__ import annotations

import pytest
from pyproj import CRS

from orograph.tiles.grid.units import METRE, parse_length_unit, unit_of_crs


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("m", "m"),
        ("Metres", "m"),
        ("kilometer", "km"),
        ("US survey foot", "us-ft"),
        ("US_survey_foot", "us-ft"),
        ("Foot_US", "us-ft"),
        ("feet", "ft"),
        ("foot", "ft"),
    ],
)
def test_usual_spellings_are_known(text: str, name: str) -> None:
    unit = parse_length_unit(text)
    assert unit is not None
    assert unit.name == name


@pytest.mark.parametrize("text", ["", "s", "degrees", "1", None, "metre per second"])
def test_what_is_not_a_length_is_none(text: object) -> None:
    assert parse_length_unit(text) is None


@pytest.mark.parametrize(
    ("crs", "name", "metres"),
    [
        ("EPSG:32632", "m", 1.0),
        ("EPSG:2263", "us-ft", 1200 / 3937),
        ("EPSG:2222", "ft", 0.3048),
        ("EPSG:3032", "m", 1.0),
        ("EPSG:3167", "Chain", None),
    ],
)
def test_the_unit_of_a_crs(crs: str, name: str, metres: float | None) -> None:
    unit = unit_of_crs(CRS.from_user_input(crs))
    assert name.lower() in unit.name.lower()
    assert metres is None or unit.metres == pytest.approx(metres, rel=1e-12)


def test_lengths_in_degrees_are_metres() -> None:
    assert unit_of_crs(CRS.from_epsg(4326)) == METRE
