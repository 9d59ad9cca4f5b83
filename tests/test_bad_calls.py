"""Every parameter of every public function, given what it cannot be used with.

The functions and their parameters are taken from the package, so that a new one without an entry
here fails. Nothing may begin, nothing may be written, and the message says what to do.
"""

from __future__ import annotations

import inspect
import pickle
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import bad_values as bad
import numpy as np
import pytest
import rioxarray  # noqa: F401  (the .rio accessor)
import xarray as xr
from quick import is_quick, part_of
from scipy import sparse
from shapely import LineString, Point

import orograph as og
from orograph.operations.plan import OF_PLANS, _parameters

GRID = np.arange(1.0, 13).reshape(3, 4)
POINT = [(0, 0)]
DIRECTION = np.full((3, 4), 1, np.uint8)
COST = xr.Dataset(
    {
        "cost": (("y", "x"), np.zeros((3, 4))),
        "back_direction": (("y", "x"), np.zeros((3, 4), np.uint8)),
    },
    attrs={"cost_model": "friction", "connectivity": 8, "dtype": "float64"},
)
PLACED = xr.DataArray(
    GRID, {"y": [2.0, 1.0, 0.0], "x": [0.0, 1.0, 2.0, 3.0]}, ("y", "x"), "grid"
).rio.write_crs(4326)
PATH = og.LeastCostPath(np.array([[0, 0]]), np.array([[0.0, 0.0]]), 0.0)

EVERYWHERE = {
    "tile": bad.integer(1, 8192, optional=True),
    "shard": bad.integer(1, 2**27, optional=True),
    "out": bad.OUT,
    "crs": bad.CRS,
    "overwrite": bad.FLAG,
    "resume": bad.FLAG,
    "takeover": bad.FLAG,
    "detach": bad.kind(5, 1.5, bad.NAN, "", [], [True], ["driver"], {}, shows=False),
    "backend": bad.choice("gpu", "NUMBA", optional=True),
    "client": bad.CLIENT,
    "storage_options": bad.STORAGE_OPTIONS,
    "nodata": bad.NODATA,
    "snap": bad.SNAP,
    "connectivity": bad.choice(5, 16.0, "8"),
    "memory": bad.integer(0, 2**63 - 1),
    "workers": bad.integer(1, 2**20),
    # what an array has no use for is not refused
    "band": bad.integer(1, 1, optional=True),
    "variable": bad.kind(1.5, True, bad.NAN, optional=True),
    "wrap": bad.kind(*bad.FLAG_VALUES, optional=True),
    "poles": bad.FLAG,
    "all_touched": bad.FLAG,
    "barriers": bad.BARRIERS,
    "label": bad.kind(5, 1.5, True, bad.NAN, "", "x", optional=True),
}
LOOK = {
    "column": bad.kind(5, "x", True, [1], optional=True, shows=False),
    "cmap": bad.kind(5, "x", True, ["magma"], optional=True),
    "vmin": bad.number(bad.NAN, bad.INF, optional=True),
    "vmax": bad.number(bad.NAN, bad.INF, optional=True),
    "unit": bad.choice("h", "d", optional=True),
}
COST_MODEL = {
    "raster": bad.RASTER,
    "barriers": bad.BARRIERS,
    "friction": bad.RASTER,
    "elevation": bad.RASTER,
    "cost": bad.choice("walking"),
    "model": bad.choice("friction"),
    "rasters": bad.kind(
        "wind", 1, 1.5, True, ["wind"], {"wind": 1}, optional=True, shows=False, junk=False
    ),
    "coefficients": bad.kind(
        *("pace", 1, 1.5, True, bad.NAN, [("pace", 1)], {"a": 1}, {1: 2}, {"pace": "1"}),
        *({"pace": bad.NAN}, {"pace": bad.INF}, {"pace": True}, {"pace": None}, {"pace": -1}),
        *({"pace": 10**400}, {"pace": 1j}, {"pace": [1]}),
        optional=True,
        shows=False,
        junk=False,
    ),
    "cell_size": bad.number(
        0, -1, bad.NAN, bad.INF, (1, 0), (1, 2, 3), ("1", 2), xr.Dataset(), optional=True
    ),
    "dtype": bad.DTYPE,
    "elevation_unit": bad.choice("km", "furlong", "s", optional=True),
    "max_slope": bad.number(-1, 91, bad.NAN, bad.INF, optional=True),
}
SOURCE_COST = bad.kind(
    *("rate", 1, 1.5, True, bad.NAN, [("rate", 1)], {"a": 1}, {1: 2}, {"rate": "1"}),
    *({"rate": bad.NAN}, {"rate": -1}, {"rate": True}, {"rate": None}, {"rate": [[1]]}),
    *({"multiplier": 0}, {"multiplier": 10**400}, {"multiplier": 1j}, {"maximum": bad.NAN}),
    *({"maximum": {}}, {"maximum": {"a": 1}}, {"initial": 1}),
    optional=True,
    shows=False,
)
SOURCES = {
    "sources": bad.POINTS_OR_RASTER,
    "outside": bad.choice("ignore", "refuse"),
    "source_values": bad.kind(
        *(1, 1.5, True, bad.NAN, "1", "", [], [bad.NAN], [bad.INF], ["1"], [None], [True], [1j]),
        *([[1]], [10**400], {1: 2}, (value for value in "12")),
        optional=True,
    ),
}


def _outputs(name: str) -> bad.Kind:
    """Return what no outputs are of an operation that has one of this name."""
    return bad.kind("", "x", [], (), [1], [name, "x"], 5, True, bad.NAN, {name: 1}, [[name]])


