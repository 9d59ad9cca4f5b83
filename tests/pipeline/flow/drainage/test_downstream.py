"""Statistics of the cells downstream are those of plain walks, whatever the tiling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import oracle_flow as oracle
import pytest
import xarray as xr
from distributed import Client
from pyproj import CRS
from terrain_cases import fractal

import orograph as og
from orograph.flow.drainage import downstream as module

SEEDS = [*range(6), *(pytest.param(n, marks=pytest.mark.long) for n in range(6, 90))]
STATISTICS = ("outlet", "mean", "min", "max")
Cell = tuple[int, int]


def on_the_way(
    below: dict[Cell, Cell | None], streams: np.ndarray | None
) -> dict[Cell, list[Cell]]:
    """Return the cells from each cell to the end of its path; none if it reaches no stream."""
    found = {}
    for cell in below:
        path, on = [], cell
        while on is not None:
            path.append(on)
            on = None if streams is not None and streams[on] else below[on]
        ends = streams is None or streams[path[-1]]
        found[cell] = path if ends else []
    return found


def expected(
    paths: dict[Cell, list[Cell]],
    values: xr.DataArray,
    distances: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the statistics of each path; steps are as long as distances to its end differ by."""
    found = {name: np.full(values.shape, np.nan) for name in STATISTICS}
    nodata = values.attrs["_FillValue"]

    def value(cell: Cell) -> float:
        one = values.values[cell]
        return math.nan if one == nodata or not np.isfinite(one) else float(one)

    for cell, path in paths.items():
        known = [value(c) for c in path if not math.isnan(value(c))]
        if not path:
            continue
        found["outlet"][cell] = value(path[-1])
        if not known:
            continue
        found["min"][cell], found["max"][cell] = min(known), max(known)
        lengths, sums = Fraction(0), Fraction(0)
        for here, there in pairwise(path):
            length = Fraction(distances[here]) - Fraction(distances[there])
            if not math.isnan(value(here)):
                lengths += length
                # the product is a float, and what is smaller than a multiple of 2**-62 is rounded
                sums += Fraction(round(Fraction(float(length) * value(here)) * 2**62), 2**62)
        if lengths:
            found["mean"][cell] = float(sums) / float(lengths)
        elif len(path) == 1:
            found["mean"][cell] = known[0]
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_any_tiling_gives_the_statistics_of_plain_walks(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(3, 15, 2).tolist())
    wrap, ascending = seed % 3 == 0, seed % 4 == 1
    codes, below = oracle.random_steps(random, random.random(shape) < 0.9, wrap)
    values = oracle.random_values(random, shape)
    # of products no more than 2**62 / cells fit
    values = values.clip(-(2.0**30), 2.0**30).astype(values.dtype).assign_attrs(values.attrs)
    place = {"lat": 60 - 9.0 * np.arange(shape[0]), "lon": np.arange(shape[1]) * 360 / shape[1]}
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:4326").to_wkt()})

    def on_globe(array: xr.DataArray) -> xr.DataArray:
        named = array.rename(y="lat", x="lon").assign_coords(place).assign_coords(spatial_ref=crs)
        return named.sortby("lat", ascending=ascending)

    direction = on_globe(xr.DataArray(codes, dims=("y", "x")))
    streams = None
    if seed % 2:
        streams = (random.random(shape) < 0.1) & (codes != 255)
        streams[np.nonzero(codes != 255)[0][0], np.nonzero(codes != 255)[1][0]] = True
    given = None if streams is None else on_globe(xr.DataArray(streams, dims=("y", "x")))
    options: dict[str, Any] = {"codes": "taudem", "wrap": wrap}
    distances = og.flow_distance(direction, given, **options)["distance"].values
    paths = on_the_way(below, streams)
    right = expected(paths, values, distances[::-1] if ascending else distances)
    for tile in (1, int(random.integers(2, 6)), 64):
        found = og.downstream(
            direction, on_globe(values), given, statistics=STATISTICS, tile=tile, **options
        )
        for name in STATISTICS:
            block = found[name].values[::-1] if ascending else found[name].values
            np.testing.assert_array_equal(block, right[name], err_msg=f"{name}, tile {tile}")


def test_sums_of_larger_grids_have_fewer_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids of 2**31 cells and more have fewer than 31 in each word, as 64 bits hold all sums."""
    heights = fractal(40)
    flow = og.flow_direction(heights)
    expected = og.downstream(flow, heights, statistics="mean")["mean"].values
    whole = module.Downstream
    monkeypatch.setattr(
        module, "Downstream", lambda *given, **how: replace(whole(*given, **how), digits=6)
    )
    found = [
        og.downstream(flow, heights, statistics="mean", tile=tile)["mean"].values
        for tile in (8, 64)
    ]
    assert found[0].tobytes() == found[1].tobytes()
    # of each product at most half of 2**-12 is lost, and no step is shorter than 1
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=2.0**-12)
    assert (found[0] != expected).any()


def test_the_value_at_the_outlet_is_what_heights_above_drainage_are_above() -> None:
    heights = fractal(60)
    filled = og.fill_depressions(heights)["filled"]
    flow = og.flow_direction(filled)
    streams = og.flow_accumulation(flow)["accumulation"] >= 50
    drain = og.downstream(flow, filled, streams)["outlet"]
    above = og.height_above_drainage(filled, flow, streams)["height"]
    np.testing.assert_array_equal(filled - drain, above)


@pytest.mark.parametrize("tile", [2, 16])
def test_a_value_that_is_too_large_is_named(tile: int) -> None:
    codes = np.full((4, 4), 1, np.uint8)
    values = np.ones((4, 4))
    values[2, 1] = 2.0**59
    with pytest.raises(og.InputError, match=r"values: 5.7.* row 2, column 1; a value must be 2.03"):
        og.downstream(codes, values, codes="taudem", statistics="mean", tile=tile)
    found = og.downstream(codes, values, codes="taudem", statistics="max", tile=tile)["max"]
    assert found[2, 0] == 2.0**59
    with pytest.raises(og.InputError, match="comes back to it"):
        og.downstream(codes + 4 * (np.arange(4) > 1).astype(np.uint8), values, codes="taudem")


def test_two_workers_and_a_store_give_the_same_bits(
    tmp_path: Path, clients: Callable[[int], Client]
) -> None:
    heights = fractal(150)
    flow = og.flow_direction(heights)
    alone = og.downstream(flow, heights, statistics=STATISTICS)
    og.downstream(
        *(flow, heights),
        statistics=STATISTICS,
        out=tmp_path / "down.zarr",
        tile=16,
        shard=64,
        client=clients(2),
    )
    xr.testing.assert_equal(og.open(tmp_path / "down.zarr")[list(STATISTICS)], alone)
