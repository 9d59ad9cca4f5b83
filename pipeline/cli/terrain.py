"""Options of the command ``cost_distance`` for a `TerrainCost`."""

from __future__ import annotations

import argparse
from typing import Any

import orograph as og
from orograph.cli.operations import pair_of

COEFFICIENTS = "coefficients of a named factor: zero_factor, low_cut, high_cut, slope and others"

HORIZONTAL = "coefficients of a named factor: zero_factor, cut_angle, slope, side_value"


def add_terrain(parser: argparse.ArgumentParser) -> None:
    """Add the options of a `TerrainCost` to a parser."""
    group = parser.add_argument_group("lengths along the ground, factors of slope")
    file, name = "FILE", "NAME=NUMBER"
    group.add_argument("--surface", metavar=file, help="heights for measuring lengths")
    group.add_argument("--elevation", metavar=file, help="heights for computing slopes")
    group.add_argument(
        "--elevation-unit", metavar="UNIT", help="unit of these heights: m, ft or us-ft"
    )
    group.add_argument("--vertical-factor", metavar="NAME", help="factor of slope, or its table")
    group.add_argument(
        "--vertical-coefficients", nargs="+", type=pair_of, metavar=name, help=COEFFICIENTS
    )
    group.add_argument(
        "--horizontal-raster", metavar=file, help="direction in each cell, such as of the wind"
    )
    group.add_argument(
        "--horizontal-factor",
        metavar="NAME",
        help="factor of the angle to that direction, or its table",
    )
    group.add_argument(
        "--horizontal-coefficients", nargs="+", type=pair_of, metavar=name, help=HORIZONTAL
    )
    group.add_argument(
        "--max-slope", type=float, metavar="DEGREES", help="greatest slope of a step, up or down"
    )


def check_terrain(options: argparse.Namespace) -> None:
    """Raise InputError for options of terrain that do not go together."""
    options.terrain = _terrain_of(options)
    if options.terrain is not None and options.cost is not None:
        raise og.InputError(
            f"--cost: {options.cost} with --surface, --elevation or --horizontal-raster; leave it "
            "out"
        )


def _terrain_of(options: argparse.Namespace) -> og.TerrainCost | None:
    names = (
        *("surface", "elevation", "elevation_unit", "vertical_factor", "vertical_coefficients"),
        *("horizontal_raster", "horizontal_factor", "horizontal_coefficients"),
        "max_slope",
    )
    given: dict[str, Any] = {name: getattr(options, name) for name in names}
    if all(value is None for value in given.values()):
        return None
    for name in ("vertical_coefficients", "horizontal_coefficients"):
        if given[name] is not None:
            given[name] = dict(given[name])
    return og.TerrainCost(**given)


def terrain_given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the argument ``cost`` that the options of terrain stand for."""
    return {} if options.terrain is None else {"cost": options.terrain}