@dataclass
class Function:
    """A public function: how it is called, and what each parameter of its own refuses."""

    call: Callable[..., Any]
    valid: dict[str, Any]
    own: dict[str, bad.Kind] = field(default_factory=dict)
    signature: Callable[..., Any] | None = None
    options: tuple[str, ...] = ()
    """The names of what it takes as further keywords."""

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters."""
        found = inspect.signature(self.signature or self.call).parameters.values()
        named = [p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        return [name for name in named if name != "self"] + list(self.options)

    def kind_of(self, parameter: str) -> bad.Kind:
        """Return what a parameter refuses."""
        return self.own.get(parameter) or EVERYWHERE[parameter]


_OTHER_RASTER = bad.Kind(
    lambda folder: [v for v in bad.RASTER.values(folder) if v is not None], shows=False
)


ROUTING = {
    "depressions": bad.choice("carve"),
    "max_length": bad.integer(1, 1024, optional=True),
    "max_depth": bad.number(-1, bad.NAN, optional=True),
    "flats": bad.choice("steepest"),
    "cell_size": COST_MODEL["cell_size"],
    "connectivity": bad.choice(16),
    "outlets": bad.OPTIONAL_POINTS_OR_RASTER,
    "sinks": bad.OPTIONAL_POINTS_OR_RASTER,
    "edges": bad.choice("shut"),
    "streams": bad.BARRIERS,
    "burn": bad.number(-1, bad.NAN, optional=True),
}
"""Keywords about how water flows over heights."""


def _plans() -> dict[str, Function]:
    """The plan of each operation, which has options of its own."""
    kinds = {
        **COST_MODEL,
        "components": bad.integer(0, 12, optional=True),
        "memory_limit": bad.kind(
            *(0, -1, bad.NAN, bad.INF, "4 pears", "", True, "-1", bad.HUGE, 10**400), optional=True
        ),
        "pairs": bad.integer(1),
        "method": bad.choice("bfs"),
        "predecessors": bad.FLAG,
        "block": bad.integer(1, 1024),
        "levels": bad.integer(0, 10),
        "sparsify": bad.FLAG,
        "links": _LINKS,
        "pits": bad.integer(0, 9, optional=True),
        "reach": bad.integer(0, 9, optional=True),
        "max_length": bad.integer(1, 1024, optional=True),
        "depressions": bad.choice("carve"),
        "flats": bad.choice("steepest"),
        "labels": bad.FLAG,
        "workers": bad.integer(0, 2**20),
        "min_size": bad.integer(1, 2**54),
        "dtype": bad.DTYPE,
        "sources": bad.kind(-1, 3, "x", [0, 3], [[0, 1]], [], optional=True, shows=False),
        "s": _POINTS_TO_COUNT,
        "t": _POINTS_TO_COUNT,
        "raster": bad.OPTIONAL_RASTER,
        "source_cost": SOURCE_COST,
        **dict.fromkeys(("weights", "to", "elevation"), _OTHER_RASTER),
    }
    found = {}
    graph = og.read_graph(GRAPH_EDGES, directed=True)
    operations = [og.DistanceIndex.build, *(getattr(og, name) for name in og.__all__)]
    for operation in (thing for thing in operations if isinstance(thing, og.Operation)):
        first = operation.own[0].name
        for name, subject in zip(operation.estimates, (np.ones((3, 3)), graph)):
            if name is None:
                continue
            own = dict(kinds)
            of_raster = subject is not graph
            outputs = {
                "connected_components": "labels",
                "fill_depressions": "filled",
                "walking_time": "time",
            }
            if operation is og.flow_accumulation:
                own["method"] = bad.choice("d9", optional=True)
                own["depressions"] = bad.choice("carve", optional=True)
                own["flats"] = bad.choice("steepest", optional=True)
            own["outputs"] = _outputs(outputs.get(operation.__name__, "cost"))
            own[first] = kinds["raster"]
            valid: dict[str, Any] = {first: subject}
            if operation is og.DistanceIndex.build:
                valid |= {"cost": "tobler", "friction": np.ones((3, 3))}
            estimate = {p.name for p in _parameters(name)} - {"grid", "graph", "threads"}
            if "source_cost" in estimate:
                # these are looked at only where it names columns; see test_source_costs.py
                estimate -= {"sources", "label"}
            options = {"workers", *estimate} | ({first, *OF_PLANS} if of_raster else set())
            options &= {*inspect.signature(operation.plan).parameters}
            if operation is og.all_pairs:
                own[first] = _GRAPH
            found[f"{operation.__qualname__}.plan of {type(subject).__name__}"] = Function(
                operation.plan, valid, own, signature=lambda: None, options=tuple(sorted(options))
            )
    return found


_GRAPH = bad.Kind(
    lambda folder: [
        *(5, 1.5, True, bad.NAN, bad.HUGE, None, *bad.JUNK, bad.generator(), "", "\0"),
        *(folder / "none.zarr", folder / ("x" * 300), folder, "s3://bucket/a.zarr", "nonsense://a"),
        *([], [[]], [1], [[1, 2]], [[1, 2], [3]], [["a", "b"], ["c", "d"]], [[1j, 1], [1, 1]]),
        *(np.ones((2, 3)), np.ones((2, 2, 2)), np.ones((2, 2), "M8[s]"), np.ones((2, 2), "U1")),
        *(np.array([[None, 1], [1, 1]]), xr.Dataset()),
    ],
    shows=False,
)


BRIDGE = og.read_graph(sparse.csr_array(([1.0], ([0], [11])), shape=(12, 12)), directed=False)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> og.DistanceIndex:
    """An index of the grid."""
    store = tmp_path_factory.mktemp("index") / "index.zarr"
    return og.DistanceIndex.build(GRID, store, block=2, levels=0, links=BRIDGE)


_LINKS = bad.Kind(
    lambda folder: [value for value in _GRAPH.values(folder) if value is not None], shows=False
)

# so that nothing but the signatures is needed to know what has to be tested
_METHODS = {
    "DistanceIndex": {
        "store": bad.Kind(lambda folder: [5, None, "index.zarr", folder, bad.Thing()]),
        "client": bad.CLIENT,
    },
    "DistanceIndex.build": {
        **COST_MODEL,
        "friction": bad.OPTIONAL_RASTER,
        "store": bad.OUT,
        "connectivity": bad.choice(5, 16),
        "block": bad.integer(1, 1024),
        "levels": bad.integer(0, 10),
        "sparsify": bad.FLAG,
        "links": _LINKS,
    },
    "DistanceIndex.open": {"store": bad.STORE},
    "DistanceIndex.distance_matrix": {
        "points": bad.POINTS,
        "targets": bad.OPTIONAL_POINTS,
        "outside": SOURCES["outside"],
        "unreachable": bad.number(optional=True),
    },
    "DistanceIndex.nearest": {
        "points": bad.POINTS,
        "targets": bad.OPTIONAL_POINTS,
        "k": bad.integer(1, 2),
        "outside": SOURCES["outside"],
    },
    "DistanceIndex.query": {"sources": bad.POINTS_OR_RASTER, "outside": SOURCES["outside"]},
    "DistanceIndex.path": {"start": bad.POINTS, "end": bad.POINTS},
    "DistanceIndex.update": {
        # a number is for all cells of the window
        "friction": bad.Kind(
            lambda folder: [
                value
                for value in bad.RASTER.values(folder)
                if isinstance(value, bool) or not isinstance(value, int | float)
            ],
            shows=False,
        ),
        "elevation": bad.RASTER,
    },
    "DistanceIndex.update_links": {"links": _LINKS},
    "DistanceIndex.left_out": {},
}
_WINDOW: tuple[Any, ...] = (
    *(5, True, bad.NAN, "abcd", "", [1], (0, 0, 1), (0, 0, 1, 1, 1), (0.5, 0, 1, 1), (0, 0, 0, 1)),
    *((-1, 0, 1, 1), (0, 0, 4, 1), (0, 0, bad.HUGE, 1), ("0", 0, 1, 1), (True, 0, 1, 1)),
    *((0, 0, 1, None), (1j, 0, 1, 1)),
)
EVERYWHERE["window"] = bad.kind(*_WINDOW, optional=True, shows=False)

LAYER = [Point(0, 0)]
EDGES = xr.Dataset({"edges": (("y", "x"), np.zeros((3, 4), np.uint8))})
STREAMS = og.streams(DIRECTION, GRID, 3, codes="taudem")
LABELS = xr.Dataset(
    {
        "labels": (("y", "x"), np.ones((3, 4), np.int64)),
        "component_size": ("component", [12]),
        "component_box": (("component", "box_side"), [[0, 0, 3, 4]]),
    },
    attrs={"component_count": 1},
)
GRAPH_EDGES = sparse.csr_array(np.array([[0.0, 1, 4], [0, 0, 2], [1, 0, 0]]))
_VERTICES = bad.kind(
    *(1.5, True, bad.NAN, "x", "", [1.5], [True], [bad.NAN], -1, 3, bad.HUGE, [0, 3], [[0, 1]], []),
    shows=False,
)
_POINTS_TO_COUNT = bad.kind(
    *(1.5, True, bad.NAN, "x", "", [1.5], [True], [bad.NAN], 3, []), optional=True, shows=False
)
_NO_TABLE = bad.kind(5, 1.5, True, bad.NAN, "x", "", [], GRID, COST, shows=False)
_NO_LAYER = bad.kind(5, 1.5, True, bad.NAN, "x", "", [], GRID, shows=False)

DISTANCE = {
    **COST_MODEL,
    **SOURCES,
    "links": _LINKS,
    "travel": bad.choice("away"),
    "max_cost": bad.number(-1, bad.NAN),
    "source_cost": SOURCE_COST,
    "initial_cost": bad.number(
        *(-1, bad.NAN, bad.INF, {9: 1}, {0: -1}, {"a": 1}, {0: None}),
        *([-1], [bad.NAN], ["1"], [None], [True], [1j], [[1]]),
    ),
    "outputs": _outputs("cost"),
}

ACCESS = {
    **COST_MODEL,
    "population": _OTHER_RASTER,
    "links": _LINKS,
    "travel": DISTANCE["travel"],
    "outside": SOURCES["outside"],
}
"""Keywords of facilities and people."""

FUNCTIONS = {
    "all_pairs": Function(
        og.all_pairs,
        {"graph": np.ones((3, 3))},
        {
            "graph": _GRAPH,
            "predecessors": bad.FLAG,
            "method": bad.choice("bfs"),
            "dtype": bad.DTYPE,
            "no_edge": bad.number("x"),
            "sources": replace(_VERTICES, make=lambda folder: _VERTICES.values(folder)[:-1]),
            "negative_cycles": bad.choice("ignore"),
        },
    ),
    "attach": Function(
        og.attach,
        {"out": "a.zarr"},
        {"out": bad.kind(5, 1.5, True, bad.NAN, [], "a.png", "s3://b/a.png", shows=False)},
    ),
    "cluster": Function(og.cluster, {}, {"n_workers": bad.integer(1, 1024, optional=True)}),
    "connected_components": Function(
        og.connected_components,
        {"classes": GRID},
        {
            "classes": bad.RASTER,
            "min_size": bad.integer(1, 2**54),
            "method": bad.choice(),
            "outputs": _outputs("labels"),
            "dtype": bad.DTYPE,
        },
    ),
    "corridor": Function(
        og.corridor,
        {"a": COST, "b": COST},
        {
            "a": bad.kind("x", 5, GRID, xr.Dataset(), shows=False),
            "b": bad.kind("x", 5, GRID, xr.Dataset(), shows=False),
            "pairs": bad.kind(
                "x", 5, [], [(0, 0)], [(0, 2)], [0], [(0, 1, 0)], optional=True, shows=False
            ),
            "normalize": bad.FLAG,
            "threshold": bad.number(-1, bad.NAN, optional=True),
        },
    ),
    "cost_distance": Function(
        og.cost_distance,
        {"friction": GRID, "sources": POINT},
        DISTANCE,
    ),
    "walking_time": Function(
        og.walking_time,
        {"elevation": GRID, "sources": POINT},
        {**DISTANCE, "outputs": _outputs("time"), "friction": bad.OPTIONAL_RASTER},
    ),
    "depressions": Function(
        og.depressions,
        {"elevation": GRID},
        {
            "elevation": bad.RASTER,
            "min_depth": bad.number(-1, bad.NAN),
            "min_area": bad.number(-1, bad.NAN),
            "labels": bad.FLAG,
        },
    ),
    "peaks": Function(
        og.peaks,
        {"elevation": GRID},
        {"elevation": bad.RASTER, "min_prominence": bad.number(-1, bad.NAN)},
    ),
    "read_graph": Function(
        og.read_graph,
        {"source": GRAPH_EDGES, "directed": True},
        {
            "source": bad.Kind(
                lambda folder: [*bad.STORE.values(folder), GRID, xr.Dataset(), 5, None], False
            ),
            "coordinates": bad.kind(
                *(5, True, "x", "", [1], [[1, 2]], [["a", "b"]] * 3, [[bad.NAN, 0]] * 3),
                optional=True,
                shows=False,
            ),
            "directed": bad.kind(*bad.FLAG_VALUES, optional=True),
            "parts": bad.integer(1, 2**27, optional=True),
            "store": bad.OUT,
        },
    ),
    "shortest_paths": Function(
        og.shortest_paths,
        {"graph": og.read_graph(GRAPH_EDGES, directed=True), "sources": [0]},
        {
            "graph": bad.kind("x", 5, True, GRID, xr.Dataset(), shows=False),
            "sources": _VERTICES,
            "max_cost": bad.number(-1, bad.NAN),
            "predecessors": bad.FLAG,
        },
    ),
    "breach_depressions": Function(
        og.breach_depressions,
        {"elevation": GRID},
        {
            "elevation": bad.RASTER,
            "max_length": bad.integer(1, 1024),
            "max_depth": bad.number(-1, bad.NAN),
            "outlets": bad.OPTIONAL_POINTS_OR_RASTER,
            "sinks": bad.OPTIONAL_POINTS_OR_RASTER,
            "edges": bad.choice("shut"),
        },
    ),
    "fill_depressions": Function(
        og.fill_depressions,
        {"elevation": GRID},
        {
            "elevation": bad.RASTER,
            "outlets": bad.OPTIONAL_POINTS_OR_RASTER,
            "max_depth": bad.number(-1, bad.NAN, optional=True),
            "gradient": bad.kind(0, -1, bad.NAN, "1", [1.0]),
            "outputs": _outputs("filled"),
        },
    ),
    "flood_level": Function(
        og.flood_level,
        {"elevation": GRID, "sources": POINT},
        {"elevation": bad.RASTER, "sources": bad.POINTS_OR_RASTER},
    ),
    "flow_accumulation": Function(
        og.flow_accumulation,
        {"direction": DIRECTION, "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "method": bad.choice("d9", optional=True),
            "weights": _OTHER_RASTER,
            "codes": bad.choice("d8", optional=True),
            **ROUTING,
        },
    ),
    "watersheds": Function(
        og.watersheds,
        {"direction": DIRECTION, "outlets": [(1, 1)], "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "outlets": bad.OPTIONAL_POINTS_OR_RASTER,
            "codes": bad.choice("d8", optional=True),
            "accumulation": _OTHER_RASTER,
        },
    ),
    "drainage_network": Function(
        og.drainage_network,
        {"elevation": GRID, "threshold": 3},
        {
            "elevation": bad.RASTER,
            "threshold": bad.number(0, -1, bad.NAN, float("inf")),
            "weights": _OTHER_RASTER,
            "codes": bad.choice("d8"),
            **ROUTING,
        },
    ),
    "flow_direction": Function(
        og.flow_direction,
        {"elevation": GRID},
        {
            "elevation": bad.RASTER,
            "method": bad.choice("mfd"),
            "codes": bad.choice("d8", optional=True),
            **ROUTING,
        },
    ),
    "downstream": Function(
        og.downstream,
        {"direction": DIRECTION, "values": GRID, "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "values": _OTHER_RASTER,
            "to": _OTHER_RASTER,
            "statistics": bad.kind(["median"], [], 3, shows=False),
            "codes": bad.choice("d8", optional=True),
            "cell_size": COST_MODEL["cell_size"],
        },
    ),
    "flow_distance": Function(
        og.flow_distance,
        {"direction": DIRECTION, "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "to": _OTHER_RASTER,
            "codes": bad.choice("d8", optional=True),
            "cell_size": COST_MODEL["cell_size"],
        },
    ),
    "polygonize": Function(
        og.polygonize,
        {"labels": np.eye(3, dtype=int)},
        {"labels": bad.RASTER, "parts": bad.FLAG, "out": bad.LAYER_OUT},
    ),
    "zonal": Function(
        og.zonal,
        {"zones": np.ones(GRID.shape, int), "values": GRID},
        {
            "zones": bad.RASTER,
            "values": _OTHER_RASTER,
            "statistics": bad.kind(["median"], [], 3, optional=True, shows=False),
        },
    ),
    "isochrones": Function(
        og.isochrones,
        {"cost": GRID, "levels": [1.0, 2.0]},
        {
            "cost": bad.RASTER,
            "levels": bad.kind([], [2, 1], [1, 1], [bad.NAN], ["1"], range(300), shows=False),
            "polygons": bad.FLAG,
            "unit": bad.choice("h", "d", optional=True),
            "parts": bad.FLAG,
            "out": bad.LAYER_OUT,
        },
    ),
    "region_network": Function(
        og.region_network,
        {"friction": GRID, "regions": POINT},
        {
            "friction": bad.RASTER,
            "regions": bad.POINTS_OR_RASTER,
            "connections": bad.choice("tree"),
            "out": bad.LAYER_OUT,
            "cost": bad.choice("tobler"),
            "max_cost": DISTANCE["max_cost"],
            "cell_size": COST_MODEL["cell_size"],
            "source_values": SOURCES["source_values"],
            "dtype": bad.DTYPE,
        },
    ),
    "catchments": Function(
        og.catchments,
        {"friction": GRID, "facilities": POINT, "population": GRID},
        ACCESS
        | {
            "facilities": bad.POINTS,
            "capacity": bad.kind("beds", -1, bad.NAN, [1, 2], 2.0**34, {1: 2}, optional=True),
            "rank": bad.kind("order", bad.NAN, [1, 2], {1: 2}, optional=True),
            "each": bad.FLAG,
            "max_cost": DISTANCE["max_cost"],
        },
    ),
    "site": Function(
        og.site,
        {"friction": GRID, "candidates": POINT, "population": GRID, "within": 3},
        ACCESS
        | {
            "candidates": bad.POINTS,
            "within": bad.number(-1, bad.NAN),
            "count": bad.integer(1, 2**31),
        },
    ),
    "floating_catchments": Function(
        og.floating_catchments,
        {"friction": GRID, "facilities": POINT, "population": GRID, "within": 3},
        ACCESS
        | {
            "facilities": bad.POINTS,
            "within": bad.number(-1, bad.NAN),
            "supply": bad.kind("beds", -1, bad.NAN, bad.INF, [1, 2], {1: 2}),
        },
    ),
    "linkages": Function(
        og.linkages,
        {"friction": GRID, "habitat": POINT},
        {
            "friction": bad.RASTER,
            "habitat": bad.POINTS_OR_RASTER,
            "cost": bad.choice("eikonal"),
            "elevation_unit": COST_MODEL["elevation_unit"],
            "coefficients": COST_MODEL["coefficients"],
            "threshold": bad.number(-1, bad.NAN),
            "alternatives": bad.integer(0),
            "width": bad.number(-1, bad.NAN, float("inf"), optional=True),
            "penalty": bad.number(0.5, -1, bad.NAN, float("inf")),
            "share": bad.number(-1, 1.5, bad.NAN),
            "max_cost": DISTANCE["max_cost"],
            "cell_size": COST_MODEL["cell_size"],
            "source_values": SOURCES["source_values"],
            "dtype": bad.DTYPE,
        },
    ),
    "streams": Function(
        og.streams,
        {"direction": DIRECTION, "accumulation": GRID, "threshold": 3, "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "accumulation": bad.RASTER,
            "threshold": bad.number(0, -1, bad.NAN, float("inf")),
            "elevation": _OTHER_RASTER,
            "codes": bad.choice("d8", optional=True),
            "cell_size": COST_MODEL["cell_size"],
        },
    ),
    "upstream": Function(
        og.upstream,
        {"direction": DIRECTION, "values": GRID, "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "values": _OTHER_RASTER,
            "statistics": bad.kind(["median"], [], 3, shows=False),
            "weights": bad.choice("length", optional=True),
            "classes": bad.kind([], 3, [1.5], ["x"], optional=True, shows=False),
            "codes": bad.choice("d8", optional=True),
        },
    ),
    "upstream_length": Function(
        og.upstream_length,
        {"direction": DIRECTION, "codes": "taudem"},
        {
            "direction": bad.RASTER,
            "codes": bad.choice("d8", optional=True),
            "cell_size": COST_MODEL["cell_size"],
        },
    ),
    "height_above_drainage": Function(
        og.height_above_drainage,
        {"elevation": GRID, "direction": DIRECTION, "streams": GRID > 6, "codes": "taudem"},
        {
            "elevation": bad.RASTER,
            "direction": bad.RASTER,
            "streams": bad.RASTER,
            "codes": bad.choice("d8", optional=True),
            "below": bad.choice("clip"),
        },
    ),
    "hop_distance": Function(
        og.hop_distance,
        {"mask": GRID, "sources": POINT},
        {
            "mask": bad.RASTER,
            **SOURCES,
            "max_hops": bad.integer(0, 2**52, optional=True),
            "predecessors": bad.FLAG,
        },
    ),
    "ingest": Function(
        og.ingest,
        {"source": GRID, "store": "a.zarr"},
        {
            "source": bad.RASTER,
            "store": bad.OUT,
            "tile": bad.integer(1, 8192),
        },
    ),
    "least_cost_path": Function(
        og.least_cost_path,
        {"result": COST, "points": POINT},
        {
            "result": bad.Kind(
                lambda folder: [*bad.STORE.values(folder), GRID, xr.Dataset(), COST["cost"]],
                shows=False,
            ),
            "points": bad.POINTS,
            "outside": SOURCES["outside"],
            "unreachable": bad.choice("ignore", "refuse"),
        },
    ),
    "minimum_spanning_forest": Function(
        og.minimum_spanning_forest,
        {"elevation": GRID},
        {"elevation": bad.RASTER, "weight": bad.choice("min")},
    ),
    "open": Function(
        og.open, {"path": "a.zarr"}, {"path": bad.STORE, "chunks": bad.choice("rows")}
    ),
    "pass_elevation": Function(
        og.pass_elevation,
        {"elevation": GRID, "points": POINT},
        {
            "elevation": bad.RASTER,
            "points": bad.POINTS,
            "targets": bad.OPTIONAL_POINTS,
            "paths": bad.FLAG,
        },
    ),
    "path_mask": Function(
        og.path_mask,
        {"paths": [PATH], "like": COST},
        {
            "paths": bad.kind("x", 5, True, PATH, [1], [None], bad.NAN, shows=False),
            "like": bad.kind("x", 5, True, GRID, xr.Dataset(), bad.NAN, shows=False),
        },
    ),
    "is_connected": Function(
        og.is_connected,
        {"mask": GRID, "s": (0, 0), "t": (1, 1)},
        {
            "mask": bad.RASTER,
            "s": bad.POINTS,
            "t": bad.POINTS,
            "hops": bad.FLAG,
            "path": bad.FLAG,
        },
    ),
    "to_geotiff": Function(
        og.to_geotiff,
        {"source": GRID, "path": "a.tif"},
        {
            "source": bad.RASTER,
            "path": bad.FILE,
        },
    ),
    "to_file": Function(
        og.to_file,
        {"result": GRID, "path": "a.tif"},
        {"result": bad.RASTER, "path": bad.RESULT_FILE},
    ),
    "convert_units": Function(
        og.convert_units,
        {"result": xr.DataArray(GRID, dims=("y", "x"), attrs={"units": "s"}), "unit": "h"},
        {"result": _NO_TABLE, "unit": bad.choice("km", "d")},
    ),
    "to_geodataframe": Function(og.to_geodataframe, {}, {"result": _NO_TABLE}),
    "verify": Function(og.verify, {}, {"path": bad.STORE}),
    "rasterize": Function(
        og.rasterize,
        {"layer": LAYER, "like": GRID},
        {"layer": _NO_LAYER, "like": bad.RASTER},
    ),
    "runs": Function(og.runs, {}, {}),
    "roads": Function(
        og.roads,
        {"lines": LineString([(0, 0), (3, 0)]), "like": GRID, "speed": 50},
        {
            "lines": bad.Kind(
                lambda folder: [*_NO_LAYER.values(folder), LAYER, GRID, 5, None], shows=False
            ),
            "like": bad.RASTER,
            "speed": bad.kind(
                *(0, -1, bad.NAN, bad.INF, True, "x", "", [1.5], {"a": -1}, {1: 5}, {"a": True}),
                shows=False,
            ),
            "oneway": bad.kind("x", "", 0, 1.5, bad.NAN, [True], optional=True),
            "access": bad.kind("x", "", 0, True, bad.NAN, ["ends"], optional=True),
            "cost": bad.choice("friction"),
            "unit": bad.choice("d", "seconds"),
            "store": bad.OUT,
        },
    ),
    "forest_lines": Function(
        og.forest_lines,
        {"forest": EDGES},
        {
            "forest": bad.Kind(lambda folder: [*bad.RASTER.values(folder), COST, GRID], False),
        },
    ),
    "stream_lines": Function(
        og.stream_lines,
        {"streams": STREAMS},
        {
            "streams": bad.Kind(
                lambda folder: [*bad.STORE.values(folder), GRID, xr.Dataset(), COST],
                shows=False,
                also="|path",
            ),
            "out": bad.LAYER_OUT,
        },
    ),
    "component_table": Function(
        og.component_table,
        {"result": LABELS},
        {
            "result": bad.Kind(
                lambda folder: [*bad.STORE.values(folder), GRID, xr.Dataset(), COST], shows=False
            ),
            "classes": bad.OPTIONAL_RASTER,
        },
    ),
    "plot": Function(
        og.plot,
        {"result": GRID},
        {
            "result": bad.RASTER,
            "sources": bad.OPTIONAL_POINTS,
            "basemap": bad.OPTIONAL_RASTER,
            **LOOK,
            "title": bad.kind(5, True, [1], optional=True),
            "ax": bad.kind(5, "x", True, GRID, optional=True, shows=False),
            "max_pixels": bad.integer(1, 2**16),
        },
    ),
    "explore": Function(
        og.explore,
        {"result": PLACED},
        {
            "result": bad.RASTER,
            "sources": bad.OPTIONAL_POINTS,
            "basemap": bad.OPTIONAL_RASTER,
            **LOOK,
            "map": bad.kind(5, "x", True, GRID, optional=True, shows=False),
            "tiles": bad.kind(5, True, "", 1.5, optional=True),
            "opacity": bad.kind(-1, 1.5, bad.NAN, "x", None, [1], True),
            "max_pixels": bad.integer(1, 2**16),
        },
    ),
    "RasterSpec": Function(
        og.RasterSpec,
        {"shape": (3, 3)},
        {
            "shape": bad.Kind(
                lambda folder: [
                    *((), (1,), (1, 2, 3), ("a", "b"), (0, 5), (-1, 5), (1.5, 2), (True, 5)),
                    *((None, 1), (-bad.HUGE, 5), (bad.NAN, 1), (1j, 1), 5, None, "x", 1.5),
                ],
                shows=False,
            ),
            "dtype": bad.kind(
                *("x", "", 5, True, bad.NAN, "complex128", np.dtype("O"), "f8,("), optional=True
            ),
        },
    ),
    "TerrainCost": Function(
        og.TerrainCost,
        {
            "surface": GRID,
            "vertical_factor": "linear",
            "horizontal_raster": GRID,
            "horizontal_factor": "linear",
        },
        {
            "surface": bad.RASTER,
            "elevation": bad.OPTIONAL_RASTER,
            "elevation_unit": COST_MODEL["elevation_unit"],
            "max_slope": COST_MODEL["max_slope"],
            "vertical_factor": bad.kind(
                *(5, 1.5, True, bad.NAN, "", "steep", [1, 2], [(0, 1)], [(1, 1), (0, 1)], {0: 1}),
                *({0: 1, 9: -1}, {0: 1, 9: bad.NAN}, {0: 1, 99: 1}, {0: 1, "x": 2}, {0: 1, 9: "x"}),
                optional=True,
                shows=False,
            ),
            "horizontal_raster": bad.OPTIONAL_RASTER,
            "horizontal_factor": bad.kind(
                *(5, 1.5, True, bad.NAN, "", "steep", [1, 2], [(0, 1)], [(1, 1), (0, 1)], {0: 1}),
                *({0: 1, 9: -1}, {0: 1, 9: bad.NAN}, {0: 1, 199: 1}, {0: 1, "x": 2}, {-1: 1, 0: 1}),
                optional=True,
                shows=False,
            ),
            "horizontal_coefficients": bad.kind(
                *("slope", 1, 1.5, True, bad.NAN, [("slope", 1)], {"pace": 1}, {1: 2}),
                *({"slope": "1"}, {"slope": bad.NAN}, {"slope": None}, {"slope": -1}),
                *({"cut_angle": 0}, {"cut_angle": True}, {"zero_factor": -1}, {"slope": [1]}),
                optional=True,
                shows=False,
                junk=False,
            ),
            "vertical_coefficients": bad.kind(
                *("slope", 1, 1.5, True, bad.NAN, [("slope", 1)], {"pace": 1}, {1: 2}),
                *({"slope": "1"}, {"slope": bad.NAN}, {"slope": None}, {"slope": 1}),
                *({"low_cut": 91}, {"high_cut": -90}, {"low_cut": True}, {"slope": [1]}),
                optional=True,
                shows=False,
                junk=False,
            ),
        },
    ),
    **_plans(),
}


def _plans_of_jobs() -> dict[str, Function]:
    """The plans that describe a job: they refuse what the operation refuses, and more."""
    # in their place are other sources, or nothing: see `orograph.operations.plan`
    made_up = {
        *("sources", "regions", "habitat", "points", "targets", "outlets", "sinks", "label"),
        *("source_values", "initial_cost", "links", "barriers", "snap", "levels", "facilities"),
        *("capacity", "rank", "candidates", "supply", "within"),
    }
    requests = {
        "components": bad.integer(0, 12, optional=True),
        "pits": bad.integer(0, 12, optional=True),
        "reach": bad.integer(0, 12, optional=True),
        "memory_limit": bad.kind(
            *(0, -1, bad.NAN, bad.INF, "4 pears", "", True, "-1", bad.HUGE, 10**400), optional=True
        ),
        "gpu_memory": bad.kind(0, -1, bad.NAN, "4 pears", "", True, "0.1 GiB", optional=True),
        "workers": bad.integer(0, 2**20),
    }
    found = {}
    for name, function in FUNCTIONS.items():
        operation = function.call
        if not isinstance(operation, og.Operation) or operation.estimates[0] is not None:
            continue
        if operation.takes_raster:
            taken = set(inspect.signature(operation.plan).parameters) - made_up
            found[f"{name}.plan of a raster"] = Function(
                operation.plan,
                function.valid,
                {**requests, **function.own},
                signature=lambda: None,
                options=tuple(sorted(taken - {"storage_options"})),
            )
    return found


FUNCTIONS |= _plans_of_jobs()
# made by orograph itself, with no method that takes anything
RESULTS = {
    *("LeastCostPath", "LeastCostPaths", "Plan", "Progress", "Reach", "StoreReport", "VectorLayer"),
    *("config", "Graph", "Operation"),
}


def _of_index(name: str) -> Function:
    """A method of the index, which is its first argument here."""
    parts = name.split(".")
    valid: dict[str, Any] = {
        "DistanceIndex": {"memory": 0, "client": None},
        "DistanceIndex.build": {
            "raster": GRID, "store": "a.zarr", "cost": "tobler"
        },
        "DistanceIndex.distance_matrix": {"points": POINT},
        "DistanceIndex.nearest": {"points": POINT, "targets": [(0, 0), (1, 1)]},
        "DistanceIndex.query": {"sources": POINT},
        "DistanceIndex.path": {"start": (0, 0), "end": (1, 1)},
        "DistanceIndex.update": {"window": (0, 0, 1, 1), "friction": np.ones((1, 1))},
        "DistanceIndex.update_links": {"links": BRIDGE},
    }.get(name, {})  # fmt: skip
    signature = getattr(og.DistanceIndex, parts[1] if len(parts) > 1 else "__init__")

    def call(index: og.DistanceIndex, **given: Any) -> Any:
        if name == "DistanceIndex":
            return og.DistanceIndex(**{"store": index._store, **given})
        if name == "DistanceIndex.open":
            given = {"store": str(index._store.storage), **given}
        if name == "DistanceIndex.build":
            return og.DistanceIndex.build(**given)
        return getattr(index, parts[1])(**given)

    return Function(call, valid, _METHODS[name], signature)


INDEX = {name: _of_index(name) for name in _METHODS}
PARAMETERS = [
    pytest.param(function, parameter, id=f"{name}({parameter})")
    for name, function in {**FUNCTIONS, **INDEX}.items()
    for parameter in function.parameters
]
PLACES = [(id(case.values[0]), case.values[1]) for case in PARAMETERS]


def _alike() -> dict[int, list[tuple[int, str]]]:
    """Return the parameters that refuse the same, by the identity of its kind."""
    found: dict[int, list[tuple[int, str]]] = {}
    for case, place in zip(PARAMETERS, PLACES, strict=True):
        function, parameter = case.values
        found.setdefault(id(function.kind_of(parameter)), []).append(place)
    return found


ALIKE = _alike()


def test_every_public_name_is_tested() -> None:
    tested = (
        {name for name in FUNCTIONS if ".plan of " not in name} | RESULTS | {"DistanceIndex", "Run"}
    )
    errors = {name for name in og.__all__ if name in vars(og.tiles.errors)}
    assert set(og.__all__) - errors == tested
    methods = {f"DistanceIndex.{name}" for name in _public_methods(og.DistanceIndex)}
    assert methods | {"DistanceIndex"} == set(INDEX)
    methods = {name: _public_methods(getattr(og, name)) for name in RESULTS - {"config"}}
    assert {name: found for name, found in methods.items() if found} == {
        "Graph": {
            *("joined", "need_both_ways", "part_heads", "part_rows", "vertices", "with_both_ways")
        },
        "LeastCostPath": {"to_geodataframe"},
        "Operation": {"bind"},
        "LeastCostPaths": {"to_geodataframe", "to_file"},
        "VectorLayer": {
            *("to_geodataframe", "to_file", "points", "has_extent", "in_crs", "in_degrees"),
            *("on_grid", "labels", "numbered"),
        },
    }
    assert _public_methods(og.Run) == {"progress", "report", "statistics", "result", "cancel"}


def _public_methods(kind: type) -> set[str]:
    """Return the names of what can be called of a class."""
    return {
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and isinstance(value, FunctionType | classmethod | og.Operation)
    }


@pytest.mark.parametrize("parameter", ["path", "crs", "overwrite"])
def test_a_layer_is_not_written_to_what_is_no_file(parameter: str, nothing_begins: Path) -> None:
    kind = {"path": bad.FILE, "crs": bad.CRS, "overwrite": bad.FLAG}[parameter]
    paths = og.LeastCostPaths([PATH])
    for value in kind.values(nothing_begins):
        given = {"path": "paths.gpkg", parameter: value}
        for thing in (paths, paths.layer):
            with pytest.raises((og.InputError, og.StoreExistsError), match=f"{parameter}|folder"):
                thing.to_file(**given)


def test_a_timeout_that_is_no_time_is_refused() -> None:
    run = og.minimum_spanning_forest.submit(GRID)
    for timeout in ("1", -1, bad.NAN, True, 10**400, bad.Thing(), [1], 1j):
        with pytest.raises(og.InputError, match=r"timeout: .*; it must be a number"):
            run.result(timeout)
    assert run.result(np.float32(600)).attrs["tree_count"] == 1


@pytest.fixture
def nothing_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder for values, in another one that is empty and stays so."""

    def begun(*given: object, **named: object) -> None:
        raise AssertionError("it was accepted, and work has begun")

    for place in (
        "orograph.run.run.Run.__init__",
        "orograph.index.distance_index.table_of",
        "orograph.index.distance_index.field_of",
        "orograph.index.distance_index.corridor_of",
        "orograph.index.store.IndexStore.begin",
        "orograph.tiles.convert.ingest.create_store",
        "orograph.tiles.convert.export._write",
        "distributed.LocalCluster.__init__",
    ):
        monkeypatch.setattr(place, begun)
    here, values = tmp_path / "here", tmp_path / "values"
    here.mkdir()
    values.mkdir()
    monkeypatch.chdir(here)
    yield values
    assert sorted(tmp_path.iterdir()) == [here, values]
    assert list(here.iterdir()) == []


