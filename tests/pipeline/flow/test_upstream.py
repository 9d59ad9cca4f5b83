"""Statistics of all cells upstream are those of plain loops over fractions, whatever the tiling."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import oracle_flow as oracle
import pytest
import xarray as xr
from cuda_on_cpu.emulator import Emulator
from pyproj import CRS

import orograph as og
from orograph.kernels.flow.upstream import _quotient  # type: ignore[attr-defined]

SEEDS = [*range(4), *(pytest.param(n, marks=pytest.mark.long) for n in range(4, 60))]
STATISTICS = ("count", "sum", "mean", "std", "min", "max")
SINK = 8


def listed(
    below: dict[tuple[int, int], tuple[int, int] | None],
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return all cells whose water passes each cell."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {cell: [] for cell in below}
    for cell in below:
        on: tuple[int, int] | None = cell
        while on is not None:
            found[on].append(cell)
            on = below[on]
    return found


def expected(
    above: dict[tuple[int, int], list[tuple[int, int]]],
    values: xr.DataArray,
    areas: np.ndarray | None,
) -> dict[str, np.ndarray]:
    """Return the statistics of the cells above each cell."""
    found = {name: np.full(values.shape, np.nan) for name in STATISTICS}
    found["count"] = np.full(values.shape, -1)
    nodata = values.attrs["_FillValue"]
    for cell, cells in above.items():
        known = [c for c in cells if np.isfinite(values.values[c]) and values.values[c] != nodata]
        found["count"][cell] = len(known)
        if not known:
            continue
        # what is smaller than a multiple of 2**-62 is rounded
        exact = [Fraction(round(Fraction(values.values[c].item()) * 2**62), 2**62) for c in known]
        weights = [Fraction(1 if areas is None else areas[c].item()) for c in known]
        weight, total = sum(weights), sum(w * v for w, v in zip(weights, exact, strict=True))
        squares = sum(w * v * v for w, v in zip(weights, exact, strict=True))
        found["sum"][cell] = float(total)
        found["mean"][cell] = float(total / weight)
        found["std"][cell] = math.sqrt(float((weight * squares - total**2) / weight**2))
        found["min"][cell] = min(values.values[c] for c in known)
        found["max"][cell] = max(values.values[c] for c in known)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_statistics_are_exact_on_any_tiling(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(3, 15, 2).tolist())
    wrap, ascending, weighted = seed % 3 == 0, seed % 4 == 1, seed % 2 == 1
    codes, below = oracle.random_steps(random, random.random(shape) < 0.9, wrap)
    values = oracle.random_values(random, shape)
    place = {"lat": 60 - 9.0 * np.arange(shape[0]), "lon": np.arange(shape[1]) * 360 / shape[1]}
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:4326").to_wkt()})

    def on_globe(array: xr.DataArray) -> xr.DataArray:
        named = array.rename(y="lat", x="lon").assign_coords(place).assign_coords(spatial_ref=crs)
        return named.sortby("lat", ascending=ascending)

    direction = on_globe(xr.DataArray(codes, dims=("y", "x")))
    options: dict[str, Any] = {"codes": "taudem", "wrap": wrap}
    areas = None
    if weighted:
        ends = direction.copy(data=np.zeros_like(codes))
        areas = og.flow_accumulation(ends, weights="area", **options)["accumulation"].values
        areas = areas[::-1] if ascending else areas
        options["weights"] = "area"
    options |= {"statistics": STATISTICS, "tile": int(random.choice([1, 2, 3, 5, 64]))}
    found = og.upstream(direction, on_globe(values), **options)
    assert list(found) == list(STATISTICS)
    for name, right in expected(listed(below), values, areas).items():
        result = found[name].values[::-1] if ascending else found[name].values
        assert result.dtype == right.dtype, name
        np.testing.assert_array_equal(result, right, name)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_largest_and_the_smallest_values_are_summed_exactly(weighted: bool) -> None:
    row = [
        2.0**60,
        -(2.0**60),
        2.0**-62,
        -(2.0**60),
        2.0**60 - 128,
        -(2.0**-62),
        -1.5 * 2.0**-62,
        0,
    ]
    values = xr.DataArray([row, row[::-1]], {"y": [2.0, 0.0]}, ("y", "x")) / 4
    values = values.assign_coords(x=np.arange(8.0)).assign_attrs(_FillValue=np.nan)
    codes = np.array([[1] * 7 + [7], [5] * 8], np.uint8)
    route = [(0, x) for x in range(8)] + [(1, x) for x in range(7, -1, -1)]
    above = {cell: route[: n + 1] for n, cell in enumerate(route)}
    areas = np.full(codes.shape, 2.0) if weighted else None
    weights = "area" if weighted else None
    direction = values.copy(data=codes).drop_attrs()
    options: dict[str, Any] = {"codes": "taudem", "statistics": STATISTICS, "tile": 3}
    found = og.upstream(direction, values, weights=weights, **options)
    for name, right in expected(above, values, areas).items():
        np.testing.assert_array_equal(found[name], right, name)


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_classes_are_counted(dtype: str) -> None:
    random = np.random.default_rng(7)
    codes, below = oracle.random_steps(random, random.random((11, 9)) < 0.9, wrap=False)
    kinds = random.integers(-3, 4, codes.shape).astype(dtype)
    given = xr.DataArray(kinds, dims=("y", "x"), attrs={"_FillValue": 2})
    options: dict[str, Any] = {"codes": "taudem", "tile": 4}
    found = og.upstream(codes, given, classes=[3, -2, 2, 100, 3], **options)
    assert list(found) == ["count_minus_2", "count_2", "count_3", "count_100"]
    for kind, counts in zip((-2, 2, 3, 100), found.values(), strict=True):
        right = np.full(codes.shape, -1)
        for cell, cells in listed(below).items():
            right[cell] = 0 if kind == 2 else sum(kinds[c] == kind for c in cells)
        np.testing.assert_array_equal(counts, right)
        assert counts.dtype == np.int64


@pytest.mark.parametrize("which", [{"statistics": ["sum", "std", "min"]}, {"classes": [1, 2]}])
def test_a_gpu_has_the_bits_of_a_cpu(which: dict[str, Any], emulated_gpu: Emulator) -> None:
    random = np.random.default_rng(9)
    codes, _ = oracle.random_steps(random, random.random((16, 16)) < 0.9, wrap=False)
    values = random.integers(-3, 3, codes.shape) / 8
    options: dict[str, Any] = {"codes": "taudem", "tile": 8, **which}
    right = og.upstream(codes, values, backend="numba", **options)
    assert emulated_gpu.launches == 0
    found = og.upstream(codes, values, backend="cuda", **options)
    assert emulated_gpu.launches > 0
    xr.testing.assert_equal(found, right)


def test_units_are_those_of_values_and_areas() -> None:
    place = {"y": [3.0, 1.0], "x": [0.0, 2.0]}
    crs = xr.DataArray(0, attrs={"crs_wkt": CRS("EPSG:32632").to_wkt()})
    codes = xr.DataArray(np.full((2, 2), 1, np.uint8), place, ("y", "x"))
    codes = codes.assign_coords(spatial_ref=crs)
    rain = codes.astype(float).assign_attrs(units="mm")
    plain = og.upstream(codes, rain, codes="taudem", statistics=["count", "sum", "max"])
    assert [v.attrs["units"] for v in plain.values()] == ["cells", "mm", "mm"]
    of = og.upstream(codes, rain, codes="taudem", statistics=["sum", "mean"], weights="area")
    assert [v.attrs["units"] for v in of.values()] == ["mm m²", "mm"]
    assert of["sum"].values.tolist() == [[4.0, 8.0], [4.0, 8.0]]
    unknown = og.upstream(codes, rain.drop_attrs(), codes="taudem", weights="area")
    assert "units" not in unknown["mean"].attrs


@pytest.mark.parametrize(
    ("values", "more", "sentence"),
    [
        (np.full((3, 3), 2.0**60), {}, r"values: 1\.15.*e\+18 at row 0, column 0; .* 5\.124e\+17"),
        (np.full((3, 3), 2**53), {"statistics": "max"}, "values: 9007199254740992 at row 0"),
        (np.ones((3, 3)), {"classes": [1], "weights": "area"}, "weights: of no use for classes"),
        (np.ones((3, 3)), {"classes": [1], "statistics": "sum"}, "statistics: of no use for"),
        (np.ones((3, 3)), {"classes": range(256)}, r"classes: range\(0, 256\); give 1 to 255"),
        (np.ones((4, 3)), {}, "values: "),
    ],
)
def test_what_cannot_be_summed_is_refused(
    values: np.ndarray, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(og.InputError, match=sentence):
        og.upstream(np.full((3, 3), 1, np.uint8), values, codes="taudem", **more)


def test_angles_and_circles_are_refused() -> None:
    heights = np.arange(12.0).reshape(3, 4)
    with pytest.raises(og.InputError, match="angles"):
        og.upstream(og.flow_direction(heights, method="dinf"), heights)
    for statistic in ("mean", "max"):
        with pytest.raises(og.InputError, match="comes back to it"):
            og.upstream(np.array([[1, 5]]), heights[:1, :2], codes="taudem", statistics=statistic)


def test_large_values_below_nodata_of_the_directions_do_not_matter() -> None:
    codes = np.array([[1, 255]], np.uint8)
    found = og.upstream(codes, np.array([[3.0, 1e300]]), codes="taudem", statistics=["sum", "max"])
    assert found["sum"].values.tolist()[0][0] == found["max"].values.tolist()[0][0] == 3
    assert np.isnan(found["sum"].values[0, 1])


def limbs(number: int) -> np.ndarray:
    return np.array([number >> 31 * k & 2**31 - 1 for k in range(16)])


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_quotients_are_rounded_once(seed: int) -> None:
    """Random numbers, ties between two floats and beside them, and limbs of ones and zeros."""
    random, rest = np.random.default_rng(seed), np.zeros(16, np.int64)
    for case in range(2000):
        size, of_divisor = random.integers(1, 372), random.integers(1, 204)
        number, divisor = (int.from_bytes(random.bytes(48), "little") for _ in range(2))
        number, divisor = number >> 384 - int(size), divisor >> 384 - int(of_divisor) | 1
        if case % 4 == 1:
            tie = 2**54 + 2 * int(random.integers(2**53)) + 1
            number = tie * (divisor >> 60 | 1) + int(random.integers(-1, 2))
            divisor = divisor >> 60 | 1
        elif case % 4 == 2:
            number, divisor = 2 ** size.item() - 1, 2 ** of_divisor.item() - 1
        elif case % 4 == 3:
            divisor = (2**31 - 1) << max(0, of_divisor.item() - 31)
        assert _quotient(limbs(number), limbs(divisor), rest) == float(Fraction(number, divisor))
