"""The command line of what the terrain says: ``orograph fill``, ``flood``, ``passes``, ..."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import orograph as og

RASTER = "Zarr store to write, or a GeoTIFF if it ends in .tif"
TABLE = "Zarr store to write"


def add_terrain(
    commands: Any,
    add_run_options: Callable[[argparse.ArgumentParser], None],
    run: Callable[..., Any],
) -> None:
    """Add the commands; ``run`` runs an operation on a cluster and watches it."""

    def command(name: str, help_text: str, out: str = RASTER) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text)
        parser.add_argument("elevation", help="store or raster file")
        if out:
            parser.add_argument("out", help=out)
            add_run_options(parser)
        else:
            parser.add_argument("--tile", type=int, default=None, help="cells a side of a tile")
        parser.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
        parser.add_argument("--nodata", type=float, default=None)
        return parser

    fill = command("fill", "fill depressions to their spill levels")
    _add_places(fill, "outlet", "where water leaves; default: the edge and nodata", required=False)
    fill.add_argument("--max-depth", type=float, help="deeper depressions stay as they are")
    fill.add_argument(
        "--outputs",
        nargs="+",
        choices=("filled", "depth", "depression"),
        default=("filled",),
    )

    def do_fill(options: argparse.Namespace) -> None:
        run(
            og.fill_depressions,
            (options.elevation,),
            options,
            outlets=options.outlets or options.outlet,
            connectivity=options.connectivity,
            max_depth=options.max_depth,
            outputs=options.outputs,
            nodata=options.nodata,
        )

    fill.set_defaults(command=do_fill)

    flood = command("flood", "the level at which water from sources reaches each cell")
    _add_places(flood, "source", "where the water comes from", required=True)
    flood.add_argument("--snap", action="store_true", help="move points on nodata to a valid cell")

    def do_flood(options: argparse.Namespace) -> None:
        run(
            og.flood_level,
            (options.elevation, options.sources or options.source),
            options,
            connectivity=options.connectivity,
            snap=options.snap,
            nodata=options.nodata,
        )

    flood.set_defaults(command=do_flood)

    peaks = command("peaks", "peaks with prominences and key cols", out=TABLE)
    peaks.add_argument("--min-prominence", type=float, default=0.0)

    def do_peaks(options: argparse.Namespace) -> None:
        found = run(
            og.peaks,
            (options.elevation,),
            options,
            min_prominence=options.min_prominence,
            connectivity=options.connectivity,
            nodata=options.nodata,
        )
        print(f"peaks: {found.sizes['peak']}")

    peaks.set_defaults(command=do_peaks)

    depressions = command(
        "depressions", "the hierarchy of depressions, with areas and volumes", out=TABLE
    )
    depressions.add_argument("--min-depth", type=float, default=0.0)
    depressions.add_argument("--min-area", type=float, default=0.0)
    depressions.add_argument("--labels", action="store_true", help="write a raster of them too")

    def do_depressions(options: argparse.Namespace) -> None:
        found = run(
            og.depressions,
            (options.elevation,),
            options,
            min_depth=options.min_depth,
            min_area=options.min_area,
            labels=options.labels,
            connectivity=options.connectivity,
            nodata=options.nodata,
        )
        print(f"depressions: {found.sizes['depression']}")

    depressions.set_defaults(command=do_depressions)

    passes = command("passes", "the lowest pass between each two points", out="")
    for name, help_text, required in (
        ("point", "give it again for more points", True),
        ("target", "where to; default: the points", False),
    ):
        passes.add_argument(
            f"--{name}",
            type=float,
            nargs=2,
            action="append",
            metavar=("X", "Y"),
            required=required,
            help=help_text,
        )
    passes.add_argument("--snap", action="store_true", help="move points on nodata to a valid cell")
    passes.add_argument("--out", help="Zarr store to write")
    passes.add_argument("--overwrite", action="store_true", help="replace the store")
    passes.add_argument("--paths", action="store_true", help="write a path over each pass too")
    passes.set_defaults(command=_passes)


def _passes(options: argparse.Namespace) -> None:
    found = og.pass_elevation(
        options.elevation,
        options.point,
        options.target,
        connectivity=options.connectivity,
        snap=options.snap,
        nodata=options.nodata,
        tile=options.tile,
        paths=options.paths,
        out=options.out,
        overwrite=options.overwrite,
    )
    found = found.drop_dims("vertex", errors="ignore").load()
    for i in range(found.sizes["point"]):
        for j in range(found.sizes["target"]):
            if options.target is None and j <= i:
                continue  # the matrix is symmetric
            at = {name: float(array[i, j]) for name, array in found.data_vars.items()}
            where = f"{at['elevation']:.10g} at {at['pass_x']:.10g} {at['pass_y']:.10g}"
            print(f"{i} {j}: {where if at['elevation'] < float('inf') else 'no way'}")


def _add_places(parser: argparse.ArgumentParser, name: str, help_text: str, required: bool) -> None:
    """Add the two ways to say where: a raster, or points."""
    where = parser.add_mutually_exclusive_group(required=required)
    where.add_argument(f"--{name}s", help=f"raster: {help_text}")
    where.add_argument(
        f"--{name}", type=float, nargs=2, action="append", metavar=("X", "Y"), help=help_text
    )