def _unknown_options(text: str, function: Function) -> list[str]:
    """Return the options that a message names and the function does not have.

    An option in a call that the message writes out is one of the function called.
    """
    calls = re.findall(r"\bog\.(\w+)\(([^()]*)\)", text)
    unknown = [
        f"og.{name}({option}=)"
        for name, given in calls
        for option in re.findall(r"\b([a-z_]+)=", given)
        if option not in inspect.signature(getattr(og, name)).parameters
    ]
    plain = re.sub(r"\([^()]*\)", "", text)
    named = re.findall(r"(?<![\w.+])([a-z_]+)=(?!=)", plain)
    known = {*function.parameters, *inspect.signature(function.call).parameters}
    return unknown + [f"{name}=" for name in named if name not in known]


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def _complaint(text: str, parameter: str, value: Any, kind: bad.Kind) -> str | None:
    """Return what is wrong with a message, if anything is."""
    path = isinstance(value, str | Path) and str(value)[:60] in text
    if not re.search(rf"\b({parameter}{kind.also})\b", text) and not path:
        return "does not name the parameter"
    if "\n" in text:
        return "has more than one line"
    if not re.search("[;?]|such as", text):
        return "does not say what to do"
    plain = isinstance(value, bool | int | float | None) and len(repr(value)) < 60
    short = isinstance(value, str) and 0 < len(value) < 60 and "\0" not in value
    if kind.shows and (plain or short) and not any(s in text for s in (repr(value), str(value))):
        return "does not repeat the value"
    return None


