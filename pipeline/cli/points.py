"""Options by which commands take points: coordinates, or a file."""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np

import orograph as og
from orograph.arguments.sources import OUTSIDE
from orograph.tiles.arguments import check_path
from orograph.tiles.vector.layer import is_vector_path


def add_points(parser: argparse.ArgumentParser, help_text: str = "") -> None:
    """Add the options ``--point``, ``--points`` and ``--snap`` to a parser."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--point", type=float, nargs=2, action="append", metavar=("X", "Y"), help=help_text
    )
    where.add_argument(
        "--points", metavar="FILE", help="vector file, or text file with x and y in each line"
    )
    parser.add_argument(
        "--snap",
        type=cells_or_length,
        default=False,
        metavar="CELLS|LENGTH",
        help='move points on nodata to the nearest valid cell within a number of cells, or "300 m"',
    )


def cells_or_length(text: str) -> int | str:
    """Return a number of cells, or else the text of a length."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def add_outside(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--outside`` to a parser."""
    parser.add_argument(
        "--outside",
        choices=OUTSIDE,
        default="error",
        help="refuse points outside the raster, or skip them",
    )


def points_of(options: argparse.Namespace) -> Any:
    """Return the points given on a command line: coordinates, or the path of a vector file."""
    return options.point if options.point else read_points(options.points)


def read_points(path: str) -> Any:
    """Read points from a text file; return the path of a vector file unchanged."""
    if is_vector_path(path):
        return path
    if not os.path.isfile(check_path("points", path)):
        raise og.InputError(f"points: {path} is not a file; is it relative to {os.getcwd()}?")
    try:
        with open(path, encoding="utf-8") as lines:
            delimiter = "," if "," in lines.readline() else None
        return np.loadtxt(path, ndmin=2, delimiter=delimiter)
    except (OSError, ValueError) as error:
        raise og.InputError(f"points: {path}: {error}; give x and y in each line") from None
