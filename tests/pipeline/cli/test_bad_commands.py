"""Every argument of every command, given what it cannot be used with: one line, and status 2.

Commands and arguments are taken from the parser, so that a new one without an entry here fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

import orograph as og
from orograph.cli.main import _parser, main
from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.publish import publish
from orograph.tiles.store.sink import StoreSink

ACCEPTED = "it was accepted, and work has begun"
WHOLE = ("x", "1.5", "nan", "inf", "", "1e3", "-1", str(2**70))
NUMBER = ("x", "", "1,5", "1j")
NONE = ("x", "")
STORES = ("none.zarr", "file.txt", "folder", "", "a\0b", "s3://bucket/a.zarr", "x" * 300)
OUT = ("", "a\0b", "x" * 245, "none/a.zarr", "file.txt", "folder", "taken.zarr", "s3://b/a.zarr",
       "peaks.shp", "x.KML", "m.xlsx", "x.grib", "a.zarr.zip")  # fmt: skip
POINTS = (("x", "0"), ("0",), ("nan", "0"), ("inf", "0"), ("9", "9"), ("-1", "0"), ("1e400", "0"))

# by option, or by the name of a positional argument
EVERYWHERE: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "--tile": (*WHOLE, "0", "9000"),
    "--shard": (*WHOLE, "0", "3"),
    "--band": (*WHOLE, "0", "9"),
    "--workers": (*WHOLE, "0"),
    "--connectivity": (*WHOLE, "5"),
    "--nodata": NUMBER,
    "--cell-size": (*NUMBER, "0", "-1", "nan", "inf"),
    "--cost": NONE,
    "--dtype": (*NONE, "float16"),
    "--friction": STORES,
    "--model": (*NONE, "friction"),
    "--point": POINTS,
    "--from": POINTS,
    "--to": POINTS,
    "--points": ("none.txt", "folder", "", "a\0b", "words.txt"),
    "--backend": NONE,
    "--label": ("none",),
    "--source-values": ("x", "", "nan", "inf"),
    "--variable": ("none",),
    "--sources": STORES,
    "--window": (
        *(("x", "0", "1", "1"), ("0", "0", "1"), ("0", "0", "0", "1"), ("0", "0", "9", "9")),
        ("-1", "0", "1", "1"),
    ),
    "--to-file": ("none.txt", "folder", "", "a\0b", "words.txt"),
    "--from-file": ("none.txt", "folder", "", "a\0b", "words.txt"),
    "--targets": ("none.txt", "folder", "", "a\0b", "words.txt"),
    "--coefficients": ("x", "pace=x", "pace=nan", "zebra=1", "pace"),
    "--snap": WHOLE,
    "--barriers": (*STORES, "none.gpkg", "none.gpkg=600", "dem.tif=-1", "dem.tif=nan"),
    "--outside": (*NONE, "ignore"),
    "--unreachable": (*NONE, "ignore"),
    "--scheduler": ("", "x://y:1", "tcp://", "junk", "tcp://127.0.0.1:9"),
    "--storage-option": ("", "region", "regoin=x", "skip_signature=maybe", "region=", "=x"),
    "source": STORES,
    "elevation": STORES,
    "friction": STORES,
    "classes": STORES,
    "mask": STORES,
    "result": STORES,
    "raster": STORES,
    "out": OUT,
    "store": OUT,
}
VECTOR_OUT = ("", "a\0b", "x" * 300 + ".gpkg", "none/a.gpkg", "a.xyz")
CRS = ("", "x", "EPSG:99999", "EPSG:4326")  # the last as the raster has none
GRAPH_COMMANDS = ("paths", "mst", "components", "pairs")
ROUTING = {
    "--depressions": NONE,
    "--max-length": (*WHOLE, "0", "1025"),
    "--max-depth": (*NUMBER, "-1", "nan"),
    "--flats": NONE,
    "--outlets": STORES,
    "--outlet": POINTS,
    "--sinks": STORES,
    "--sink": POINTS,
    "--edges": NONE,
    "--streams": STORES,
    "--burn": (*NUMBER, "-1", "nan"),
}
"""Options about how water flows over heights."""
OWN: dict[tuple[str, str], tuple[str | tuple[str, ...], ...]] = {
    ("demo", "--folder"): ("", "a\0b", "file.txt"),
    ("info", "store"): STORES,
    ("minimum_spanning_forest", "--weight"): NONE,
    **{
        (command, f"--{option}"): values
        for command in ("cost_distance", "walking_time")
        for option, values in {
            "travel": NONE,
            "links": (*STORES, "words.txt"),
            "outputs": (*NONE, ("cost", "x")),
            "max-cost": (*NUMBER, "-1", "nan"),
            "initial-cost": (*NUMBER, "-1", "nan", "inf"),
            "source-cost": ("x", "rate=x", "rate=nan", "zebra=1", "rate", "multiplier=0"),
        }.items()
    },
    ("cost_distance", "--surface"): STORES,
    ("cost_distance", "--elevation"): STORES,
    ("cost_distance", "--elevation-unit"): ("", "km", "furlong"),
    ("cost_distance", "--max-slope"): (*NUMBER, "-1", "91", "nan"),
    ("walking_time", "--max-slope"): (*NUMBER, "-1", "91", "nan"),
    ("cost_distance", "--horizontal-raster"): STORES,
    ("cost_distance", "--horizontal-factor"): ("", "steep", "words.txt", "none.txt"),
    ("cost_distance", "--horizontal-coefficients"): ("x", "slope=x", "slope=nan", "zebra=1"),
    ("cost_distance", "--vertical-factor"): ("", "steep", "words.txt", "none.txt"),
    ("cost_distance", "--vertical-coefficients"): ("x", "slope=x", "slope=nan", "zebra=1"),
    ("walking_time", "--rasters"): ("x", "wind=dem.tif", ""),
    ("walking_time", "--elevation-unit"): NONE,
    ("connected_components", "--min-size"): (*WHOLE, "0"),
    ("connected_components", "--outputs"): (*NONE, ("labels", "x")),
    ("connected_components", "--picture"): ("", "a\0b", "none/a.png"),
    ("connected_components", "--table"): (
        *("", "a\0b", "none/a.csv", "folder", "x" * 300, "a.xlsx"),
    ),
    ("hop_distance", "--max-hops"): WHOLE,
    ("least_cost_path", "--and"): STORES,
    ("least_cost_path", "--out"): VECTOR_OUT,
    ("least_cost_path", "--crs"): CRS,
    ("peaks", "--crs"): CRS,
    ("depressions", "--crs"): CRS,
    ("passes", "--crs"): CRS,
    ("corridor", "first"): STORES,
    ("corridor", "second"): STORES,
    ("corridor", "--and"): STORES,
    ("corridor", "--threshold"): (*NUMBER, "-1", "nan"),
    ("all_pairs", "graph"): ("none.npy", "words.txt", "file.txt", "folder", "", "a\0b.npy"),
    ("all_pairs", "--method"): NONE,
    ("all_pairs", "--no-edge"): NUMBER,
    ("all_pairs", "--negative-cycles"): NONE,
    ("to_geotiff", "out"): ("", "a\0b", "x" * 300, "none/a.tif", "file.txt", "folder", "a.png"),
    ("to_file", "--crs"): CRS,
    ("to_file", "out"): ("", "a\0b", "x" * 300, "none/a.tif", "file.txt", "folder", "a.png"),
    ("rasterize", "layer"): ("none.gpkg", "dem.tif", "", "a\0b.gpkg"),
    ("rasterize", "like"): STORES,
    ("roads", "lines"): ("none.gpkg", "dem.tif", "", "a\0b.gpkg", "none.osm", "layer.geojson"),
    ("roads", "like"): STORES,
    ("roads", "--speed"): ("0", "-1", "nan", "x", "", "a=b", "a=-1", ("5", "6")),
    ("roads", "--oneway"): NONE,
    ("roads", "--access"): NONE,
    ("roads", "--cost"): NONE,
    ("roads", "--unit"): NONE,
    ("forest_lines", "forest"): STORES,
    ("forest_lines", "out"): VECTOR_OUT,
    ("forest_lines", "--crs"): CRS,
    ("zonal", "zones"): STORES,
    ("zonal", "--values"): STORES,
    ("zonal", "--statistics"): (*NONE, "median"),
    ("polygonize", "labels"): STORES,
    ("polygonize", "out"): VECTOR_OUT,
    ("polygonize", "--crs"): CRS,
    ("isochrones", "cost"): STORES,
    ("isochrones", "levels"): (*NUMBER, "nan"),
    ("isochrones", "--unit"): (*NONE, "h", "hours"),
    ("isochrones", "out"): VECTOR_OUT,
    ("isochrones", "--crs"): CRS,
    ("region_network", "out"): VECTOR_OUT,
    ("region_network", "--crs"): CRS,
    ("region_network", "--regions"): STORES,
    ("region_network", "--region"): POINTS,
    ("region_network", "--connections"): NONE,
    ("region_network", "--max-cost"): (*NUMBER, "-1", "nan"),
    **{
        (command, option): values
        for command in ("site", "floating_catchments")
        for option, values in {
            "population": STORES,
            "within": (*NUMBER, "-1", "nan"),
            "--links": (*STORES, "words.txt"),
            "--elevation-unit": NONE,
            "--travel": NONE,
        }.items()
    },
    **{
        (command, "--max-slope"): (*NUMBER, "-1", "91", "nan")
        for command in ("catchments", "site", "floating_catchments")
    },
    ("site", "--candidates"): ("none.txt", "folder", "", "a\0b", "words.txt"),
    ("site", "--candidate"): POINTS,
    ("site", "--count"): (*WHOLE, "0"),
    ("floating_catchments", "--facilities"): ("none.txt", "folder", "", "a\0b", "words.txt"),
    ("floating_catchments", "--facility"): POINTS,
    ("floating_catchments", "--supply"): ("", "beds", "-1", "nan"),
    ("catchments", "--facilities"): ("none.txt", "folder", "", "a\0b", "words.txt"),
    ("catchments", "--facility"): POINTS,
    ("catchments", "population"): STORES,
    ("catchments", "--links"): (*STORES, "words.txt"),
    ("catchments", "--capacity"): ("", "beds", "-1", "nan"),
    ("catchments", "--rank"): ("", "order", "nan"),
    ("catchments", "--max-cost"): (*NUMBER, "-1", "nan"),
    ("catchments", "--elevation-unit"): NONE,
    ("catchments", "--travel"): NONE,
    ("linkages", "--habitat"): STORES,
    ("linkages", "--patch"): POINTS,
    ("linkages", "--elevation-unit"): NONE,
    ("linkages", "--threshold"): (*NUMBER, "-1", "nan"),
    ("linkages", "--alternatives"): (*WHOLE, "-1"),
    ("linkages", "--width"): (*NUMBER, "-1", "nan"),
    ("linkages", "--penalty"): (*NUMBER, "0", "nan"),
    ("linkages", "--share"): (*NUMBER, "-1", "2", "nan"),
    ("linkages", "--max-cost"): (*NUMBER, "-1", "nan"),
    ("stream_lines", "streams"): STORES,
    ("stream_lines", "out"): VECTOR_OUT,
    ("stream_lines", "--crs"): CRS,
    ("drainage_network", "elevation"): STORES,
    ("drainage_network", "threshold"): (*NUMBER, "0", "nan"),
    ("drainage_network", "--weights"): STORES,
    **{
        (command, option): values
        for command in ("flow_direction", "flow_accumulation", "drainage_network")
        for option, values in ROUTING.items()
    },
    ("drainage_network", "--codes"): NONE,
    ("streams", "direction"): STORES,
    ("streams", "accumulation"): STORES,
    ("streams", "threshold"): (*NUMBER, "0", "nan"),
    ("streams", "--elevation"): STORES,
    ("streams", "--codes"): NONE,
    ("compile", "operations"): ("x", ""),
    ("completion", "shell"): NONE,
    ("verify", "store"): STORES,
    ("fill", "--outlets"): STORES,
    ("fill", "--outlet"): POINTS,
    ("fill", "--max-depth"): (*NUMBER, "-1", "nan"),
    ("fill", "--gradient"): (*NUMBER, "0", "-1", "nan"),
    ("fill", "--outputs"): (*NONE, ("filled", "x")),
    ("breach_depressions", "--max-length"): (*WHOLE, "0", "1025"),
    ("breach_depressions", "--max-depth"): (*NUMBER, "-1", "nan"),
    ("breach_depressions", "--outlets"): STORES,
    ("breach_depressions", "--outlet"): POINTS,
    ("breach_depressions", "--sinks"): STORES,
    ("breach_depressions", "--sink"): POINTS,
    ("breach_depressions", "--edges"): NONE,
    ("flow_accumulation", "direction"): STORES,
    ("flow_accumulation", "--weights"): STORES,
    ("flow_accumulation", "--codes"): NONE,
    ("height_above_drainage", "--below"): NONE,
    ("zonal", "--table"): ("", "none/t.csv", "t.xlsx", "t.gpkg", "a\0b.csv"),
    ("flow_accumulation", "--method"): NONE,
    ("flow_direction", "--method"): NONE,
    ("flow_direction", "--codes"): NONE,
    ("downstream", "direction"): STORES,
    ("downstream", "values"): STORES,
    ("downstream", "--to"): STORES,
    ("downstream", "--statistics"): (*NONE, "median"),
    ("downstream", "--codes"): NONE,
    ("flow_distance", "direction"): STORES,
    ("flow_distance", "--to"): STORES,
    ("flow_distance", "--codes"): NONE,
    ("height_above_drainage", "direction"): STORES,
    ("height_above_drainage", "streams"): STORES,
    ("height_above_drainage", "--codes"): NONE,
    ("upstream", "direction"): STORES,
    ("upstream", "values"): STORES,
    ("upstream", "--statistics"): (*NONE, "median"),
    ("upstream", "--weights"): NONE,
    ("upstream", "--classes"): (*WHOLE, "1e9"),
    ("upstream", "--codes"): NONE,
    ("upstream_length", "direction"): STORES,
    ("upstream_length", "--codes"): NONE,
    ("watersheds", "direction"): STORES,
    ("watersheds", "--outlets"): ("none.gpkg", "dem.tif", "", "a\0b.gpkg"),
    ("watersheds", "--outlet"): POINTS,
    ("watersheds", "--accumulation"): STORES,
    ("watersheds", "--codes"): NONE,
    ("passes", "--target"): POINTS,
    ("passes", "--out"): OUT,
    ("peaks", "--min-prominence"): (*NUMBER, "-1", "nan"),
    ("depressions", "--min-depth"): (*NUMBER, "-1", "nan"),
    ("depressions", "--min-area"): (*NUMBER, "-1", "nan"),
    ("plan", "--pits"): (*WHOLE, "13"),
    ("plan", "operation"): NONE,
    ("plan", "--workers"): WHOLE,
    ("plan", "--outputs"): (*NONE, ("labels", "x")),
    ("plan", "--min-size"): (*WHOLE, "0"),
    ("plan", "--cells"): (*NONE, "complex128"),
    ("plan", "--shape"): (("x", "1"), ("1",), ("0", "5"), ("-1", "5"), ("1.5", "5")),
    ("plan", "--components"): (*WHOLE, "13"),
    ("plan", "--memory-limit"): ("x", "", "0", "-1", "4 pears", "nan"),
    ("plan", "--gpu-memory"): ("x", "", "0", "-1", "4 pears", "1 MiB"),
    ("plan", "--block"): (*WHOLE, "0"),
    ("plan", "--levels"): (*WHOLE, "11"),
    ("graph read", "source"): (*STORES, "words.txt"),
    ("graph read", "--coordinates"): ("none.co", "", "a\0b", "words.txt"),
    ("graph read", "--parts"): (*WHOLE, "0"),
    ("graph paths", "--source"): ("x", "0", "4", "1.5", ""),
    ("graph paths", "--max-cost"): (*NUMBER, "-1", "nan"),
    ("graph pairs", "--source"): ("x", "0", "4", "1.5", ""),
    **{(f"graph {what}", "graph"): (*STORES, "words.txt") for what in GRAPH_COMMANDS},
    ("index build", "--links"): (*STORES, "words.txt"),
    ("index build", "--elevation-unit"): NONE,
    ("index build", "--max-slope"): (*NUMBER, "-1", "91", "nan"),
    ("index build", "--block"): (*WHOLE, "0", "2000"),
    ("index build", "--levels"): (*WHOLE, "11"),
    ("index matrix", "--out"): (*(out for out in OUT if out != "peaks.shp"), *VECTOR_OUT[:-1]),
    ("index matrix", "--unreachable"): NUMBER,
    ("index query", "store"): STORES,
    ("index query", "--window"): (
        *(("x", "0", "1", "1"), ("0", "0", "1"), ("0", "0", "0", "1"), ("0", "0", "9", "9")),
        ("-1", "0", "1", "1"),
    ),
    ("index matrix", "store"): STORES,
}
# what each command is given that is right
VALID: dict[str, dict[str, tuple[str, ...]]] = {
    "demo": {},
    "ingest": {"source": ("dem.tif",), "store": ("out.zarr",)},
    "info": {"store": ("taken.zarr",)},
    "plan": {"operation": ("minimum_spanning_forest",), "raster": ("dem.tif",)},
    "minimum_spanning_forest": {"elevation": ("dem.tif",), "out": ("out.zarr",)},
    "cost_distance": {"friction": ("dem.tif",), "out": ("out.zarr",), "--point": ("0", "0")},
    "walking_time": {"elevation": ("dem.tif",), "out": ("out.zarr",), "--point": ("0", "0")},
    "least_cost_path": {"result": ("taken.zarr",), "--point": ("0", "0")},
    "connected_components": {"classes": ("dem.tif",), "out": ("out.zarr",)},
    "is_connected": {"mask": ("dem.tif",), "--from": ("0", "0"), "--to": ("1", "1")},
    "hop_distance": {"mask": ("dem.tif",), "out": ("out.zarr",), "--point": ("0", "0")},
    "corridor": {"first": ("taken.zarr",), "second": ("taken.zarr",), "out": ("out.zarr",)},
    "all_pairs": {"graph": ("graph.csv",), "out": ("out.zarr",)},
    "to_geotiff": {"source": ("dem.tif",), "out": ("out.tif",)},
    "to_file": {"result": ("dem.tif",), "out": ("out.nc",)},
    "rasterize": {"layer": ("layer.geojson",), "like": ("dem.tif",), "out": ("out.zarr",)},
    "roads": {
        "lines": ("roads.geojson",),
        "like": ("dem.tif",),
        "out": ("out.zarr",),
        "--speed": ("50",),
    },
    "forest_lines": {"forest": ("forest.zarr",), "out": ("out.gpkg",)},
    "zonal": {"zones": ("dem.tif",)},
    "polygonize": {"labels": ("dem.tif",), "out": ("out.gpkg",)},
    "isochrones": {"cost": ("dem.tif",), "levels": ("1",), "out": ("out.gpkg",)},
    "region_network": {"friction": ("dem.tif",), "out": ("out.gpkg",), "--region": ("0", "0")},
    "catchments": {
        "friction": ("dem.tif",),
        "--facility": ("0", "0"),
        "population": ("dem.tif",),
        "out": ("out.zarr",),
    },
    "site": {
        "friction": ("dem.tif",),
        "--candidate": ("0", "0"),
        "population": ("dem.tif",),
        "within": ("5",),
        "out": ("out.zarr",),
    },
    "floating_catchments": {
        "friction": ("dem.tif",),
        "--facility": ("0", "0"),
        "population": ("dem.tif",),
        "within": ("5",),
        "out": ("out.zarr",),
    },
    "linkages": {"friction": ("dem.tif",), "out": ("out.zarr",), "--patch": ("0", "0")},
    "stream_lines": {"streams": ("forest.zarr",), "out": ("out.gpkg",)},
    "streams": {
        "direction": ("dem.tif",),
        "out": ("out.zarr",),
        "--accumulation": ("dem.tif",),
        "--threshold": ("1",),
    },
    "compile": {},
    "completion": {"shell": ("bash",)},
    "verify": {},
    "graph read": {"source": ("graph.gr",), "store": ("out.zarr",)},
    **{f"graph {what}": {"graph": ("graph.gr",), "out": ("out.zarr",)} for what in GRAPH_COMMANDS},
    "graph paths": {"graph": ("graph.gr",), "out": ("out.zarr",), "--source": ("1",)},
    "fill": {"elevation": ("dem.tif",), "out": ("out.zarr",)},
    "flood": {"elevation": ("dem.tif",), "out": ("out.zarr",), "--point": ("0", "0")},
    "flow_accumulation": {"direction": ("dem.tif",), "out": ("out.zarr",)},
    "breach_depressions": {"elevation": ("dem.tif",), "out": ("out.zarr",)},
    "drainage_network": {"elevation": ("dem.tif",), "threshold": ("5",), "out": ("out.zarr",)},
    "flow_direction": {"elevation": ("dem.tif",), "out": ("out.zarr",)},
    "downstream": {"direction": ("dem.tif",), "values": ("dem.tif",), "out": ("out.zarr",)},
    "flow_distance": {"direction": ("dem.tif",), "out": ("out.zarr",)},
    "height_above_drainage": {
        "elevation": ("dem.tif",),
        "out": ("out.zarr",),
        "--direction": ("dem.tif",),
        "--streams": ("dem.tif",),
    },
    "upstream": {"direction": ("dem.tif",), "values": ("dem.tif",), "out": ("out.zarr",)},
    "upstream_length": {"direction": ("dem.tif",), "out": ("out.zarr",)},
    "watersheds": {"direction": ("dem.tif",), "out": ("out.zarr",), "--outlet": ("0", "0")},
    "passes": {"elevation": ("dem.tif",), "--point": ("0", "0")},
    "peaks": {"elevation": ("dem.tif",), "out": ("out.zarr",)},
    "depressions": {"elevation": ("dem.tif",), "out": ("out.zarr",)},
    "index build": {"raster": ("dem.tif",), "store": ("out.zarr",)},
    "runs": {"--scheduler": ("tcp://127.0.0.1:9",)},
    "status": {"--scheduler": ("tcp://127.0.0.1:9",), "out": ("out.zarr",)},
    "cancel": {"--scheduler": ("tcp://127.0.0.1:9",), "out": ("out.zarr",)},
    "index query": {"store": ("index.zarr",), "out": ("out.zarr",), "--point": ("0", "0")},
    "index matrix": {"store": ("index.zarr",), "--point": ("0", "0")},
}
# what else has to be given for an argument to count
WITH: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("index build", "--friction"): {"--cost": ("tobler",)},
    **{
        (command, "--max-slope"): {"--cost": ("tobler",)}
        for command in ("index build", "catchments", "site", "floating_catchments")
    },
    ("cost_distance", "--max-slope"): {"--surface": ("dem.tif",)},
    ("cost_distance", "--horizontal-factor"): {"--horizontal-raster": ("dem.tif",)},
    ("cost_distance", "--horizontal-coefficients"): {
        "--horizontal-raster": ("dem.tif",),
        "--horizontal-factor": ("linear",),
    },
    ("cost_distance", "--vertical-factor"): {"--surface": ("dem.tif",)},
    ("cost_distance", "--elevation-unit"): {"--surface": ("dem.tif",)},
    ("cost_distance", "--vertical-coefficients"): {
        "--surface": ("dem.tif",),
        "--vertical-factor": ("linear",),
    },
    ("plan", "--friction"): {"operation": ("distance_index",), "--cost": ("tobler",)},
    ("plan", "--model"): {"operation": ("walking_time",)},
    ("plan", "--components"): {"operation": ("connected_components",)},
    ("plan", "--outputs"): {"operation": ("connected_components",)},
    ("plan", "--min-size"): {"operation": ("connected_components",)},
    ("plan", "--memory-limit"): {"operation": ("cost_distance",)},
    ("plan", "--gpu-memory"): {"operation": ("hop_distance",)},
    ("plan", "--dtype"): {"operation": ("cost_distance",)},
    ("plan", "--pits"): {"operation": ("fill_depressions",)},
    **{
        ("plan", option): {"operation": ("distance_index",)}
        for option in ("--cost", "--connectivity", "--block", "--levels", "--cell-size", "--nodata")
    },
}
# of these one is taken in place of another
INSTEAD = {
    ("hop_distance", "--sources"): "--point",
    ("least_cost_path", "--points"): "--point",
    ("cost_distance", "--sources"): "--point",
    ("walking_time", "--sources"): "--point",
    ("flood", "--sources"): "--point",
    ("watersheds", "--outlets"): "--outlet",
    ("index query", "--points"): "--point",
    ("passes", "--points"): "--point",
    ("is_connected", "--from-file"): "--from",
    ("is_connected", "--to-file"): "--to",
    ("index matrix", "--points"): "--point",
    ("plan", "--shape"): "raster",
}


def _commands(parser: argparse.ArgumentParser, name: str = "") -> dict[str, list[str]]:
    """Return the arguments that take a value, of each command."""
    own: list[str] = []
    found: dict[str, list[str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            first = {id(below): word for word, below in reversed(action.choices.items())}
            for word, below in action.choices.items():
                if first[id(below)] != word:
                    continue  # a short name of the command
                found |= _commands(below, f"{name} {word}".strip())
        elif action.nargs != 0:
            own.append(action.option_strings[0] if action.option_strings else action.dest)
    return found or {name: own}


ARGUMENTS = [
    pytest.param(command, argument, id=f"{command} {argument}")
    for command, arguments in _commands(_parser()).items()
    for argument in arguments
]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a raster, a store, an index and what is none of these."""
    folder = tmp_path_factory.mktemp("inputs")
    grid = np.arange(1.0, 13).reshape(3, 4)
    og.to_geotiff(grid, folder / "dem.tif")
    variables = [Variable("cost", np.float64), Variable("back_direction", np.uint8, 255)]
    result = create_store(folder / "unfinished", (3, 4), Layout(4, 4), variables)
    for variable in variables:
        cells = np.zeros((3, 4), variable.dtype)
        StoreSink(result).write(variable.name, Window(0, 0, 3, 4), cells)
    publish(result, folder / "taken.zarr")
    edges = create_store(folder / "unfinished", (3, 4), Layout(4, 4), [Variable("edges", np.uint8)])
    StoreSink(edges).write("edges", Window(0, 0, 3, 4), np.zeros((3, 4), np.uint8))
    publish(edges, folder / "forest.zarr")
    np.savetxt(folder / "graph.csv", np.ones((3, 3)), delimiter=",")
    (folder / "graph.gr").write_text("p sp 3 3\na 1 2 5\na 2 3 1\na 3 1 2\n")
    (folder / "layer.geojson").write_text(
        '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {}, '
        '"geometry": {"type": "Point", "coordinates": [1, 1]}}]}'
    )
    (folder / "roads.geojson").write_text(
        '{"type": "FeatureCollection", "crs": null, "features": [{"type": "Feature", '
        '"properties": {}, "geometry": {"type": "LineString", "coordinates": [[0, 0], [3, 0]]}}]}'
    )
    og.DistanceIndex.build(grid, folder / "index.zarr", block=2, levels=0)
    (folder / "file.txt").write_text("no raster")
    (folder / "words.txt").write_text("no numbers here\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "mine.txt").write_text("mine")
    return folder


@pytest.fixture
def here(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """That folder as the working directory: no cluster starts there, nothing begins or is left."""

    def begun(*given: object, **named: object) -> None:
        raise AssertionError(ACCEPTED)

    for place in (
        "orograph.run.run.Run.__init__",
        "orograph.index.distance_index.table_of",
        "orograph.index.distance_index.field_of",
        "orograph.tiles.convert.ingest.create_store",
        "distributed.LocalCluster.__init__",
    ):
        # with its signature, which options of a cluster are compared with
        monkeypatch.setattr(place, wraps(resolve_name(place))(begun))
    monkeypatch.chdir(inputs)
    before = sorted(inputs.rglob("*"))
    yield inputs
    assert sorted(inputs.rglob("*")) == before


@pytest.mark.parametrize(("command", "argument"), ARGUMENTS)
def test_what_cannot_be_used_ends_with_one_line(
    command: str, argument: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = OWN.get((command, argument)) or EVERYWHERE[argument]
    wrong = []
    for value in values:
        given = dict(VALID[command]) | WITH.get((command, argument), {})
        given.pop(INSTEAD.get((command, argument), ""), None)
        given[argument] = (value,) if isinstance(value, str) else value
        words = command.split()
        for name, tokens in given.items():
            words += [f"{name}={tokens[0]}"] if name[:2] == "--" and len(tokens) == 1 else [
                *([name] if name[:2] == "--" else []), *tokens
            ]  # fmt: skip
        started = time.process_time()
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code  # type: ignore[assignment]
        except BaseException as error:
            status = -1
            print(repr(error), file=sys.stderr)
        said = capsys.readouterr().err
        good = status == 2 and said.startswith("orograph") and said.count("\n") == 1
        good &= ACCEPTED not in said  # a cluster that does not start is an error of one line too
        if not good or time.process_time() - started > 1:
            wrong.append(f"{value!r}: status {status}: {said}")
    assert not wrong, f"{len(wrong)} values of {argument}:\n" + "\n".join(wrong)


SAYS = {
    "cost_distance dem.tif out.zarr --sourcs x": "--sourcs: unknown; did you mean --sources?",
    "cost dem.tif out.zarr --point 0 0 --max-costs=5": "--max-costs: unknown; did you mean --max-c",
    "cost dem.tif out.zarr --point 0 0 --maxcost 5": "--maxcost: unknown; did you mean --max-cost?",
    "mst dem.tif --over": "--over: unknown; did you mean --overwrite?",
    "watershed dem.tif": "watershed: unknown; did you mean watersheds?",
    "graph rea dem.gr": "rea: unknown; did you mean read?",
    "plan flow-acc dem.tif": "did you mean 'flow_accumulation'?",
    "flow-accumulation dem.tif out.zarr --outt 1": "orograph flow_accumulation: --outt: unknown",
    "streams f.zarr a.zarr --threshold 9 s.zarr": "--threshold: given by its place, as in orograph "
    "streams direction accumulation threshold out",
    "index build dem.tif i.zarr --zoom": "--zoom: unknown; see orograph index build --help",
    "mst dem.tif taken.zarr": "pass --overwrite to replace it",
    "cost dem.tif out.zarr --point 0 0 --max-cost=-1": "--max-cost: -1",
    "mst dem.tif out.zarr --tile 9000": "--tile 9000: it must be",
}


@pytest.mark.parametrize("words", SAYS)
def test_errors_name_options_as_the_shell_does(
    words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(words.split())
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    said = capsys.readouterr().err
    assert status == 2
    assert SAYS[words] in said
    assert said.count("\n") == 1
    assert "=True" not in said


@pytest.mark.parametrize(
    ("said", "in_shell"),
    [
        ("pass resume=True, or overwrite=True to start", "pass --resume, or --overwrite to start"),
        ("its place; takeover=True to take it", "its place; --takeover to take it"),
        ("max_cost: -1; give more", "--max-cost: -1; give more"),
        ("pass dtype='float64', or cell_size=", "pass --dtype float64, or --cell-size"),
        ("pass nodata= with a value; tile=0: no", "pass --nodata with a value; --tile 0: no"),
        ("links: none; point 3 (x=12.0, y=7.5)", "--links: none; point 3 (x=12.0, y=7.5)"),
        ("friction: it has client=5", "friction: it has client=5"),
    ],
)
def test_arguments_that_are_options_are_named_so(said: str, in_shell: str) -> None:
    options = _parser().parse_args(["cost", "a.tif", "b.zarr", "--point", "0", "0"])
    assert options.parser.in_shell(said) == in_shell


def test_nonsense_in_the_environment_ends_with_one_line(inputs: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "orograph", "mst", "dem.tif", "out.zarr"],
        cwd=inputs,
        env={**os.environ, "OROGRAPH_TILE": "nonsense"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("orograph: config['tile']: 'nonsense'; it must be")
    assert ended.stderr.count("\n") == 1
    assert not (inputs / "out.zarr").exists()