@pytest.mark.parametrize(("function", "parameter"), PARAMETERS)
def test_what_cannot_be_used_is_refused(
    function: Function,
    parameter: str,
    index: og.DistanceIndex,
    nothing_begins: Path,
    pytestconfig: pytest.Config,
) -> None:
    kind = function.kind_of(parameter)
    first = (index,) if function in INDEX.values() else ()
    wrong = []
    values = kind.values(nothing_begins)
    if is_quick(pytestconfig):
        alike = ALIKE[id(kind)]
        values = part_of(values, alike.index((id(function), parameter)), len(alike))
    for value in values:
        before = _files(nothing_begins)
        for _ in range(2):  # what takes long may be the first import of a library
            started = time.process_time()
            message = what = ""
            try:
                function.call(*first, **{**function.valid, parameter: value})
            except og.OrographError as error:
                message = str(error)
                if type(error).__name__ not in kind.errors:
                    what = f"is a {type(error).__name__}"
                what = what or _complaint(message, parameter, value, kind) or ""
                if not what and (unknown := _unknown_options(message, function)):
                    what = f"names {', '.join(unknown)}, which it does not have"
            except BaseException as error:
                what, message = type(error).__name__, str(error)
            else:
                what = "is accepted"
            took = time.process_time() - started
            if took <= 1:
                break
        if took > 1:
            what += " takes more than a second"
        if _files(nothing_begins) != before:
            what += " leaves something behind"
        if what:
            wrong.append(f"{bad.brief(value)} {what}: {message}")
    assert not wrong, f"{len(wrong)} values of {parameter}:\n" + "\n".join(wrong)


