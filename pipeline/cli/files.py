"""The commands ``to_geotiff``, ``to_file``, ``rasterize``, ``compile``, and those of lines."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.distances import LAYER_CRS, RASTER_FILE, VECTOR_FILE, store_raster
from orograph.distance.costs.surface import COSTS, SLOPES
from orograph.kernels.relax.models import NAMED
from orograph.results.files import check_raster_target
from orograph.road_links.roads import COSTS as ROAD_COSTS
from orograph.road_links.roads import UNITS
from orograph.tiles.open_storage import file_path
from orograph.tiles.vector.write import check_vector_target

if TYPE_CHECKING:
    from orograph.cli.parser import Subcommands

OPERATIONS = ("cost_distance", "walking_time", "hop_distance", "minimum_spanning_forest",
              "connected_components", "is_connected", "distance_index", "all_pairs")  # fmt: skip
DTYPES = ("float32", "float64", "int16", "uint8", "int32")


def add_files(commands: Subcommands) -> None:
    """Add ``to_geotiff``, ``to_file``, ``rasterize``, ``roads``, ``compile``, and lines."""
    export = commands.add_parser(
        "to_geotiff", aliases=["export"], help="write a raster of a store to a GeoTIFF"
    )
    export.add_argument("source", help="store or raster file")
    export.add_argument("out", help="GeoTIFF to write")
    export.add_argument("--nodata", type=float, help="nodata value, in place of its own")
    export.add_argument("--band", type=int, help="number of the band, if there are several")
    export.add_argument("--variable", help="name of the raster, if there are several")
    export.add_argument("--overwrite", action="store_true")
    export.set_defaults(command=_export)

    write = commands.add_parser(
        "to_file", help="write a stored result to a file, in the format of its extension"
    )
    write.add_argument("result", help="store of rasters or of a table, or raster or vector file")
    write.add_argument("out", help=".tif, .nc; for tables .gpkg, .geojson, .fgb, .parquet, .csv")
    write.add_argument("--variable", help="name of the raster, if there are several")
    write.add_argument("--crs", help=LAYER_CRS)
    write.add_argument("--overwrite", action="store_true")
    write.set_defaults(command=_write)

    burn = commands.add_parser("rasterize", help="burn a vector file onto the grid of a raster")
    burn.add_argument("layer", help="vector file")
    burn.add_argument("like", help="store or raster file of the grid")
    burn.add_argument("out", help=RASTER_FILE)
    burn.add_argument("--label", metavar="COLUMN", help="labels (default: numbers from 0)")
    burn.add_argument(
        "--all-touched", action="store_true", help="include all cells that areas touch"
    )
    burn.add_argument("--overwrite", action="store_true")
    burn.set_defaults(command=_rasterize)

    _add_roads(commands)

    lines = commands.add_parser("forest_lines", help="edges of a forest as lines in a vector file")
    lines.add_argument("forest", help="store or file of 'orograph minimum_spanning_forest'")
    lines.add_argument("out", help=VECTOR_FILE)
    lines.add_argument(
        "--window", type=int, nargs=4, metavar=("ROW", "COLUMN", "ROWS", "COLUMNS"), default=None
    )
    lines.add_argument("--crs", help=LAYER_CRS)
    lines.add_argument("--overwrite", action="store_true")
    lines.set_defaults(command=_lines)

    network = commands.add_parser("stream_lines", help="links of streams as lines in a vector file")
    network.add_argument("streams", help="store or NetCDF file of 'orograph streams'")
    network.add_argument("out", help=VECTOR_FILE)
    network.add_argument("--crs", help=LAYER_CRS)
    network.add_argument("--overwrite", action="store_true")
    network.set_defaults(command=_stream_lines)

    ready = commands.add_parser(
        "compile", help="compile kernels in advance, such as for a container image"
    )
    ready.add_argument("operations", nargs="*", metavar="operation", help=", ".join(OPERATIONS))
    ready.add_argument(
        "--dtype", nargs="+", default=["float32"], choices=DTYPES, help="dtypes of rasters"
    )
    ready.add_argument("--cost", nargs="+", default=["friction"], choices=NAMED)
    ready.set_defaults(command=_compile)


def _add_roads(commands: Subcommands) -> None:
    roads = commands.add_parser(
        "roads", help="convert roads to links between cells, and store them"
    )
    roads.add_argument("lines", help="vector file of lines, or .osm, .osm.pbf")
    roads.add_argument("like", help="store or raster file of the friction or the elevation")
    roads.add_argument("out", help="Zarr group to write")
    roads.add_argument(
        "--speed",
        nargs="+",
        metavar="KMH",
        help="km/h, a column, or CLASS=KMH (none: left out)",
    )
    roads.add_argument("--oneway", metavar="COLUMN", help="yes, no, or a column (default: tags)")
    roads.add_argument(
        "--access", metavar="WHERE", help="everywhere, ends, junctions, or a column (default: tags)"
    )
    roads.add_argument("--cost", default="time", choices=ROAD_COSTS)
    roads.add_argument("--unit", default="s", choices=tuple(UNITS), help="unit of times")
    roads.set_defaults(command=_roads)


def _roads(options: argparse.Namespace) -> None:
    print(
        og.roads(
            options.lines,
            like=options.like,
            speed=_speed(options.speed),
            oneway={"yes": True, "no": False}.get(options.oneway, options.oneway),
            access=options.access,
            cost=options.cost,
            unit=options.unit,
            store=options.out,
        )
    )


def _speed(words: Sequence[str] | None) -> float | str | dict[str, float | None] | None:
    """Return a speed as a number, a column or a mapping of classes."""
    if words is None:
        return None
    if len(words) == 1 and "=" not in words[0]:
        try:
            return float(words[0])
        except ValueError:
            return words[0]
    table: dict[str, float | None] = {}
    for word in words:
        kind, _, kmh = word.partition("=")
        try:
            table[kind] = None if kmh == "none" else float(kmh)
        except ValueError:
            raise og.InputError(
                f"speed: {word!r}; give km/h, a column, or some of CLASS=KMH"
            ) from None
    return table


def _export(options: argparse.Namespace) -> None:
    og.to_geotiff(
        options.source,
        options.out,
        nodata=options.nodata,
        band=options.band,
        variable=options.variable,
        overwrite=options.overwrite,
    )
    print(options.out)


def _write(options: argparse.Namespace) -> None:
    og.to_file(
        options.result,
        options.out,
        variable=options.variable,
        crs=options.crs,
        overwrite=options.overwrite,
    )
    print(options.out)


def _rasterize(options: argparse.Namespace) -> None:
    # Before the work, so that a target that is in the way is refused at once; so do the commands
    # below.
    check_raster_target(options.out, options.overwrite)
    raster = og.rasterize(
        options.layer, options.like, label=options.label, all_touched=options.all_touched
    )
    store_raster(raster, options.out, options.overwrite)


def _lines(options: argparse.Namespace) -> None:
    check_vector_target(file_path("out", options.out), options.overwrite)
    window = None if options.window is None else tuple(options.window)
    lines = og.forest_lines(options.forest, window)
    lines.to_file(options.out, crs=options.crs, overwrite=options.overwrite)
    print(f"{options.out}: {len(lines)} edges")


def _stream_lines(options: argparse.Namespace) -> None:
    lines = og.stream_lines(
        options.streams, out=options.out, crs=options.crs, overwrite=options.overwrite
    )
    print(f"{options.out}: {len(lines)} links")


def _compile(options: argparse.Namespace) -> None:
    unknown = sorted(set(options.operations) - set(OPERATIONS))
    if unknown:
        raise og.InputError(
            f"operation: {', '.join(unknown)} unknown; use some of {', '.join(OPERATIONS)}, or "
            "none for all"
        )
    for operation in options.operations or OPERATIONS:
        begin = time.perf_counter()
        for dtype in options.dtype:
            compile_kernels_of(operation, dtype, options.cost)
        print(f"{operation}: {time.perf_counter() - begin:.1f} s", flush=True)


def compile_kernels_of(operation: str, dtype: str, costs: Sequence[str] = ()) -> None:
    """Compile an operation's kernels by running it on a tiny raster."""
    import tempfile

    import numpy as np

    cells = np.ones((8, 8), dtype)
    given: dict[str, Any] = {"outputs": "back_direction", "tile": 4}
    if operation == "cost_distance":
        for cost in [cost for cost in costs if cost in COSTS]:
            result = og.cost_distance(cells, [(0, 0)], cost=cost, **given)
            og.least_cost_path(result, [(5, 5)])
    elif operation == "walking_time":
        for model in [cost for cost in costs if cost in SLOPES] or SLOPES[:1]:
            og.walking_time(cells, [(0, 0)], friction=cells, model=model, **given)
    elif operation == "hop_distance":
        og.hop_distance(cells, [(0, 0)], tile=4)
    elif operation == "minimum_spanning_forest":
        for connectivity in (8, 4):
            og.minimum_spanning_forest(cells, connectivity=connectivity, tile=4)
    elif operation == "connected_components":
        og.connected_components(cells, tile=4)
    elif operation == "is_connected":
        og.is_connected(cells, (0, 0), [(7, 7), (0, 7)], tile=4)
    elif operation == "all_pairs":
        og.all_pairs(np.ones((4, 4)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            for cost in costs:
                friction = cells if cost in SLOPES else None
                index = og.DistanceIndex.build(
                    cells, Path(folder, cost), cost=cost, friction=friction, block=4
                )
                index.distance_matrix([(0, 0), (7, 7)])
                index.path((0, 0), (7, 7))
