"""Rasters that wrap, against explicit graphs whose first and last column are neighbours."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers `.rio`)
import shapely
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from distributed import Client
from pyproj import Geod
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, dijkstra
from terrain_cases import fractal
from verbs import call
from watched_raster import SHARD, TILE, Gate, WatchedRaster, mortal_cluster, wait_until

import orograph as og
from orograph.run.cluster.clusters import cluster

STEPS = {
    1: (0, 1),
    2: (-1, 1),
    3: (-1, 0),
    4: (-1, -1),
    5: (0, -1),
    6: (1, -1),
    7: (1, 0),
    8: (1, 1),
}
"""Steps (rows, columns) of TauDEM's codes."""
FORWARD = ((0, 1), (1, -1), (1, 0), (1, 1))
"""Steps of the edges of a forest, by bit."""
ALL = ("cost", "back_direction", "allocation")
FEW, MANY = range(4), range(4, 40)
SEEDS = [*FEW, *(pytest.param(n, marks=pytest.mark.long) for n in MANY)]


class Case:
    """A random grid, with a tile and a number of columns by which to roll it."""

    def __init__(self, seed: int, widest_step: int = 1) -> None:
        self.random = random = np.random.default_rng(seed)
        while True:
            self.shape = int(random.integers(1, 14)), int(random.integers(2 * widest_step + 1, 16))
            self.tile = int(random.integers(widest_step, 8))
            if (self.shape[1] % self.tile or self.tile) >= widest_step:
                break
        self.connectivity = int(random.choice([4, 8]))
        self.roll = int(random.integers(self.shape[1]))
        self.options: dict[str, Any] = {"tile": self.tile, "wrap": True}

    def heights(self, *, distinct: bool) -> np.ndarray[Any, Any]:
        """Return heights with some nodata."""
        heights = self.random.random(self.shape)
        if not distinct:
            heights = np.floor(6 * heights)
        heights[self.random.random(self.shape) < 0.1] = np.nan
        heights.flat[0] = 3
        return heights

    def cell(self, valid: np.ndarray[Any, Any]) -> tuple[int, int]:
        """Return the row and column of a random valid cell."""
        y, x = self.random.choice(np.argwhere(valid)).tolist()
        return y, x

    def rolled(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return values rolled along the rows."""
        return np.roll(values, self.roll, axis=1)


def around(
    shape: tuple[int, int], cell: tuple[int, int], connectivity: int = 8
) -> Iterator[tuple[int, int, int]]:
    """Yield code, row and column of the neighbours of a cell; rows may lie outside."""
    for code, (dy, dx) in STEPS.items():
        if connectivity == 8 or 0 in (dy, dx):
            yield code, cell[0] + dy, (cell[1] + dx) % shape[1]


def edges(shape: tuple[int, int], connectivity: int) -> Iterator[tuple[int, int, int]]:
    """Yield both ends, row-major, and the bit of each edge of a grid that wraps."""
    height, width = shape
    for y, x in np.ndindex(shape):
        for bit, (dy, dx) in enumerate(FORWARD):
            if y + dy < height and (connectivity == 8 or 0 in (dy, dx)):
                yield y * width + x, (y + dy) * width + (x + dx) % width, bit


def step_costs(friction: np.ndarray[Any, Any], connectivity: int) -> dict[tuple[int, int], float]:
    """Return the least cost of a step between two cells, row-major, the smaller one first."""
    height, width = friction.shape
    steps = [s for s in FORWARD if connectivity > 4 or 0 in s]
    if connectivity == 16:
        steps += [(1, 2), (1, -2), (2, 1), (2, -1)]
    least: dict[tuple[int, int], float] = {}
    for (y, x), (dy, dx) in itertools.product(np.ndindex(friction.shape), steps):
        if y + dy >= height:
            continue
        to = y + dy, (x + dx) % width
        cells = [(y, x), to]
        if abs(dx) == 2:
            middle = (x + dx // 2) % width
            cells += [(y, middle), (y + dy, middle)]
        elif dy == 2:
            cells += [(y + 1, x), (y + 1, to[1])]
        cost = float(np.mean([friction[c] for c in cells])) * float(np.hypot(dy, dx))
        if np.isfinite(cost):
            a, b = sorted((y * width + x, to[0] * width + to[1]))
            least[a, b] = min(least.get((a, b), np.inf), cost)
    return least


def costs_from(
    friction: np.ndarray[Any, Any], cell: tuple[int, int], connectivity: int
) -> np.ndarray[Any, Any]:
    """Return least costs from a cell by SciPy's Dijkstra, NaN where there are none."""
    least, width = step_costs(friction, connectivity), friction.shape[1]
    ends = np.array(list(least), int).reshape(-1, 2).T
    graph = coo_matrix((list(least.values()), tuple(ends)), (friction.size, friction.size))
    found = dijkstra(graph.tocsr(), directed=False, indices=cell[0] * width + cell[1])
    return np.where(np.isinf(found), np.nan, found).reshape(friction.shape)


def highest_on_the_way(
    heights: np.ndarray[Any, Any], starts: list[tuple[int, int]], connectivity: int
) -> np.ndarray[Any, Any]:
    """Return the least greatest height on a path from any start, by a priority queue."""
    found = np.full(heights.shape, np.nan)
    queue = [(float(heights[cell]), cell) for cell in starts]
    heapq.heapify(queue)
    while queue:
        level, cell = heapq.heappop(queue)
        if np.isfinite(found[cell]):
            continue
        found[cell] = level
        for _, y, x in around(heights.shape, cell, connectivity):
            if 0 <= y < len(heights) and np.isnan(found[y, x]) and np.isfinite(heights[y, x]):
                heapq.heappush(queue, (max(level, float(heights[y, x])), (y, x)))
    return found


@pytest.mark.parametrize("connectivity", [4, 8, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_costs_and_paths_are_those_of_an_explicit_graph(seed: int, connectivity: int) -> None:
    case = Case(seed, 2 if connectivity == 16 else 1)
    friction = 0.1 + case.random.random(case.shape)
    friction[case.random.random(case.shape) < 0.2] = np.nan
    friction.flat[0] = 1
    y, x = case.cell(np.isfinite(friction))
    given: dict[str, Any] = {"connectivity": connectivity, **case.options}
    both = ("cost", "back_direction", "allocation")
    result = og.cost_distance(friction, [(x, y)], outputs=both, **given)
    cost = result["cost"].values
    np.testing.assert_allclose(cost, costs_from(friction, (y, x), connectivity), 1e-12)
    assert result["cost"].attrs["wraps"] == "x"
    whole = og.cost_distance(friction, [(x, y)], outputs=both, **given | {"tile": 64})
    xr.testing.assert_identical(result, whole)
    source = (x + case.roll) % case.shape[1], y
    rolled = og.cost_distance(case.rolled(friction), [source], **given)["cost"].values
    np.testing.assert_array_equal(rolled, case.rolled(cost))
    reached = [(column, row) for row, column in np.argwhere(np.isfinite(cost)).tolist()]
    for path in og.least_cost_path(result, reached):
        assert path.cells[-1].tolist() == [y, x]
        step = np.abs(np.diff(path.line[:, 0]))
        assert (step <= (2 if connectivity == 16 else 1)).all()  # the line never jumps
        parts = path._pieces
        assert all(
            -0.5 <= part[:, 0].min() <= part[:, 0].max() <= case.shape[1] - 0.5 for part in parts
        )
    mask = og.path_mask(og.least_cost_path(result, reached), result)
    assert mask.values[y, x] == len(reached)


@pytest.mark.parametrize("block", [3, 4, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_index_goes_around(seed: int, block: int, tmp_path: Path) -> None:
    case = Case(seed)
    friction = 0.1 + case.random.random(case.shape)
    friction[case.random.random(case.shape) < 0.2] = np.nan
    friction.flat[0] = 1
    valid = np.isfinite(friction)
    cells = [case.cell(valid) for _ in range(6)]
    points = [(x, y) for y, x in cells]
    given: dict[str, Any] = {"connectivity": case.connectivity, "block": block, "levels": 0}
    index = og.DistanceIndex.build(friction, tmp_path / "index.zarr", wrap=True, **given)

    def check() -> None:
        expected = np.stack([costs_from(friction, cell, case.connectivity) for cell in cells])
        table = index.distance_matrix(points).values
        apart = expected[:, [y for y, _ in cells], [x for _, x in cells]]
        np.testing.assert_allclose(table, np.where(np.isnan(apart), np.inf, apart), 1e-12)
        field = index.query(points[:1])["cost"]
        np.testing.assert_allclose(field.values, expected[0], 1e-12)
        assert field.attrs["wraps"] == "x"
        for point, cell, cost in zip(points, cells, apart[0], strict=True):
            if np.isfinite(cost):
                path = index.path(points[0], point)
                assert path.cells[[0, -1]].tolist() == [list(cells[0]), list(cell)]
                assert path.cost == pytest.approx(cost, rel=1e-12)
                assert (np.abs(np.diff(path.line[:, 0])) <= 1).all()  # beyond the seam

    check()
    # an update at the seam changes the steps over it, too
    column = 0 if seed % 2 else case.shape[1] - 1
    where = valid[:, [column]]
    fresh = np.where(where, 0.1 + case.random.random((case.shape[0], 1)), np.nan)
    friction[:, [column]] = fresh
    index.update((0, column, case.shape[0], 1), fresh)
    built = og.DistanceIndex.build(friction, tmp_path / "built.zarr", wrap=True, **given)
    same = built.distance_matrix(points).values
    np.testing.assert_array_equal(index.distance_matrix(points).values, same)
    check()


@pytest.mark.parametrize("seed", SEEDS)
def test_hops_and_ways_are_those_of_an_explicit_graph(seed: int) -> None:
    case = Case(seed)
    mask = case.random.random(case.shape) < 0.7
    mask.flat[:2] = True
    y, x = case.cell(mask)
    width, given = case.shape[1], {"connectivity": case.connectivity, **case.options}
    flat = mask.ravel()
    ends = [(a, b) for a, b, _ in edges(case.shape, case.connectivity) if flat[a] and flat[b]]
    a, b = np.array(ends, int).reshape(-1, 2).T
    graph = coo_matrix((np.ones(a.size), (a, b)), (mask.size, mask.size)).tocsr()
    hops = dijkstra(graph, directed=False, indices=y * width + x, unweighted=True)
    hops = np.where(np.isinf(hops), -1, hops).reshape(case.shape)
    found = og.hop_distance(mask, [(x, y)], **given)["hops"].values
    np.testing.assert_array_equal(found, np.where(mask, hops, -1))
    others = np.argwhere(mask)[:: max(int(mask.sum()) // 5, 1)].tolist()
    for some in (others[-1:], others):
        reach = og.is_connected(mask, (x, y), [(column, row) for row, column in some], **given)
        assert reach.hops is not None
        assert reach.hops.tolist() == [hops[row, column] for row, column in some]


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_components_are_those_of_an_explicit_graph(seed: int, least: int) -> None:
    case = Case(seed)
    classes = case.random.integers(0, 3, case.shape)
    flat = classes.ravel()
    same = [(a, b) for a, b, _ in edges(case.shape, case.connectivity) if flat[a] == flat[b] != 0]
    a, b = np.array(same, int).reshape(-1, 2).T
    _, found = connected_components(coo_matrix((np.ones(a.size), (a, b)), (flat.size, flat.size)))
    sizes = np.bincount(found)
    kept = (flat != 0) & (sizes[found] >= least)
    number: dict[int, int] = {}
    expected = [number.setdefault(n, len(number) + 1) if k else 0 for n, k in zip(found, kept)]
    table = ("labels", "component_size")
    result = og.connected_components(
        classes, connectivity=case.connectivity, min_size=least, outputs=table, **case.options
    )
    assert result["labels"].values.ravel().tolist() == expected
    assert result["component_size"].values.tolist() == np.bincount(expected)[1:].tolist()


@pytest.mark.parametrize("weight", ["max", "absolute_difference", "mean"])
@pytest.mark.parametrize("seed", SEEDS)
def test_forests_are_those_of_kruskal(seed: int, weight: str) -> None:
    case = Case(seed)
    heights = case.heights(distinct=bool(seed % 2))
    of = {
        "max": lambda a, b: (max(a, b), min(a, b)),
        "absolute_difference": lambda a, b: (abs(a - b),),
        "mean": lambda a, b: ((a + b) / 2,),
    }[weight]
    flat = heights.ravel()
    order = sorted(
        (*of(flat[a], flat[b]), 4 * a + bit, a, b, bit)
        for a, b, bit in edges(case.shape, case.connectivity)
        if np.isfinite(flat[[a, b]]).all()
    )
    parent = list(range(flat.size))

    def root(n: int) -> int:
        while parent[n] != n:
            n = parent[n]
        return n

    expected = np.zeros(flat.size, int)
    for *_, a, b, bit in order:
        if root(a) != root(b):
            parent[root(a)] = root(b)
            expected[a] |= 1 << bit
    given: dict[str, Any] = {"weight": weight, "connectivity": case.connectivity, **case.options}
    forest = og.minimum_spanning_forest(heights, **given)
    np.testing.assert_array_equal(forest["edges"].values.ravel(), expected)
    lines = og.forest_lines(forest)
    assert len(lines.geometry) == forest.attrs["edge_count"]
    assert max((line.length for line in lines.geometry), default=0) < 1.5


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_are_those_of_a_priority_queue(seed: int) -> None:
    case = Case(seed)
    heights, connectivity = case.heights(distinct=bool(seed % 2)), case.connectivity
    valid = np.isfinite(heights)
    edge = [
        (y, x)
        for y, x in np.argwhere(valid).tolist()
        if any(
            not 0 <= row < case.shape[0] or not valid[row, column]
            for _, row, column in around(case.shape, (y, x), connectivity)
        )
    ]
    given: dict[str, Any] = {"connectivity": connectivity, **case.options}
    filled = og.fill_depressions(heights, **given)["filled"].values
    expected = highest_on_the_way(heights, edge, connectivity)
    np.testing.assert_array_equal(filled, np.where(np.isnan(expected), heights, expected))
    (y, x), (row, column) = case.cell(valid), case.cell(valid)
    level = highest_on_the_way(heights, [(y, x)], connectivity)
    flood = og.flood_level(heights, [(x, y)], **given)
    np.testing.assert_array_equal(next(iter(flood.values())).values, level)
    found = og.pass_elevation(heights, [(x, y)], [(column, row)], paths=True, **given)
    height = np.nan_to_num(level[row, column], nan=np.inf)
    assert found["elevation"].values.item() == height
    if np.isfinite(height):
        cells = found["path_y"].values.astype(int), found["path_x"].values.astype(int)
        assert heights[cells].max() == height
    for table in (og.peaks, og.depressions):
        one, whole = table(heights, **given), table(heights, **given | {"tile": 64})
        xr.testing.assert_identical(one, whole)
        if seed % 2:  # where no heights tie
            rolled = table(case.rolled(heights), **given)
            for name in {"elevation", "prominence", "volume", "spill_elevation"} & set(one):
                np.testing.assert_array_equal(*(np.sort(t[name].values) for t in (one, rolled)))


@pytest.mark.parametrize("method", ["keep", "fill", "breach"])
@pytest.mark.parametrize("seed", SEEDS)
def test_directions_are_steepest_and_roll(seed: int, method: str) -> None:
    case = Case(seed)
    heights = case.heights(distinct=bool(seed % 2))
    for flats in ("nearest", "gradient"):
        given: dict[str, Any] = {"depressions": method, "flats": flats}
        found = og.flow_direction(heights, **given, **case.options)["direction"].values
        whole = og.flow_direction(heights, **given, wrap=True)["direction"].values
        np.testing.assert_array_equal(found, whole)
        if method != "breach" or seed % 2:  # trenches of flats begin at their first cell
            rolled = og.flow_direction(case.rolled(heights), **given, **case.options)
            np.testing.assert_array_equal(rolled["direction"].values, case.rolled(found))
    if method != "keep" or not seed % 2:
        return
    for y, x in np.argwhere(np.isfinite(heights)).tolist():
        steepest, code, beyond = 0.0, 0, 0
        for step, row, column in around(case.shape, (y, x)):
            if 0 <= row < case.shape[0] and np.isfinite(heights[row, column]):
                slope = (heights[y, x] - heights[row, column]) * (1 / np.hypot(*STEPS[step]))
                if slope > steepest:
                    steepest, code = slope, step
            else:
                beyond = beyond or step
        assert found[y, x] == (code or beyond)


@pytest.mark.filterwarnings("ignore:.*(have no line|no link was found)")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_follows_from_directions_is_that_of_walks(seed: int) -> None:
    case = Case(seed)
    heights = case.heights(distinct=bool(seed % 2))
    valid = np.isfinite(heights)
    direction = og.flow_direction(heights, **case.options)
    codes = direction["direction"].values
    count, longest = np.where(valid, 0, -1), np.zeros(case.shape)
    distance, ends = np.full(case.shape, np.nan), {}
    for y, x in np.argwhere(valid).tolist():
        at, length = (y, x), 0.0
        while True:
            count[at] += 1
            longest[at] = max(longest[at], length)
            dy, dx = STEPS.get(int(codes[at]), (0, 0))
            to = at[0] + dy, (at[1] + dx) % case.shape[1]
            if to == at or not 0 <= to[0] < case.shape[0] or not valid[to]:
                break
            at, length = to, length + float(np.hypot(dy, dx))
        ends[y, x], distance[y, x] = at, length
    # what reads directions knows that they wrap
    accumulation = og.flow_accumulation(direction, tile=case.tile)
    assert accumulation["accumulation"].attrs["wraps"] == "x"
    np.testing.assert_array_equal(accumulation["accumulation"].values, count)
    of_heights = og.flow_accumulation(heights, method="d8", **case.options)
    np.testing.assert_array_equal(of_heights["accumulation"].values, count)
    number = {end: n for n, end in enumerate(sorted(set(ends.values())), 1)}
    basins = og.watersheds(direction, tile=case.tile)["watershed"].values
    assert all(basins[cell] == number[end] for cell, end in ends.items())
    found = og.flow_distance(direction, tile=case.tile)["distance"].values
    np.testing.assert_allclose(found, distance, atol=1e-5)
    found = og.upstream_length(direction, tile=case.tile)["length"].values
    np.testing.assert_allclose(found[valid], longest[valid], atol=1e-5)
    network = og.streams(direction, accumulation, 2, tile=case.tile)
    xr.testing.assert_identical(network, og.streams(direction, accumulation, 2, tile=64))
    if (network["length"] > 0).any():
        lines = og.stream_lines(network)
        assert max((line.length for line in lines.geometry), default=0) < 1.5 * heights.size
    for method in ("dinf", "mfd"):
        one, whole, rolled = (
            og.flow_accumulation(given, method=method, wrap=True, tile=tile)["accumulation"].values
            for given, tile in (
                (heights, case.tile),
                (heights, 64),
                (case.rolled(heights), case.tile),
            )
        )
        np.testing.assert_array_equal(one, whole)
        np.testing.assert_array_equal(rolled, case.rolled(one))


def globe(columns: int = 36, rows: int = 17, first: float = -175.0) -> xr.DataArray:
    """Return a global raster of heights without poles."""
    step = 360 / columns
    coords = {"lat": 80 - 10.0 * np.arange(rows), "lon": first + step * np.arange(columns)}
    heights = np.random.default_rng(2).random((rows, columns)).astype(np.float32) + 1
    raster = xr.DataArray(heights, coords, ("lat", "lon"), "heights")
    return raster.rio.write_crs("EPSG:4326")


def test_walking_times_and_lengths_are_those_of_a_rolled_globe() -> None:
    raster = globe()
    moved = raster.roll(lon=7, roll_coords=True)
    moved = moved.assign_coords(lon=raster.lon)
    at = [(float(raster.lon[3]), 10.0)]
    there = [(float(raster.lon[10]), 10.0)]
    one = og.walking_time(raster, at, wrap=True, tile=8)["time"]
    other = og.walking_time(raster.roll(lon=7, roll_coords=False), there, wrap=True)["time"]
    np.testing.assert_array_equal(np.roll(one.values, 7, axis=1), other.values)
    assert np.isfinite(one.values).all()


@pytest.mark.parametrize("kind", [".zarr", ".nc", ".tif"])
def test_files_keep_that_a_result_wraps(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"direction{kind}"
    og.flow_direction(globe(), wrap=True, out=path, tile=16)
    found = og.flow_accumulation(path)["accumulation"]
    assert found.attrs["wraps"] == "x"
    expected = og.flow_accumulation(og.flow_direction(globe(), wrap=True))["accumulation"]
    np.testing.assert_array_equal(found.values, expected.values)


def test_two_workers_find_the_same_on_any_tiles(tmp_path: Path) -> None:
    raster = globe(72)
    at, both = [(100.0, 20.0)], ("cost", "allocation", "back_direction")
    with cluster(2, dashboard_address=None) as client:
        options: dict[str, Any] = {"wrap": True, "tile": 4, "client": client}
        og.cost_distance(raster, at, outputs=both, out=tmp_path / "cost.zarr", **options)
        og.fill_depressions(raster, out=tmp_path / "filled.zarr", **options)
        og.flow_direction(raster, out=tmp_path / "flow.zarr", **options)
        og.connected_components(raster > 1.5, out=tmp_path / "parts.zarr", **options)
    kept = {
        name: og.open(tmp_path / f"{name}.zarr") for name in ("cost", "filled", "flow", "parts")
    }
    found = {
        "cost": og.cost_distance(raster, at, outputs=both, wrap=True),
        "filled": og.fill_depressions(raster, wrap=True),
        "flow": og.flow_direction(raster, wrap=True),
        "parts": og.connected_components(raster > 1.5, wrap=True),
    }
    for name, expected in found.items():
        kept = og.open(tmp_path / f"{name}.zarr")
        for variable in expected.data_vars:
            np.testing.assert_array_equal(kept[variable].values, expected[variable].values)


def test_a_path_over_the_seam_is_cut_there() -> None:
    raster = globe()
    result = og.cost_distance(raster, [(-165, 10)], outputs=("cost", "back_direction"), wrap=True)
    (path,) = og.least_cost_path(result, [(165, 10)])
    assert path.geometry.geom_type == "MultiLineString"
    assert path.line[:, 0].max() > 180
    assert path.length < 5e6
    shape = path.__geo_interface__["geometry"]
    assert shape["type"] == "MultiLineString"
    assert all(-180 <= x <= 180 for part in shape["coordinates"] for x, _ in part)


def test_centroids_and_boxes_of_components_over_the_seam() -> None:
    classes = np.zeros((3, 10), "u1")
    classes[1, [9, 0, 1]] = 1
    classes[2, 4:6] = 1
    table = og.component_table(og.connected_components(classes, wrap=True))
    assert table[["cells", "left", "right"]].values.tolist() == [[3, 9, 12], [2, 4, 6]]
    assert table["x"].tolist() == [0.0, 4.5]


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_over_the_seam_are_as_narrow_as_those_of_the_cells(seed: int) -> None:
    case = Case(seed)
    classes = case.random.integers(0, 3, case.shape)
    classes[:, 2::5] = 0
    result = og.connected_components(
        classes, outputs=("labels", "component_box"), connectivity=case.connectivity, **case.options
    )
    boxes = og.component_table(result)[["top", "left", "bottom", "right"]]
    np.testing.assert_array_equal(result["component_box"].values, boxes.values)


@pytest.mark.parametrize(
    ("raster", "said"),
    [
        (globe().isel(lon=slice(0, 30)), "span 300 degrees"),
        (globe(37, first=-180).assign_coords(lon=-180 + 10.0 * np.arange(37)), "repeats the first"),
        (np.ones((4, 2)), "it takes 3"),
    ],
)
def test_rasters_that_cannot_wrap_are_refused(raster: Any, said: str) -> None:
    with pytest.raises(og.InputError, match=said):
        og.fill_depressions(raster, wrap=True)


def test_longitudes_of_single_precision_wrap() -> None:
    raster = globe(2160)
    raster = raster.assign_coords(lon=raster.lon.astype(np.float32).astype(np.float64))
    cost = og.cost_distance(raster, [(0.1, 10)], wrap=True)["cost"].values
    other = og.cost_distance(globe(2160), [(0.1, 10)], wrap=True)["cost"].values
    np.testing.assert_array_equal(cost, other)  # a column is a 2160th of a turn in both


def test_a_global_raster_gets_one_warning() -> None:
    with pytest.warns(RuntimeWarning, match="goes around the globe") as said:
        og.flow_direction(globe())
    assert len(said) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda raster, **wrap: og.cost_distance(
            raster, [(5, 10)], cost="eikonal", cell_size=1, **wrap
        ),
        lambda raster, **wrap: og.cost_distance.plan(
            raster, [(5, 10)], cost="eikonal", cell_size=1, **wrap
        ),
    ],
)
def test_operations_that_do_not_go_around_refuse_it(call: Any) -> None:
    with pytest.raises(og.InputError, match=r"wrap: \w+ does not go around"):
        call(globe(), wrap=True)
    marked = globe().assign_attrs(wraps="x")
    with pytest.raises(og.InputError, match="pass wrap=False"), xr.set_options(keep_attrs=True):
        call(marked)
    call(globe(), wrap=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_areas_are_cut_at_the_seam_and_are_those_of_components(seed: int) -> None:
    case = Case(seed)
    classes = case.random.integers(0, 3, case.shape)
    layer = og.polygonize(classes, parts=True, **case.options)
    whole = og.polygonize(classes, parts=True, wrap=True)
    assert [g.wkt for g in layer.geometry] == [g.wkt for g in whole.geometry]
    for value in range(3):
        parts = og.connected_components(
            classes == value, connectivity=4, wrap=True, outputs=("labels", "component_size")
        )
        of_value = zip(layer.geometry, layer.columns["label"], strict=True)
        areas = sorted(round(area.area) for area, label in of_value if label == value)
        assert areas == sorted(parts["component_size"].values.tolist())
    of_labels, cut = og.polygonize(classes, wrap=True), og.polygonize(classes, wrap=False)
    assert [g.wkt for g in of_labels.geometry] == [g.wkt for g in cut.geometry]


@pytest.mark.parametrize("polygons", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_bands_and_lines_of_costs_are_those_of_a_rolled_raster(seed: int, polygons: bool) -> None:
    case = Case(seed)
    costs = case.heights(distinct=seed % 3 > 0)
    if seed % 2:  # all cells have a value
        costs = np.nan_to_num(costs)
    levels = np.sort(case.random.choice(np.linspace(0, 1 if seed % 3 else 6, 13), 4, replace=False))
    given: dict[str, Any] = {"polygons": polygons, **case.options}
    size = shapely.area if polygons else shapely.length
    for parts in (False, True):
        layer = og.isochrones(costs, levels, parts=parts, **given)
        whole = og.isochrones(costs, levels, parts=parts, **given | {"tile": 64})
        assert [g.wkb for g in layer.geometry] == [g.wkb for g in whole.geometry]
        assert shapely.is_valid(layer.geometry).all()
        rolled = og.isochrones(case.rolled(costs), levels, parts=parts, **given)
        name = "upper" if polygons else "level"
        one, other = (
            sorted(zip(found.columns[name], size(found.geometry).tolist()))
            for found in (layer, rolled)
        )
        # as many parts, as those at the seam are one
        np.testing.assert_allclose(one, other, 1e-9, 1e-9)
        ends = shapely.bounds(layer.geometry).reshape(-1, 4)[:, [0, 2]]
        assert ((ends >= -0.5) & (ends <= case.shape[1] - 0.5)).all()
        if not polygons and seed % 2:
            # no line ends at one side of the seam alone
            rings = shapely.boundary(layer.geometry)
            x, y = shapely.get_coordinates(rings).T
            # but at the first and the last row, where a line may meet the corner of the grid
            inside = (y > -0.5) & (y < case.shape[0] - 0.5)
            west, east = (np.sort(y[inside & (x == end)]) for end in (-0.5, case.shape[1] - 0.5))
            np.testing.assert_array_equal(west, east)


def test_bands_of_a_globe_are_cut_at_the_date_line() -> None:
    raster = globe()
    cost = og.cost_distance(raster, [(178, 10)], wrap=True)["cost"]
    bands = og.isochrones(cost, [2e6, 5e6], parts=True)  # costs that wrap have bands that do
    first = bands.geometry[0]
    assert first.geom_type == "MultiPolygon"
    assert shapely.bounds(first)[[0, 2]].tolist() == [-180, 180]
    assert not any(part.bounds[0] < 0 < part.bounds[2] for part in first.geoms)
    (line, *_) = og.isochrones(cost, [2e6], polygons=False, parts=True).geometry
    assert line.geom_type == "MultiLineString"
    moved = og.isochrones(
        cost.roll(lon=18, roll_coords=False), [2e6, 5e6], parts=True, wrap=True, tile=5
    )
    np.testing.assert_allclose(shapely.area(bands.geometry[:1]), shapely.area(moved.geometry[:1]))


@pytest.mark.filterwarnings("ignore:.*no link was found")
@pytest.mark.parametrize("connectivity", [4, 8, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_links_of_regions_are_those_of_an_explicit_graph(seed: int, connectivity: int) -> None:
    case = Case(seed, 2 if connectivity == 16 else 1)
    friction = 0.1 + case.random.random(case.shape)
    friction[case.random.random(case.shape) < 0.2] = np.nan
    friction.flat[0] = 1
    regions = np.zeros(case.shape, int)
    valid = np.argwhere(np.isfinite(friction))
    count = min(len(valid), int(case.random.integers(1, 7)))
    for label, (y, x) in enumerate(case.random.permutation(valid)[:count].tolist(), 1):
        regions[y, x : x + 2] = label
        if x + 1 == case.shape[1]:
            regions[y, 0] = label  # one region over the seam
    regions[np.isnan(friction)] = 0
    given: dict[str, Any] = {"connectivity": connectivity, **case.options}
    near = np.full((count + 1, *case.shape), np.inf)
    for label in range(1, count + 1):
        for cell in np.argwhere(regions == label).tolist():
            costs = costs_from(friction, (cell[0], cell[1]), connectivity)
            near[label] = np.fmin(near[label], costs)
    zone, cost = near.argmin(0).ravel(), near.min(0).ravel()
    links: dict[tuple[int, int], float] = {}
    for (a, b), step in step_costs(friction, connectivity).items():
        if zone[a] != zone[b] and zone[a] and zone[b]:
            pair = min(zone[a], zone[b]), max(zone[a], zone[b])
            links[pair] = min(links.get(pair, np.inf), cost[a] + step + cost[b])
    for a, b in links:  # of paths through all zones
        links[a, b] = near[a][regions == b].min()
    layer = og.region_network(friction, regions, connections="neighbours", **given)
    assert list(zip(layer.columns["from"], layer.columns["to"])) == sorted(links)
    np.testing.assert_allclose(layer.columns["cost"], [links[p] for p in sorted(links)], 1e-12)
    whole = og.region_network(friction, regions, connections="neighbours", **given | {"tile": 64})
    assert [g.wkb for g in layer.geometry] == [g.wkb for g in whole.geometry]
    for connections in ("mst", "neighbours"):
        one, other = (
            og.region_network(*rasters, connections=connections, **given).columns
            for rasters in (
                (friction, regions),
                (case.rolled(friction), case.rolled(regions)),
            )
        )
        for name in ("from", "to", "cost", "length"):
            np.testing.assert_array_equal(one[name], other[name])
        around = (one["from_col"] + case.roll) % case.shape[1]
        np.testing.assert_array_equal(around, other["from_col"])


def test_links_of_regions_are_cut_at_the_seam() -> None:
    layer = og.region_network(globe(), [(-165, 10), (165, 10)], wrap=True)
    (line,), (length,) = layer.geometry, layer.columns["length"]
    assert line.geom_type == "MultiLineString"
    assert length < 5e6


def test_of_links_of_equal_cost_the_first_in_the_raster_is_chosen() -> None:
    regions = np.zeros((1, 8), int)
    regions[0, [5, 1]] = 1, 2
    for tile in (3, 64):
        layer = og.region_network(np.ones((1, 8)), regions, wrap=True, tile=tile)
        assert layer.columns["cost"].tolist() == [4]  # from column 3, and from 7 over the seam
        assert [int(layer.columns[name][0]) for name in ("from_col", "to_col")] == [3, 2]


def test_a_last_tile_narrower_than_a_step_is_refused() -> None:
    with pytest.raises(og.InputError, match="pass another tile="):
        og.cost_distance(np.ones((5, 9)), [(0, 0)], connectivity=16, tile=4, wrap=True)


def test_a_plan_knows_the_seam() -> None:
    flat, round_ = (
        og.fill_depressions.plan(og.RasterSpec((400, 900), "float32"), tile=100, wrap=wrap)
        for wrap in (False, True)
    )
    assert round_.tiles == flat.tiles
    assert og.cost_distance.plan(np.ones((40, 90)), wrap=True).tasks > 0
    assert og.DistanceIndex.build.plan(globe(), wrap=True).tasks > 0  # without a warning
    with pytest.raises(og.InputError, match="span 300 degrees"):
        og.DistanceIndex.build.plan(globe().isel(lon=slice(0, 30)), wrap=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_gpu_finds_the_same(seed: int, emulated_gpu: Emulator) -> None:
    case = Case(seed, 2)
    heights = case.heights(distinct=True)
    y, x = case.cell(np.isfinite(heights))
    both = ("cost", "back_direction", "allocation")
    calls: tuple[Callable[..., xr.Dataset], ...] = (
        lambda **o: og.cost_distance(heights, [(x, y)], outputs=both, **o),
        lambda **o: og.cost_distance(heights, [(x, y)], connectivity=16, dtype="float32", **o),
        lambda **o: og.hop_distance(heights > 0.5, [(x, y)], snap=20, **o),
        lambda **o: og.minimum_spanning_forest(heights, **o),
        lambda **o: og.connected_components(heights > 0.5, **o),
        lambda **o: og.fill_depressions(heights, **o),
        lambda **o: og.flow_accumulation(heights, method="d8", **o),
    )
    for solve, options in itertools.product(calls, (case.options, {"wrap": True})):
        launched = emulated_gpu.launches
        found = solve(backend="cuda", **options)
        assert emulated_gpu.launches > launched
        xr.testing.assert_identical(found, solve(backend="numba", **options))


@pytest.mark.parametrize("block", [4, 16])
def test_an_index_on_a_gpu_goes_around(block: int, emulated_gpu: Emulator, tmp_path: Path) -> None:
    case = Case(1)
    friction = 0.1 + case.random.random(case.shape)
    points = [(x, y) for y, x in (case.cell(friction > 0) for _ in range(6))]
    given: dict[str, Any] = {"wrap": True, "block": block, "levels": 0}
    of_cpu = og.DistanceIndex.build(friction, tmp_path / "cpu.zarr", backend="numba", **given)
    launched = emulated_gpu.launches
    og.DistanceIndex.build(friction, tmp_path / "gpu.zarr", backend="cuda", **given)
    of_gpu = og.DistanceIndex.open(tmp_path / "gpu.zarr", backend="cuda")
    table = of_gpu.distance_matrix(points).values
    assert emulated_gpu.launches > launched
    np.testing.assert_array_equal(table, of_cpu.distance_matrix(points).values)


@pytest.mark.parametrize("operation", ["cost", "flow", "poles"])
def test_a_killed_worker_is_made_up_for(operation: str, gate: Gate, tmp_path: Path) -> None:
    heights = 1 + fractal(90)[:70] / 100
    calls: dict[str, Callable[..., xr.Dataset]] = {
        "cost": lambda given, **o: call(og.cost_distance, given, [(3, 3)], wrap=True, **o),
        "flow": lambda given, **o: call(og.flow_direction, given, wrap=True, **o),
        "poles": lambda given, **o: call(
            *(og.cost_distance, given, [(3, 80)]), outputs=ALL, wrap=True, poles=True, **o
        ),
    }
    if operation == "poles":
        heights = polar(heights)
    cut, out = {"tile": TILE, "shard": SHARD}, tmp_path / "out.zarr"
    expected = calls[operation](heights, **cut)
    og.ingest(heights, tmp_path / "heights.zarr", **cut)
    gate.shut(after=6)
    raster = WatchedRaster(tmp_path / "heights.zarr", tmp_path / "read.txt", gate=gate)
    with mortal_cluster(2) as of_workers, Client(of_workers, set_as_default=False) as client:
        client.wait_for_workers(2)
        run = calls[operation](raster, client=client, out=out, verb="submit", **cut)
        wait_until(gate.held, lambda run=run: run.status == "running")
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        gate.open()
        found = run.result(timeout=120)
    for name in expected.data_vars:
        np.testing.assert_array_equal(found[name].values, expected[name].values)


def polar(values: np.ndarray[Any, Any], ends: str = "NS") -> xr.DataArray:
    """Return values on a global grid whose first row is at the first end, its last at the second.

    An end is a pole, by its letter, or else at a latitude of 60 degrees.
    """
    latitudes = {"N": 90, "S": -90, "n": 60, "s": -60}
    (first, last), (height, width) = (latitudes[end] for end in ends), values.shape
    lat = first + (last - first) * (np.arange(height) + 0.5) / height
    lon = -180 + 360 * (np.arange(width) + 0.5) / width
    raster = xr.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), "values")
    return raster.rio.write_crs("EPSG:4326")


def edges_over_poles(shape: tuple[int, int], ends: str) -> Iterator[tuple[int, int, int]]:
    """Yield both ends, row-major, and the code of each edge over a pole that a grid touches."""
    height, width = shape
    for row, end in zip((0, height - 1), ends, strict=True):
        if end in "NS":
            for column in range(width // 2):
                cell = row * width + column
                yield cell, cell + width // 2, 7 if end == "N" else 3


class PolarCase(Case):
    """A random grid that touches one pole, or both, in either order of rows."""

    def __init__(self, seed: int, widest_step: int = 1) -> None:
        super().__init__(seed, widest_step)
        self.shape = max(self.shape[0], 2), self.shape[1] + self.shape[1] % 2
        if (self.shape[1] % self.tile or self.tile) < widest_step:
            self.tile = widest_step
        self.ends = ("NS", "SN", "Ns", "nS", "sN")[seed % 5]
        self.options["tile"], self.options["poles"] = self.tile, True


@pytest.mark.parametrize("connectivity", [4, 8, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_costs_and_paths_over_poles_are_those_of_an_explicit_graph(
    seed: int, connectivity: int
) -> None:
    case = PolarCase(seed, 2 if connectivity == 16 else 1)
    friction = 0.1 + case.random.random(case.shape)
    if seed % 2:
        friction = np.ceil(3 * friction)  # ties
    friction[case.random.random(case.shape) < 0.2] = np.nan
    friction.flat[0] = 1
    y, x = case.cell(np.isfinite(friction))
    raster, flat, width = polar(friction, case.ends), friction.ravel(), case.shape[1]
    at = [(float(raster.lon[x]), float(raster.lat[y]))]
    given: dict[str, Any] = {"connectivity": connectivity, "cell_size": 1, **case.options}
    result = og.cost_distance(raster, at, outputs=ALL, **given)
    least, codes = step_costs(friction, connectivity), {}
    for a, b, code in edges_over_poles(case.shape, case.ends):
        cost = (flat[a] + flat[b]) / 2
        if np.isfinite(cost):
            least[a, b] = min(least.get((a, b), np.inf), cost)
            codes[a, b] = codes[b, a] = code
    ends = np.array(list(least), int).reshape(-1, 2).T
    graph = coo_matrix((list(least.values()), tuple(ends)), (friction.size, friction.size))
    expected = dijkstra(graph.tocsr(), directed=False, indices=y * width + x)
    expected = np.where(np.isinf(expected), np.nan, expected).reshape(case.shape)
    cost = result["cost"].values
    np.testing.assert_allclose(cost, expected, 1e-12)
    whole = og.cost_distance(raster, at, outputs=ALL, **given | {"tile": 64})
    xr.testing.assert_identical(result, whole)
    # upside down, all is the same upside down
    turned = og.cost_distance(raster[::-1], at, outputs=ALL, **given)
    for name in ALL[:2]:
        np.testing.assert_array_equal(turned[name].values[::-1], result[name].values)
    source = [(float(raster.lon[(x + case.roll) % width]), at[0][1])]
    rolled = polar(case.rolled(friction), case.ends)
    rolled = og.cost_distance(rolled, source, **given)["cost"].values
    np.testing.assert_array_equal(rolled, case.rolled(cost))
    back = result["back_direction"].values.ravel()
    reached = np.argwhere(np.isfinite(cost))
    places = [(float(raster.lon[j]), float(raster.lat[i])) for i, j in reached]
    for path in og.least_cost_path(result, places):
        steps = list(itertools.pairwise((path.cells @ [width, 1]).tolist()))
        assert sum(least[min(s), max(s)] for s in steps) == pytest.approx(path.cost, rel=1e-12)
        over = [s for s in steps if s in codes and back[s[0]] == codes[s]]
        # to the pole, along it to the other meridian, and away
        assert np.count_nonzero(np.abs(path.line[:, 1]) == 90) == 2 * len(over)
        assert path.cells[-1].tolist() == [y, x]


@pytest.mark.parametrize("seed", SEEDS)
def test_hops_and_ways_over_poles_are_those_of_an_explicit_graph(seed: int) -> None:
    case = PolarCase(seed)
    mask = case.random.random(case.shape) < 0.7
    mask.flat[:2] = True
    y, x = case.cell(mask)
    raster, flat, width = polar(mask, case.ends), mask.ravel(), case.shape[1]
    every = itertools.chain(
        edges(case.shape, case.connectivity), edges_over_poles(case.shape, case.ends)
    )
    joined = {(min(a, b), max(a, b)) for a, b, _ in every if flat[a] and flat[b]}
    a, b = np.array(list(joined), int).reshape(-1, 2).T
    graph = coo_matrix((np.ones(a.size), (a, b)), (mask.size, mask.size)).tocsr()
    hops = dijkstra(graph, directed=False, indices=y * width + x, unweighted=True)
    hops = np.where(np.isinf(hops), -1, hops).reshape(case.shape)
    given: dict[str, Any] = {"connectivity": case.connectivity, **case.options}
    at = (float(raster.lon[x]), float(raster.lat[y]))
    found = og.hop_distance(raster, [at], **given)["hops"].values
    np.testing.assert_array_equal(found, np.where(mask, hops, -1))
    others = np.argwhere(mask)[:: max(int(mask.sum()) // 5, 1)].tolist()
    for some in (others[-1:], others):
        ends = [(float(raster.lon[j]), float(raster.lat[i])) for i, j in some]
        reach = og.is_connected(raster, at, ends, **given)
        whole = og.is_connected(raster, at, ends, **given | {"tile": 64})
        assert reach.hops is not None
        assert reach.paths is not None
        assert whole.paths is not None
        assert reach.hops.tolist() == [hops[row, column] for row, column in some]
        for path, same in zip(reach.paths, whole.paths, strict=True):
            assert path == same
            if path is not None:
                steps = itertools.pairwise((path.cells @ [width, 1]).tolist())
                assert all((min(s), max(s)) in joined for s in steps)


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_components_over_poles_are_those_of_an_explicit_graph(seed: int, least: int) -> None:
    case = PolarCase(seed)
    classes = case.random.integers(0, 3, case.shape)
    flat = classes.ravel()
    every = itertools.chain(
        edges(case.shape, case.connectivity), edges_over_poles(case.shape, case.ends)
    )
    same = [(a, b) for a, b, _ in every if flat[a] == flat[b] != 0]
    a, b = np.array(same, int).reshape(-1, 2).T
    _, found = connected_components(coo_matrix((np.ones(a.size), (a, b)), (flat.size, flat.size)))
    sizes = np.bincount(found)
    kept = (flat != 0) & (sizes[found] >= least)
    number: dict[int, int] = {}
    expected = [number.setdefault(n, len(number) + 1) if k else 0 for n, k in zip(found, kept)]
    table = ("labels", "component_size")
    result = og.connected_components(
        polar(classes, case.ends),
        connectivity=case.connectivity,
        min_size=least,
        outputs=table,
        **case.options,
    )
    np.testing.assert_array_equal(result["labels"].values.ravel(), expected)
    counted = np.bincount(expected, minlength=len(number) + 1)[1:]
    np.testing.assert_array_equal(result["component_size"].values, counted)


@pytest.mark.parametrize("ends", ["NS", "SN"])
def test_a_step_over_a_pole_is_twice_as_long_as_to_the_pole(ends: str) -> None:
    raster = polar(np.ones((18, 36)), ends)
    cost = og.cost_distance(raster, [(5, 85)], wrap=True, poles=True)["cost"]
    to_the_pole = Geod(ellps="WGS84").inv(5, 85, 5, 90)[2]
    assert float(cost.sel(lon=-175, lat=85)) == pytest.approx(2 * to_the_pole, rel=1e-12)
    # a model that depends on direction counts it up or down
    hill = raster.copy()
    hill.loc[{"lon": -175, "lat": 85}] = 50_000
    up, down = (
        og.walking_time(hill, [(5, 85)], wrap=True, poles=True, travel=travel)["time"]
        for travel in ("from", "to")
    )
    assert up.sel(lon=-175, lat=85) > down.sel(lon=-175, lat=85)


def test_steps_over_poles_go_with_links_barriers_and_strengths() -> None:
    raster = polar(np.ones((6, 12)))
    first, last = 3, 5 * 12 + 4
    bridge = og.read_graph(coo_matrix(([0.5], ([first], [last])), (72, 72)), directed=False)
    at = [(float(raster.lon[9]), float(raster.lat[0]))]
    wall = (raster * 0).astype("u1")
    wall[0, [8, 10]] = 1
    wall[1] = 1
    given: dict[str, Any] = {"wrap": True, "poles": True, "cell_size": 1, "barriers": wall}
    ways = ("cost", "back_direction")
    found = og.cost_distance(raster, at, links=bridge, outputs=ways, tile=4, **given)
    # over the pole, 1, and along the bridge
    assert found["cost"].values[5, 4] == 1.5
    assert found["back_direction"].values[0, 3] == 7
    assert found["back_direction"].values[5, 4] == 17
    assert found["back_link"].values[5, 4] == 0
    assert (found["back_link"].values[0] == -1).all()
    assert found.attrs["links"] == 2
    (path,) = og.least_cost_path(found, [(float(raster.lon[4]), float(raster.lat[5]))])
    assert path.cells.tolist() == [[5, 4], [0, 3], [0, 9]]
    assert np.count_nonzero(path.line[:, 1] == 90) == 2
    strong = og.cost_distance(
        raster, at, outputs=ALL, tile=4, source_cost={"multiplier": 2.0}, **given
    )
    assert strong["cost"].values[0, 3] == 2
    assert "back_link" not in strong


@pytest.mark.parametrize("kind", [".zarr", ".nc", ".tif"])
def test_files_keep_that_paths_lead_over_poles(kind: str, tmp_path: Path) -> None:
    raster = polar(1 + np.random.default_rng(3).random((18, 36)))
    options: dict[str, Any] = {"wrap": True, "poles": True, "outputs": ("cost", "back_direction")}
    expected = og.cost_distance(raster, [(5, 85)], **options)
    there = [(-175, 75)]
    if kind == ".tif":
        paths = []
        for name in options["outputs"]:
            flat = expected[name].rename(lat="y", lon="x")
            flat.rio.to_raster(tmp_path / f"{name}{kind}")
            paths.append(tmp_path / f"{name}{kind}")
        kept: Any = paths
    else:
        og.cost_distance(raster, [(5, 85)], out=tmp_path / f"cost{kind}", **options)
        kept = tmp_path / f"cost{kind}"
    assert og.least_cost_path(kept, there) == og.least_cost_path(expected, there)
    # in a part that ends before the pole nothing leads over it
    part = expected.isel(lat=slice(1, None))
    with pytest.raises(og.InputError, match="it is a part of a result"):
        og.least_cost_path(part, there)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: og.hop_distance(polar(np.ones((4, 8))), [(0, 0)], poles=True), "pass wrap=True"),
        (
            lambda: og.connected_components(polar(np.ones((4, 9))), wrap=True, poles=True),
            "9 columns",
        ),
        (
            lambda: og.hop_distance(polar(np.ones((4, 8)), "ns"), [(0, 0)], wrap=True, poles=True),
            "lat goes from 45 to -45 in 4 rows",
        ),
        (lambda: og.connected_components(np.ones((4, 8)), wrap=True, poles=True), "no latitudes"),
        (
            lambda: og.connected_components(
                polar(np.ones((5, 8))).assign_coords(lat=np.linspace(90, -90, 5)),
                wrap=True,
                poles=True,
            ),
            "lat goes from 90 to -90",
        ),
        (
            lambda: og.cost_distance(
                *(polar(np.ones((4, 8))), [(0, 0)]), cost="eikonal", poles=True, wrap=True
            ),
            "poles: True with cost='eik",
        ),
        (
            lambda: og.connected_components.plan(
                og.RasterSpec((4, 8), "u1"), wrap=True, poles=True
            ),
            "poles: a RasterSpec",
        ),
    ],
)
def test_poles_that_cannot_be_joined_are_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(og.InputError, match=said):
        call()


def test_operations_without_poles_refuse_them_by_name() -> None:
    for operation in (og.fill_depressions, og.flow_direction, og.minimum_spanning_forest):
        with pytest.raises(TypeError, match="unexpected keyword argument 'poles'"):
            call(operation, polar(np.ones((4, 8))), wrap=True, poles=True)


def test_a_plan_takes_poles() -> None:
    raster = polar(np.ones((40, 90)))
    flat, joined = (
        og.connected_components.plan(raster, wrap=True, poles=poles, tile=10)
        for poles in (False, True)
    )
    assert joined.tiles == flat.tiles
    assert joined.memory_per_worker >= flat.memory_per_worker
    assert og.cost_distance.plan(raster, wrap=True, poles=True).tasks > 0
    assert og.is_connected.plan(raster, wrap=True, poles=True).tiles > 0


@pytest.mark.parametrize("seed", range(2))
def test_a_gpu_finds_the_same_over_poles(seed: int, emulated_gpu: Emulator) -> None:
    case = PolarCase(seed)
    raster = polar(1 + case.random.random(case.shape), case.ends)
    at = [(float(raster.lon[1]), float(raster.lat[0]))]
    calls: tuple[Callable[..., xr.Dataset], ...] = (
        lambda **o: og.cost_distance(raster, at, outputs=ALL, **o),
        lambda **o: og.hop_distance(raster > 1.3, at, snap=20, **o),
        lambda **o: og.connected_components(raster > 1.5, **o),
    )
    for solve in calls:
        launched = emulated_gpu.launches
        found = solve(backend="cuda", **case.options)
        assert emulated_gpu.launches > launched
        xr.testing.assert_identical(found, solve(backend="numba", **case.options))