SECRETS = [
    f"{start}/{name}"
    for name in ("dem.zarr", "dem.tif", "dem.gpkg", "dem.csv", "dem.osm", "dem.mtx")
    for start in ("s3://AKID:WORD@bucket", "https://name:WORD@host", "/vsicurl/https://WORD@a")
]


@pytest.mark.parametrize(
    ("function", "parameter"),
    # not addresses of data: PROJ reads one, the browser another, and a title may be any text
    [case for case in PARAMETERS if case.values[1] not in ("crs", "tiles", "title")],
)
def test_no_message_repeats_a_secret_of_an_address(
    function: Function,
    parameter: str,
    index: og.DistanceIndex,
    nothing_begins: Path,
    pytestconfig: pytest.Config,
) -> None:
    first = (index,) if function in INDEX.values() else ()
    addresses = SECRETS
    if is_quick(pytestconfig):
        addresses = part_of(SECRETS, PLACES.index((id(function), parameter)), len(PLACES))
    for address in addresses:
        with pytest.raises(og.OrographError) as told:
            function.call(*first, **{**function.valid, parameter: address})
        assert "WORD" not in str(told.value)


def test_a_misspelt_operation_is_told_with_the_one_that_was_meant() -> None:
    package: Any = og
    with pytest.raises(AttributeError, match=r"has no attribute 'watershed'; did you mean 'water"):
        package.watershed  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'orograph' has no attribute 'Zebra'$"):
        package.Zebra  # noqa: B018
    with pytest.raises(AttributeError, match=r"'flow_acc' here; did you mean 'flow_acc"):
        xr.DataArray(GRID).orograph.flow_acc  # noqa: B018
    with pytest.raises(AttributeError, match=r"no 'Zebra' here; it has .*, cost_distance, "):
        xr.DataArray(GRID).orograph.Zebra  # noqa: B018


