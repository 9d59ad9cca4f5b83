"""Rasters stored in any orientation: results have the same bits in space as where north is up."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401
import shapely
import xarray as xr
from cuda_on_cpu.emulator import Emulator

import orograph as og

SHAPE = 21, 18
ORIENTATIONS = [(-1, 1), (1, -1), (-1, -1)]
Raster = xr.DataArray
Rasters = dict[str, Raster]


def stored(raster: Any, south: int, east: int) -> Any:
    """A raster with rows to the south (1) or north (-1), and columns to the east or west."""
    return raster.sortby("y", ascending=south < 0).sortby("x", ascending=east > 0)


def bits(found: Any) -> dict[str, bytes]:
    """The cells of all rasters of a result, from north to south and from west to east."""
    if isinstance(found, dict):
        return {name: np.asarray(values).tobytes() for name, values in found.items()}
    rasters = found.data_vars if isinstance(found, xr.Dataset) else {"cells": found}
    return {name: stored(raster, 1, 1).values.tobytes() for name, raster in rasters.items()}


def placed(cells: np.ndarray, *, degrees: bool) -> Raster:
    height, width = cells.shape
    y, x = 5e6 - 10.0 * np.arange(height), 6e5 + 10.0 * np.arange(width)
    if degrees:
        y, x = 47 - 0.01 * np.arange(height), 8 + 0.01 * np.arange(width)
    raster = xr.DataArray(cells, {"y": y, "x": x}, ("y", "x"))
    return raster.rio.write_crs(4326 if degrees else 32632)


def rasters(seed: int, *, degrees: bool = False) -> Rasters:
    """Rasters with many ties: low whole heights, flats, and friction of two values."""
    rng = np.random.default_rng(seed)
    heights = rng.integers(0, 7, SHAPE).astype(np.float32)
    heights[4:11, 5:14] = 2
    heights[rng.random(SHAPE) < 0.03] = np.nan
    friction = rng.integers(1, 3, SHAPE) + (rng.random(SHAPE) < 0.3) * 0.1
    cells = {"heights": heights, "friction": friction, "weights": rng.random(SHAPE)}
    known = {name: placed(values, degrees=degrees) for name, values in cells.items()}
    known["directions"] = og.flow_direction(known["heights"], codes="esri")["direction"]
    known["accumulation"] = og.flow_accumulation(known["directions"])["accumulation"]
    known["regions"] = placed(np.zeros(SHAPE, np.int32), degrees=degrees)
    for label in range(1, 6):
        known["regions"][rng.integers(0, SHAPE[0]), rng.integers(0, SHAPE[1])] = label
    return known


def points(known: Rasters) -> list[tuple[float, float]]:
    """Four points, given by their place."""
    friction = stored(known["friction"], 1, 1)
    x, y = friction["x"].values, friction["y"].values
    return [(x[n], y[m]) for m, n in ((3, 2), (3, 15), (17, 2), (12, 12))]


def _cost(known: Rasters, at: Any = None, **options: Any) -> xr.Dataset:
    outputs = "cost", "back_direction", "allocation"
    here = points(known)[:2] if at is None else at
    return og.cost_distance(known["friction"], here, outputs=outputs, **options)


def _paths(known: Rasters, orient: tuple[int, int], **options: Any) -> dict[str, Any]:
    """Least-cost paths, their cells counted from the north-west."""
    result = stored(_cost(known, connectivity=16, **options), *orient)
    paths = og.least_cost_path(result, points(known)[2:])
    return {str(number): path.coordinates for number, path in enumerate(paths)}


def _lines(layer: Any) -> dict[str, Any]:
    names = "from", "to", "cost", "length"
    lines = [line.wkt for line in layer.geometry]
    return {"lines": lines} | {name: layer.columns[name] for name in names}


def _linkages(known: Rasters, **options: Any) -> dict[str, Any]:
    found = og.linkages(
        known["friction"], known["regions"], threshold=30, alternatives=1, width=2, **options
    )
    rasters = {name: stored(found[name], 1, 1).values for name in ("corridor", "link")}
    return rasters | {name: v.values for name, v in found.items() if v.ndim == 1}


def _shapes(layer: Any) -> dict[str, Any]:
    """Polygons in an order that does not depend on that of the raster."""
    return {"shapes": sorted(shapely.normalize(shape).wkt for shape in layer.geometry)}


def _segments(layer: Any) -> dict[str, Any]:
    return {"lines": sorted(line.wkt for line in layer.geometry)}


def _reach(known: Rasters, **options: Any) -> dict[str, Any]:
    (path,) = og.is_connected(known["heights"] > 1, *points(known)[:3:2], snap=9, **options).paths
    return {"path": path.coordinates}


def _eikonal(known: Rasters, **options: Any) -> dict[str, Any]:
    result = og.cost_distance(known["friction"], points(known)[:2], cost="eikonal", **options)
    paths = og.least_cost_path(result, points(known)[2:])
    cells = [north_west(known["friction"], path.cells) for path in paths]
    return {"cost": stored(result["cost"], 1, 1), **dict(zip("ab", cells, strict=True))}


def north_west(raster: Raster, cells: np.ndarray) -> np.ndarray:
    """Rows and columns of cells counted from the north-west."""
    at = raster["y"].values[cells[:, 0]], raster["x"].values[cells[:, 1]]
    order = np.sort(raster["y"].values)[::-1], np.sort(raster["x"].values)
    return np.stack([np.argmax(axis[:, None] == v, axis=0) for axis, v in zip(order, at)])


FLOW = {
    f"{method}, {depressions}, {flats}": (
        lambda known, how=(method, depressions, flats), **options: og.flow_direction(
            known["heights"], **dict(zip(("method", "depressions", "flats"), how)), **options
        )
    )
    for method, depressions, flats in itertools.product(
        ("d8", "dinf"), ("fill", "breach", "keep"), ("nearest", "gradient")
    )
}
SUMS = {
    f"{method}, weights {weights}": (
        lambda known, how=(method, weights), **options: og.flow_accumulation(
            known["heights"],
            method=how[0],
            weights=known.get(how[1], how[1]),
            **options,
        )
    )
    for method, weights in itertools.product(("d8", "dinf", "mfd"), (None, "weights", "area"))
}
OF_DIRECTIONS = {
    "accumulation": lambda known, **options: og.flow_accumulation(known["directions"], **options),
    "flow distance": lambda known, **options: og.flow_distance(known["directions"], **options),
    "downstream": lambda known, **options: og.downstream(
        known["directions"], known["heights"], statistics=("outlet", "mean"), **options
    ),
    "upstream": lambda known, **options: og.upstream(
        known["directions"],
        known["heights"],
        statistics=("std", "min"),
        weights="area",
        **options,
    ),
    "upstream length": lambda known, **options: og.upstream_length(known["directions"], **options),
    "height above drainage": lambda known, **options: og.height_above_drainage(
        known["heights"], known["directions"], known["accumulation"] > 9, **options
    ),
    "orders of streams": lambda known, **options: og.streams(
        known["directions"], known["accumulation"], 4, **options
    )[["order"]],
}
DISTANCES = {
    f"cost, {n} neighbours, {dtype}": (
        lambda known, how=(n, dtype), **options: _cost(
            known, connectivity=how[0], dtype=how[1], **options
        )
    )
    for n, dtype in itertools.product((4, 8, 16), ("float32", "float64"))
} | {
    "cost of regions": lambda known, **options: _cost(known, known["regions"], **options),
    "walking time": lambda known, **options: og.walking_time(
        known["heights"],
        points(known),
        snap=9,
        connectivity=16,
        outputs=("time", "back_direction"),
        **options,
    ),
    "hops": lambda known, **options: og.hop_distance(
        known["heights"] > 1, points(known), snap=9, **options
    ),
    "region network": lambda known, **options: _lines(
        og.region_network(known["friction"], known["regions"], **options)
    ),
    "linkages": _linkages,
    "path between two": _reach,
    "catchments": lambda known, **options: og.catchments(
        known["friction"],
        points(known),
        population=known["weights"],
        capacity=9,
        max_cost=90,
        **options,
    )[["catchment", "residual"]],
    "sites": lambda known, **options: og.site(
        known["friction"],
        points(known),
        population=known["weights"],
        within=40,
        count=3,
        **options,
    )[["catchment", "residual"]],
    "floating catchments": lambda known, **options: og.floating_catchments(
        known["friction"], points(known), population=known["weights"], within=60, **options
    )[["access"]],
    "eikonal": _eikonal,
}
SURFACES = {
    "breach": lambda known, **options: og.breach_depressions(known["heights"], **options),
    "fill": lambda known, **options: og.fill_depressions(
        known["heights"], outputs=("filled", "depth"), **options
    ),
    "flood": lambda known, **options: og.flood_level(known["heights"], known["regions"], **options),
    "depressions": lambda known, **options: _sorted(
        og.depressions(known["heights"], **options), "depression", _DEPRESSIONS
    ),
    "peaks": lambda known, **options: _sorted(
        og.peaks(known["heights"], **options), "peak", _PEAKS
    ),
    "passes": lambda known, **options: _columns(
        og.pass_elevation(known["heights"], points(known), paths=True, snap=9, **options)
    ),
    "largest of a tie": lambda known, **options: _columns(
        og.watersheds(
            known["directions"],
            points(known)[:1],
            accumulation=known["accumulation"].clip(max=2),
            snap=4,
            **options,
        )[["outlet_y", "outlet_x"]]
    ),
    **{
        f"forest by {weight}, {n} neighbours": (
            lambda known, how=(weight, n), **options: og.minimum_spanning_forest(
                known["heights"], weight=how[0], connectivity=how[1], **options
            )
        )
        for weight, n in (("max", 8), ("max", 4), ("absolute_difference", 8), ("mean", 8))
    },
    "lines of a forest": lambda known, **options: _segments(
        og.forest_lines(og.minimum_spanning_forest(known["weights"], **options))
    ),
    "lines of equal cost": lambda known, **options: _shapes(
        og.isochrones(_cost(known)["cost"], [30.0, 60.0, 90.0], **options)
    ),
    "areas": lambda known, **options: _shapes(
        og.polygonize(known["heights"].fillna(9).astype(np.int32), **options)
    ),
}
LABELLED: dict[str, Callable[..., Any]] = {
    "components": lambda known, **options: og.connected_components(known["heights"] > 3, **options)[
        ["labels"]
    ],
    "watersheds": lambda known, **options: og.watersheds(known["directions"], **options)[
        ["watershed"]
    ],
    "links": lambda known, **options: og.streams(
        known["directions"], known["accumulation"], 4, **options
    )[["link"]],
    "depressions": lambda known, **options: og.depressions(
        known["heights"], labels=True, **options
    )[["labels"]],
    "filled depressions": lambda known, **options: og.fill_depressions(
        known["heights"], outputs="depression", **options
    ),
}
"""Rasters of numbers that follow the order of the raster."""
_DEPRESSIONS = ["pit_y", "pit_x", "spill_y", "spill_x", "depth", "cells", "area", "volume"]
_PEAKS = ["y", "x", "elevation", "col_y", "col_x", "col_elevation", "prominence"]


def _columns(table: xr.Dataset) -> dict[str, Any]:
    names = set(table.variables) - {"spatial_ref", "y", "x"}
    return {str(name): table[name].values for name in names}


def _sorted(table: xr.Dataset, rows: str, names: list[str]) -> dict[str, Any]:
    """Columns of a table in an order that does not depend on that of the raster."""
    columns = [table[name].values.astype(np.float64) for name in names]
    parents = [np.append(column, np.nan)[table["parent"].values] for column in columns[:2]]
    columns += parents
    return {"all": np.stack(columns)[:, np.lexsort(columns)]}


OPERATIONS: dict[str, Callable[..., Any]] = {
    **FLOW, **SUMS, **OF_DIRECTIONS, **DISTANCES, **SURFACES
}  # fmt: skip


@pytest.mark.parametrize("name", LABELLED)
def test_labels_agree_up_to_renumbering(name: str) -> None:
    operation, known = LABELLED[name], rasters(6)
    (expected,) = operation(known).data_vars.values()
    for south, east in ORIENTATIONS:
        turned = {key: stored(raster, south, east) for key, raster in known.items()}
        for options in ({}, {"tile": 8}):
            (found,) = operation(turned, **options).data_vars.values()
            pairs = np.stack([expected.values, stored(found, 1, 1).values]).reshape(2, -1)
            count = np.unique(pairs, axis=1).shape[1]
            assert [np.unique(labels).size for labels in pairs] == [count] * 2
            assert count > 4
            if name not in ("depressions", "filled depressions"):  # numbers of their lowest cells
                continue
            # the label is the number of a cell of the raster, from 1
            labels = np.unique(found.values[found.values > 0]) - 1
            y, x = np.unravel_index(labels, SHAPE)
            lowest = found.isel(y=xr.DataArray(y), x=xr.DataArray(x))
            assert (lowest.values == labels + 1).all()


IN_DEGREES = [
    "d8, keep, nearest",
    "dinf, fill, nearest",
    "dinf, weights area",
    "mfd, weights None",
    "flow distance",
    "downstream",
    "upstream",
    "upstream length",
    "cost, 16 neighbours, float64",
    "walking time",
    "depressions",
]
"""Those whose lengths or areas differ from row to row there."""


@pytest.mark.diagonal
@pytest.mark.filterwarnings("ignore:.*lie below the stream")
@pytest.mark.parametrize(
    ("name", "degrees"),
    [*zip(OPERATIONS, itertools.repeat(False)), *zip(IN_DEGREES, itertools.repeat(True))],
)
def test_results_have_the_bits_of_a_north_up_raster(name: str, degrees: bool) -> None:
    operation, known = OPERATIONS[name], rasters(1, degrees=degrees)
    expected = bits(operation(known))
    for south, east in ORIENTATIONS:
        turned = {key: stored(raster, south, east) for key, raster in known.items()}
        for options in ({}, {"tile": 8}):
            found = operation(turned, **options)
            assert bits(found) == expected, (south, east, options)


@pytest.mark.parametrize("encoding", ["taudem", "esri", "grass", "ldd"])
def test_codes_are_those_of_the_compass(encoding: str) -> None:
    """North of the highest ground in the south, in any orientation, as the table says."""
    rows = np.repeat(np.arange(9.0)[:, None], 9, 1)
    code = {"taudem": 3, "esri": 64, "grass": 2, "ldd": 8}[encoding]
    for south, east in [(1, 1), *ORIENTATIONS]:
        heights = stored(placed(rows, degrees=False), south, east)
        found = og.flow_direction(heights, codes=encoding)["direction"]
        assert (found.values[1:-1, 1:-1] == code).all()
        # whoever made them, they are read as such
        plain = xr.DataArray(found.values, heights.coords, heights.dims)
        upstream = og.flow_accumulation(plain, codes=encoding)["accumulation"]
        assert stored(upstream, 1, 1).values[:, 4].tolist() == list(range(9, 0, -1))


@pytest.mark.parametrize("way", ["GeoTIFF", "store", "NetCDF"])
def test_files_and_stores_are_read_by_their_coordinates(way: str, tmp_path: Path) -> None:
    known, paths = rasters(2), {}
    for south, east in ((1, 1), *ORIENTATIONS):
        heights = stored(known["heights"], south, east)
        folder = tmp_path / f"{south}{east}"
        folder.mkdir()
        if way == "GeoTIFF":
            heights.rio.to_raster(folder / "dem.tif")
        elif way == "NetCDF":
            heights.to_netcdf(folder / "dem.nc")
        else:
            og.ingest(heights, folder / "dem.zarr", tile=8)
        (path,) = folder.iterdir()
        flow = og.flow_direction(path, out=folder / "flow.zarr")
        sums = og.flow_accumulation(folder / "flow.zarr")
        angles = og.flow_direction(path, method="dinf")
        found = bits(flow), bits(sums), bits(angles)
        assert paths.setdefault(way, found) == found
        assert np.array_equal(flow["y"], heights["y"])


def test_paths_lie_where_they_do_where_north_is_up() -> None:
    """Also where the result of one orientation is turned into another."""
    known = rasters(3)
    expected = bits(_paths(known, (1, 1)))
    for made, read in itertools.product([(1, 1), *ORIENTATIONS], repeat=2):
        turned = {key: stored(raster, *made) for key, raster in known.items()}
        assert bits(_paths(turned, read)) == expected


def test_points_move_to_the_cell_that_lies_first_from_the_north_west() -> None:
    cells = np.zeros((5, 5))
    cells[::4, ::4] = 1
    mask = placed(cells, degrees=False)
    middle = [(float(mask["x"][2]), float(mask["y"][2]))]
    for south, east in [(1, 1), *ORIENTATIONS]:
        turned = stored(mask.where(mask > 0), south, east)
        hops = og.cost_distance(turned, middle, snap=2)["cost"]
        assert np.argwhere(stored(hops, 1, 1).values == 0).tolist() == [[0, 0]]


ON_GPU = [
    "d8, keep, nearest",
    "d8, fill, gradient",
    "d8, weights None",
    "forest by max, 8 neighbours",
    "forest by mean, 8 neighbours",
    "depressions",
    "cost, 8 neighbours, float32",
    "cost, 16 neighbours, float32",
]


@pytest.mark.parametrize("name", ON_GPU)
def test_a_gpu_has_these_bits_too(name: str, emulated_gpu: Emulator) -> None:
    known = rasters(4)
    expected = bits(OPERATIONS[name](known, backend="numba"))
    for south, east in ORIENTATIONS:
        turned = {key: stored(raster, south, east) for key, raster in known.items()}
        assert bits(OPERATIONS[name](turned, backend="cuda")) == expected


def test_an_index_has_the_paths_of_a_north_up_raster(tmp_path: Path) -> None:
    known = rasters(5)
    found = []
    for south, east in [(1, 1), *ORIENTATIONS]:
        place = tmp_path / f"{south}{east}.zarr"
        index = og.DistanceIndex.build(stored(known["friction"], south, east), place, block=8)
        a, *_, b = points(known)
        found.append(index.path(a, b).coordinates.tolist())
    assert found[1:] == found[:-1]
