"""The command line of what the terrain says: ``orograph fill``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import orograph as og


def add_terrain(
    commands: Any,
    add_run_options: Callable[[argparse.ArgumentParser], None],
    run: Callable[..., Any],
) -> None:
    """Add the commands; ``run`` runs an operation on a cluster and watches it."""

    def command(name: str, help_text: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text)
        parser.add_argument("elevation", help="store or raster file")
        parser.add_argument("out", help="Zarr store to write")
        parser.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
        parser.add_argument("--nodata", type=float, default=None)
        add_run_options(parser)
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


def _add_places(parser: argparse.ArgumentParser, name: str, help_text: str, required: bool) -> None:
    """Add the two ways to say where: a raster, or points."""
    where = parser.add_mutually_exclusive_group(required=required)
    where.add_argument(f"--{name}s", help=f"raster: {help_text}")
    where.add_argument(
        f"--{name}", type=float, nargs=2, action="append", metavar=("X", "Y"), help=help_text
    )
