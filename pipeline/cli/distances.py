"""The commands ``least_cost_path`` and ``corridor``, and writing of rasters and tables."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import orograph as og
from orograph.arguments.sources import OUTSIDE
from orograph.cli.points import add_outside, add_points, points_of
from orograph.results.files import check_raster_target
from orograph.tiles.arguments import check_file, check_path
from orograph.tiles.extensions import check_extension
from orograph.tiles.open_storage import file_path
from orograph.tiles.vector.write import check_vector_target

if TYPE_CHECKING:
    import xarray as xr

    from orograph.cli.parser import Subcommands

RESULT = "store or file of cost_distance or walking_time"
RASTER_FILE = "Zarr store to write, or a file: .tif, .nc"
LAYER_CRS = "CRS of the layer in the file, such as EPSG:4326 (default: its own)"
VECTOR_FILE = "file to write: .gpkg, .geojson, .shp, .fgb, .parquet, .csv"


def add_distances(commands: Subcommands) -> None:
    """Add the commands ``least_cost_path`` and ``corridor`` to the parser."""
    path = commands.add_parser(
        "least_cost_path", aliases=["path"], help="least-cost paths back to their sources"
    )
    path.add_argument("result", help=RESULT)
    path.add_argument(
        "--and",
        dest="further",
        action="append",
        default=[],
        metavar="FILE",
        help="GeoTIFF of one more raster of the result",
    )
    add_points(path, "where a path begins; repeat for more")
    path.add_argument("--label", metavar="COLUMN", help="names of the points of a vector file")
    add_outside(path)
    path.add_argument(
        "--unreachable",
        choices=OUTSIDE,
        default="error",
        help="refuse points on unreached cells, or skip them",
    )
    path.add_argument(
        "--all-touched", action="store_true", help="include all cells that areas touch"
    )
    path.add_argument("--out", help=f"{VECTOR_FILE} (a line for each cell)")
    path.add_argument("--crs", help=LAYER_CRS)
    path.add_argument("--overwrite", action="store_true")
    path.set_defaults(command=_path)

    corridor = commands.add_parser(
        "corridor", help="least cost of a path between two sets of sources through each cell"
    )
    corridor.add_argument("first", help=RESULT)
    corridor.add_argument("second", help="that of the other sources")
    corridor.add_argument("out", help=RASTER_FILE)
    corridor.add_argument(
        "--and", dest="further", action="append", metavar="RESULT", help="one more result"
    )
    corridor.add_argument(
        "--normalize", action="store_true", help="subtract the least cost of each pair"
    )
    corridor.add_argument("--threshold", type=float, help="leave out cells with a greater value")
    corridor.add_argument("--overwrite", action="store_true")
    corridor.set_defaults(command=_corridor)


def _path(options: argparse.Namespace) -> None:
    # The target is checked before paths are traced.
    out = None if options.out is None else file_path("out", options.out)
    as_csv = out is not None and out.suffix.lower() == ".csv"
    if options.crs is not None and (out is None or as_csv):
        raise og.InputError(
            f"crs: {options.crs} is for a vector file that out= names, such as .gpkg; leave it out"
        )
    if out is not None and as_csv:
        check_table_target(out, options.overwrite)
    elif out is not None:
        check_vector_target(out, options.overwrite, crs=options.crs)
    points = points_of(options)
    paths = og.least_cost_path(
        [options.result, *options.further] if options.further else options.result,
        points,
        label=options.label,
        snap=options.snap,
        outside=options.outside,
        unreachable=options.unreachable,
        all_touched=options.all_touched,
    )
    if paths.outside:
        print(f"points outside: {paths.outside}", file=sys.stderr)
    if paths.unreachable:
        print(f"unreachable points: {paths.unreachable}", file=sys.stderr)
    if out is None:
        for number, path in enumerate(paths):
            print(f"point {number}: cost {path.cost:g}, {len(path.cells)} cells")
            for x, y in path.coordinates.tolist():
                print(f"{x:.10g} {y:.10g}")
        return
    if as_csv:
        rows = [
            (number, *cell, *point)
            for number, path in enumerate(paths)
            for cell, point in zip(path.cells.tolist(), path.coordinates.tolist(), strict=True)
        ]
        write_table(out, ("path", "row", "column", "x", "y"), rows)
    else:
        paths.to_file(out, crs=options.crs, overwrite=options.overwrite)
    print(f"{out}: {len(paths)} paths")


def _corridor(options: argparse.Namespace) -> None:
    check_raster_target(options.out, options.overwrite)
    stores = options.first, options.second, *(options.further or ())
    found = og.corridor(
        stores,
        normalize=options.normalize,
        threshold=options.threshold,
    )
    store_raster(found, options.out, options.overwrite)


def read_matrix(path: str) -> Any:
    """Read a matrix from a file: dense from .npy and .csv, sparse from .npz and .mtx."""
    from scipy.io import mmread
    from scipy.sparse import load_npz

    readers: dict[str, Callable[[str], Any]] = {
        ".npy": lambda name: np.load(name, allow_pickle=False),
        ".csv": lambda name: np.loadtxt(name, delimiter=",", ndmin=2),
        ".npz": load_npz,
        ".mtx": mmread,
    }
    suffix = Path(path).suffix.lower()
    if suffix not in readers:
        raise og.InputError(f"graph: {path} ends in none of {', '.join(readers)}; give one of them")
    if not Path(check_path("graph", path)).is_file():
        raise og.InputError(f"graph: {path} is not a file; is it relative to {Path.cwd()}?")
    try:
        return readers[suffix](path)
    except (ValueError, OSError, KeyError, TypeError) as error:
        raise og.InputError(f"graph: {path} is not a matrix that can be read ({error})") from None


def store_raster(raster: xr.DataArray, out: str, overwrite: bool) -> None:
    """Write a raster in the format that the extension of ``out`` names."""
    og.to_file(raster, out, overwrite=overwrite)
    print(f"{out}: {raster.shape[0]} x {raster.shape[1]} cells of {raster.dtype}")


def check_table_target(path: Path, overwrite: bool) -> None:
    """Raise the error that `write_table` would raise for a path, without writing."""
    check_path("out", path)
    check_extension("out", path, "a table as CSV", (".csv", ".txt"))
    check_file(path, overwrite)


def write_table(path: Path | None, head: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> None:
    """Write a table as CSV to a file, or to standard output."""
    if path is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([head, *rows])
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
