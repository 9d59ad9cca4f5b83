"""The command line of passes: ``orograph passes``."""

from __future__ import annotations

import argparse
from typing import Any

import orograph as og


def add_passes(commands: Any) -> None:
    """Add the command."""
    passes = commands.add_parser("passes", help="the lowest pass between each two points")
    passes.add_argument("elevation", help="store or raster file")
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
    passes.add_argument("--connectivity", type=int, choices=(4, 8), default=8)
    passes.add_argument("--nodata", type=float, default=None)
    passes.add_argument("--tile", type=int, default=None, help="cells a side of a tile")
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
