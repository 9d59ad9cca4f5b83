"""The command line of distance indexes: ``orograph index build``, ``query`` and ``matrix``."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import orograph as og
from orograph.cli.distances import check_raster_target
from orograph.cli.options import add_backend
from orograph.cli.points import add_points, points_of
from orograph.kernels.relax.models import MODELS
from orograph.tiles.extensions import GEOTIFF


def add_index(commands: Any, client: Callable[[argparse.Namespace, ExitStack], Any]) -> None:
    """Add the command; ``client`` makes the cluster that a build runs on."""
    index = commands.add_parser("index", help="a distance index: made once, asked many times")
    kinds = index.add_subparsers(required=True, metavar="what")

    build = kinds.add_parser("build", help="make an index of a raster")
    build.add_argument("friction", help="store or raster file; '-' for models that go without")
    build.add_argument("store", help="Zarr store to write")
    build.add_argument("--elevation", help="store or raster file")
    build.add_argument("--cost", choices=tuple(MODELS), default="friction")
    build.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
    build.add_argument("--dtype", choices=("float64", "float32", "int64"), default="float64")
    build.add_argument("--cell-size", type=float, default=None)
    build.add_argument("--block", type=int, default=None, help="cells a side of a block")
    build.add_argument("--levels", type=int, default=None, help="how often blocks are merged")
    build.add_argument(
        "--sparsify", action="store_true", help="leave out entries that are sums of two others"
    )
    build.add_argument("--overwrite", action="store_true")
    build.add_argument("--takeover", action="store_true", help="take the place of another writer")
    build.add_argument("--resume", action="store_true", help="go on with a build that was stopped")
    add_backend(build)
    workers = build.add_mutually_exclusive_group()
    workers.add_argument("--workers", type=int, default=None, help="default: threads, one a core")
    workers.add_argument("--scheduler", help="address of a running Dask scheduler")
    build.set_defaults(command=lambda options: _build(options, client))

    query = kinds.add_parser("query", help="cost raster from points")
    query.add_argument("store", help="an index")
    query.add_argument("out", help="GeoTIFF or Zarr store to write")
    add_points(query)
    query.add_argument(
        "--window",
        type=int,
        nargs=4,
        metavar=("ROW", "COLUMN", "ROWS", "COLUMNS"),
        help="the cells that are wanted (default: all)",
    )
    query.set_defaults(command=_query)

    matrix = kinds.add_parser("matrix", help="table of costs between points, as CSV")
    matrix.add_argument("store", help="an index")
    add_points(matrix)
    matrix.set_defaults(command=_matrix)


def _build(
    options: argparse.Namespace, client: Callable[[argparse.Namespace, ExitStack], Any]
) -> None:
    sides = {"block": options.block, "levels": options.levels}
    with ExitStack() as stack:
        cluster = None
        if options.workers is not None or options.scheduler is not None:
            cluster = client(options, stack)
        index = og.DistanceIndex.build(
            None if options.friction == "-" else options.friction,
            options.store,
            elevation=options.elevation,
            cost=options.cost,
            connectivity=options.connectivity,
            dtype=options.dtype,
            cell_size=options.cell_size,
            sparsify=options.sparsify,
            overwrite=options.overwrite,
            takeover=options.takeover,
            resume=options.resume,
            backend=options.backend,
            client=cluster,
            **{name: value for name, value in sides.items() if value is not None},
        )
        print(index)
        print(f"bytes: {index.nbytes}, {index.bytes_per_cell:.1f} a cell")
        if index.sparsified:
            print(f"entries left out: {100 * index.left_out():.1f} %")


def _query(options: argparse.Namespace) -> None:
    check_raster_target(options.out, overwrite=False)
    index = og.DistanceIndex.open(options.store)
    window = tuple(options.window) if options.window else None
    field = index.query(points_of(options), window, snap=options.snap)["cost"]
    write = og.to_geotiff if options.out.lower().endswith(GEOTIFF) else og.ingest
    write(field, options.out)
    _say_touched(index)


def _matrix(options: argparse.Namespace) -> None:
    index = og.DistanceIndex.open(options.store)
    table = index.distance_matrix(points_of(options), snap=options.snap)
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(["from", *table["to"].values.tolist()])
    for start, row in zip(table["from"].values.tolist(), table.values.tolist(), strict=True):
        lines.writerow([start, *row])
    _say_touched(index)


def _say_touched(index: og.DistanceIndex) -> None:
    touched = index.touched
    assert touched is not None
    print(
        f"read {touched.bytes} bytes of {touched.blocks} blocks; the index has "
        f"{touched.all_bytes} of {touched.all_blocks}",
        file=sys.stderr,
    )
