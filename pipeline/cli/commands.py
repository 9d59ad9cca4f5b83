"""List the commands that run operations, with what the shell adds to some of them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.distances import (
    VECTOR_FILE,
    check_table_target,
    read_matrix,
    write_table,
)
from orograph.cli.operations import Command, print_attributes
from orograph.cli.terrain import add_terrain, check_terrain, terrain_given
from orograph.distance.costs.surface import SLOPES
from orograph.kernels.forest.weights import WEIGHTS
from orograph.operations.operation import public_operations
from orograph.results.costs import COST, TIME
from orograph.tiles.extensions import GEOTIFF
from orograph.tiles.open_storage import file_path
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.vector.write import check_vector_target

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


def commands() -> list[Command]:
    """Return the commands that run operations, one for each public operation on rasters."""
    known = {command.operation_name for command in SPECIAL}
    return [
        *SPECIAL,
        *(
            Command(name)
            for name, operation in public_operations().items()
            if name not in known and operation.takes_raster
        ),
    ]


def command_named(name: str) -> Command | None:
    """Return the command of `SPECIAL` with a name or alias, or None; no operation is imported."""
    named = (c for c in SPECIAL if name in (c.name, *c.aliases))
    return next(named, None)


def _outputs_of(costs: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the default outputs: costs and back directions, but only costs for a GeoTIFF.

    Paths go down the costs of the eikonal equation, which has no back directions.
    """
    from orograph.distance.eikonal.job import EIKONAL

    alone = options.out.lower().endswith(GEOTIFF) or getattr(options, "cost", None) == EIKONAL
    return {"outputs": (costs,) if alone else (costs, "back_direction")}


def _print_length(dimension: str) -> Any:
    """Return a function that prints a result's attributes and its number of table rows."""

    def after(result: xr.Dataset, options: argparse.Namespace) -> None:
        print_attributes(result, options)
        print(f"{dimension}s: {result.sizes[dimension]}")

    return after


def _print_passes(found: xr.Dataset, options: argparse.Namespace) -> None:
    found = found.drop_dims("vertex", errors="ignore").load()
    # Among the points themselves each pair is printed once.
    symmetric = options.targets_points is None and options.targets_file is None
    for i in range(found.sizes["point"]):
        for j in range(i + 1 if symmetric else 0, found.sizes["target"]):
            at = {name: float(array[i, j]) for name, array in found.data_vars.items()}
            where = f"{at['elevation']:.10g} at {at['pass_x']:.10g} {at['pass_y']:.10g}"
            print(f"{i} {j}: {where if at['elevation'] < float('inf') else 'no way'}")


def _print_reach(reach: og.Reach, options: argparse.Namespace) -> None:
    for pair, connected in enumerate(reach.connected.tolist()):
        steps = "" if reach.hops is None else f", {reach.hops[pair]} hops"
        print(f"pair {pair}: {f'connected{steps}' if connected else 'not connected'}")
        path = reach.paths and reach.paths[pair]
        for x, y in path.coordinates.tolist() if path else ():
            print(f"{x:.10g} {y:.10g}")


def _print_geometries(layer: og.VectorLayer, options: argparse.Namespace) -> None:
    print(f"{options.out}: {len(layer)} geometries")


def _check_table_of_pairs(options: argparse.Namespace) -> None:
    """Keep the result in memory if ``out`` is a CSV file, and check that file."""
    options.table = options.out.lower().endswith(".csv")
    if options.table:
        check_table_target(file_path("out", options.out), options.overwrite)
        options.path, options.out = options.out, None
        # None stands for an option that was not given: a result in memory takes neither.
        options.overwrite = options.predecessors = None


def _write_pairs(result: xr.Dataset, options: argparse.Namespace) -> None:
    if options.table:
        distance = result["distance"].values.tolist()
        head = ("from", *range(len(distance)))
        write_table(Path(options.path), head, [(n, *row) for n, row in enumerate(distance)])
    print_attributes(result, options)