def test_an_unknown_keyword_is_told_with_the_one_that_was_meant() -> None:
    call: Any = og.cost_distance
    with pytest.raises(TypeError, match=r"cost_distance\(\) got an unexpected keyword argument "
                       r"'max_costs'; did you mean 'max_cost'\?"):  # fmt: skip
        call(GRID, POINT, max_costs=5)
    with pytest.raises(TypeError, match=r"'Zebra'; it has friction, sources, cost, "):
        call(GRID, POINT, Zebra=5)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'sources'"):
        call(GRID)
    with pytest.raises(TypeError, match=r"'max_hop'; did you mean 'max_hops'\?"):
        xr.DataArray(GRID).orograph.hop_distance(POINT, max_hop=5)
    with pytest.raises(TypeError, match=r"^cost_distance\.plan\(\) missing its first argument"):
        og.cost_distance.plan(outputs="cost")
    with pytest.raises(TypeError, match=r"^cost_distance\.submit\(\) .*did you mean 'max_cost'"):
        call.submit(GRID, POINT, max_costs=5)


def test_a_public_function_is_found_where_it_says_that_it_is() -> None:
    for name in og.__all__:
        value = getattr(og, name)
        if isinstance(value, FunctionType | og.Operation):
            assert pickle.loads(pickle.dumps(value)) is value
