"""The commands ``orograph index build | query | matrix``."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.operations import Command
from orograph.cli.points import add_outside, add_points, points_of, read_points
from orograph.kernels.relax.models import NAMED
from orograph.results.files import check_raster_target
from orograph.tiles.extensions import LAYERS
from orograph.tiles.open_storage import file_path
from orograph.tiles.vector.write import check_vector_target

if TYPE_CHECKING:
    from orograph.cli.parser import Subcommands


def add_index(commands: Subcommands, run: Callable[..., Any]) -> None:
    """Add the command ``index``; ``run`` is called to build an index."""
    index = commands.add_parser("index", help="a distance index: built once, queried many times")
    kinds = index.add_subparsers(required=True, metavar="what")
    Command(
        "DistanceIndex.build",
        own_name="build",
        subject="store or raster file: friction, or elevation to walk over",
        without=frozenset(["memory"]),
        out=None,
        cluster=False,
        choices={"cost": NAMED},
        after=_print_built,
    ).add(kinds, run)

    query = kinds.add_parser("query", help="cost raster from points")
    query.add_argument("store", help="an index")
    query.add_argument("out", help="GeoTIFF or Zarr store to write")
    add_points(query)
    add_outside(query)
    query.add_argument(
        "--window",
        type=int,
        nargs=4,
        metavar=("ROW", "COLUMN", "ROWS", "COLUMNS"),
        help="window of cells to return (default: all)",
    )
    query.set_defaults(command=_query)

    matrix = kinds.add_parser("matrix", help="table of costs between points, as CSV")
    matrix.add_argument("store", help="an index")
    add_points(matrix)
    matrix.add_argument(
        "--targets", metavar="FILE", help="vector file of targets (default: the points themselves)"
    )
    add_outside(matrix)
    matrix.add_argument("--label", metavar="COLUMN", help="names of the points of a vector file")
    matrix.add_argument(
        "--unreachable",
        type=float,
        metavar="NUMBER",
        help="value for pairs without a path (default: inf, or -1 of integers)",
    )
    matrix.add_argument(
        "--out",
        metavar="FILE",
        help="write a Zarr store, row by row for tables of any size, or a vector file with a line "
        "for each pair",
    )
    matrix.add_argument("--overwrite", action="store_true", help="replace --out")
    matrix.add_argument("--resume", action="store_true", help="continue an interrupted --out")
    matrix.set_defaults(command=_matrix)


def _print_built(index: og.DistanceIndex, options: argparse.Namespace) -> None:
    print(index)
    print(f"bytes: {index.nbytes}, {index.bytes_per_cell:.1f} a cell")
    if index.sparsified:
        print(f"entries left out: {100 * index.left_out():.1f} %")


def _query(options: argparse.Namespace) -> None:
    check_raster_target(options.out, overwrite=False)
    index = og.DistanceIndex.open(options.store)
    window = tuple(options.window) if options.window else None
    field = index.query(points_of(options), window, snap=options.snap, outside=options.outside)[
        "cost"
    ]
    og.to_file(field, options.out)
    _say_touched(index)


def _matrix(options: argparse.Namespace) -> None:
    to_layer = options.out is not None and Path(options.out).suffix.lower() in LAYERS
    if to_layer:
        check_vector_target(file_path("out", options.out), options.overwrite)
    index = og.DistanceIndex.open(options.store)
    points = points_of(options)
    targets = None if options.targets is None else read_points(options.targets)
    given: dict[str, Any] = {"snap": options.snap, "outside": options.outside}
    if options.out is not None and not to_layer:
        given |= {name: getattr(options, name) for name in ("out", "overwrite", "resume")}
    table = index.distance_matrix(
        points, targets, label=options.label, unreachable=_unreachable(options), **given
    )
    if options.out is not None:
        if to_layer:
            og.to_file(table, options.out, overwrite=options.overwrite)
        _say_touched(index)
        return
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(["from", *table["to"].values.tolist()])
    for start, row in zip(table["from"].values.tolist(), table.values.tolist(), strict=True):
        lines.writerow([start, *row])
    _say_touched(index)


def _unreachable(options: argparse.Namespace) -> float | None:
    """Return the value for pairs without a path, an integer if it is one."""
    value = options.unreachable
    return int(value) if value is not None and float(value).is_integer() else value


def _say_touched(index: og.DistanceIndex) -> None:
    touched = index.touched
    assert touched is not None
    print(
        f"read {touched.bytes} bytes of {touched.blocks} blocks; the index has "
        f"{touched.all_bytes} of {touched.all_blocks}",
        file=sys.stderr,
    )