def _add_zonal_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", metavar="FILE", help=".csv to write; by default it is printed")
    parser.add_argument("--overwrite", action="store_true", help="replace the table if it exists")


def _check_zonal_table(options: argparse.Namespace) -> None:
    if options.table is not None:
        check_table_target(file_path("--table", options.table), options.overwrite)


def _write_zonal_table(table: pd.DataFrame, options: argparse.Namespace) -> None:
    table.to_csv(sys.stdout if options.table is None else options.table)


def _add_table_and_picture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table",
        metavar="FILE",
        help=".csv, .gpkg, .geojson, .fgb, .parquet: class, cells, area and centroid of each",
    )
    parser.add_argument("--picture", metavar="FILE", help="draw the labels, such as to a PNG")


def _check_table_and_picture(options: argparse.Namespace) -> None:
    if options.table is not None:
        table = file_path("--table", options.table)
        check_vector_target(table, options.overwrite, "--table")
    if options.picture is not None:
        from orograph.plotting.labels import image_writer

        parent = os.path.dirname(os.path.abspath(file_path("--picture", options.picture)))
        if not os.path.isdir(parent):
            raise og.InputError(f"--picture: the folder {parent} does not exist; create it first")
        image_writer()  # if it is not installed, better say so before the run


def _write_table_and_picture(result: xr.Dataset, options: argparse.Namespace) -> None:
    print_attributes(result, options)
    which = {"nodata": options.nodata, "band": options.band, "variable": options.variable}
    if options.table is not None:
        classes = open_raster(options.classes, **which)
        table = og.component_table(result, classes)
        og.to_file(table, options.table, overwrite=options.overwrite or False)
        print(f"table: {options.table}")
    if options.picture is not None:
        from orograph.plotting.labels import components_picture

        classes = open_raster(options.classes, **which)
        print(f"picture: {components_picture(result, options.picture, classes=classes)}")


SPECIAL = (
    Command(
        "minimum_spanning_forest",
        ("mst",),
        choices={"weight": tuple(WEIGHTS)},
    ),
    Command(
        "cost_distance",
        ("cost",),
        defaults=lambda options, friction: {
            **_outputs_of(COST, options),
            **terrain_given(options),
        },
        extend=add_terrain,
        before=check_terrain,
    ),
    Command(
        "walking_time",
        ("walk",),
        defaults=lambda options, elevation: _outputs_of(TIME, options),
        choices={"model": SLOPES},
    ),
    Command(
        "connected_components",
        ("components",),
        extend=_add_table_and_picture,
        before=_check_table_and_picture,
        after=_write_table_and_picture,
    ),
    Command(
        "hop_distance",
        ("hops",),
        without=frozenset(["predecessors"]),
    ),
    Command("fill_depressions", ("fill_depressions",), "fill"),
    Command("flood_level", ("flood_level",), "flood"),
    *(
        Command(
            operation,
            out=VECTOR_FILE,
            cluster=False,
            after=_print_geometries,
        )
        for operation in ("polygonize", "isochrones", "region_network")
    ),
    Command(
        "zonal",
        out=None,
        cluster=False,
        extend=_add_zonal_table,
        before=_check_zonal_table,
        after=_write_zonal_table,
    ),
    Command("peaks", after=_print_length("peak")),
    Command("depressions", after=_print_length("depression")),
    Command("pass_elevation", (), "passes", out=None, cluster=False, after=_print_passes),
    Command(
        "is_connected",
        ("reach",),
        out=None,
        cluster=False,
        after=_print_reach,
    ),
    Command(
        "all_pairs",
        subject="matrix: .npy, .csv, .npz (SciPy, sparse) or .mtx",
        out="Zarr store to write, or .csv for distances alone",
        cluster=False,
        without=frozenset(["sources"]),
        read=lambda options: read_matrix(options.graph),
        before=_check_table_of_pairs,
        after=_write_pairs,
    ),
)
"""Commands that differ from their operation in more than the name.

An operation that is not here has a command of its own name.
"""
