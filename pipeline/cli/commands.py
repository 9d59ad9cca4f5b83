"""The operations that have a command of their own, and what it does besides running them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.distances import check_table_target
from orograph.cli.operations import Command
from orograph.kernels.forest.weights import WEIGHTS
from orograph.kernels.relax.models import MODELS
from orograph.tiles.arguments import absolute_path, check_path
from orograph.tiles.extensions import GEOTIFF
from orograph.tiles.raster.raster import open_raster

if TYPE_CHECKING:
    import xarray as xr


def commands() -> list[Command]:
    """Return the commands of operations that write a store."""
    return [
        Command(
            og.minimum_spanning_forest,
            "minimum_spanning_forest",
            ("mst",),
            choices={"weight": tuple(WEIGHTS)},
        ),
        Command(
            og.cost_distance,
            "cost_distance",
            ("cost",),
            defaults=_outputs_of_cost,
            choices={"cost": tuple(MODELS)},
        ),
        Command(
            og.connected_components,
            "connected_components",
            ("components",),
            without=frozenset(["method"]),
            extend=_add_table_and_picture,
            before=_check_table_and_picture,
            after=_write_table_and_picture,
        ),
        Command(
            og.hop_distance,
            "hop_distance",
            ("hops",),
            without=frozenset(["predecessors"]),
        ),
        Command(og.fill_depressions, "fill", ("fill_depressions",)),
        Command(og.flood_level, "flood", ("flood_level",)),
        Command(og.peaks, "peaks", after=_print_length("peak")),
        Command(og.depressions, "depressions", after=_print_length("depression")),
    ]


def _outputs_of_cost(options: argparse.Namespace) -> dict[str, Any]:
    """Return the outputs from which paths can be traced; a GeoTIFF holds one."""
    in_file = options.out.lower().endswith(GEOTIFF)
    return {"outputs": ("cost",) if in_file else ("cost", "back_direction")}


def _print_length(dimension: str) -> Any:
    """Return a function that prints how many rows a table has."""

    def after(result: xr.Dataset, options: argparse.Namespace) -> None:
        print(f"{dimension}s: {result.sizes[dimension]}")

    return after


def _add_table_and_picture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table", metavar="FILE", help="CSV with class, cells, area and centroid of each"
    )
    parser.add_argument("--picture", metavar="FILE", help="draw the labels, such as to a PNG")


def _check_table_and_picture(options: argparse.Namespace) -> None:
    if options.table is not None:
        check_table_target(Path(check_path("--table", options.table)), options.overwrite)
    if options.picture is not None:
        from orograph.plotting.labels import image_writer

        parent = os.path.dirname(absolute_path("--picture", options.picture))
        if not os.path.isdir(parent):
            raise og.InputError(f"--picture: the folder {parent} does not exist; create it first")
        image_writer()  # if it is not installed, better say so before the run


def _write_table_and_picture(result: xr.Dataset, options: argparse.Namespace) -> None:
    which = {"nodata": options.nodata, "band": options.band, "variable": options.variable}
    if options.table is not None:
        classes = open_raster(options.classes, **which)
        og.component_table(result, classes).to_csv(options.table)
        print(f"table: {options.table}")
    if options.picture is not None:
        from orograph.plotting.labels import components_picture

        classes = open_raster(options.classes, **which)
        print(f"picture: {components_picture(result, options.picture, classes=classes)}")
