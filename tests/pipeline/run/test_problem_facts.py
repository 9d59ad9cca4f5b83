"""What decides a result is in the identity of its run, and nothing else is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import xarray as xr

import orograph as og
from orograph.run.problem import ProblemFacts, facts_of, on_backend

AXES = {"x": np.arange(40) * 30.0 + 15, "y": 3000 - np.arange(30) * 30.0}
RANDOM = np.random.default_rng(0)


def raster(cells: np.ndarray) -> xr.DataArray:
    return xr.DataArray(cells, dims=("y", "x"), coords=AXES)


HEIGHTS = raster(RANDOM.random((30, 40)).astype(np.float32) * 100)
FRICTION = raster(RANDOM.random((30, 40)) + 0.5)
MASK = raster(RANDOM.random((30, 40)) > 0.3)
BARRIERS = raster((np.indices((30, 40)).sum(axis=0) % 7 == 3).astype(np.uint8))
REGIONS = raster(np.where(RANDOM.random((30, 40)) > 0.98, RANDOM.integers(1, 4, (30, 40)), 0))
POINTS = [(15.0, 3000.0), (615.0, 2500.0)]
DIRECTIONS = og.flow_direction(HEIGHTS)["direction"]
AMOUNTS = og.flow_accumulation(DIRECTIONS)["accumulation"]
STREAMS = og.streams(DIRECTIONS, AMOUNTS, threshold=5)["link"]

Call = tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]
"""Positional and named arguments of a call, and another value of each argument to vary."""
CALLS: dict[str, Call] = {
    "minimum_spanning_forest": (
        (HEIGHTS,),
        {},
        {"weight": "mean", "connectivity": 4, "nodata": 5.0},
    ),
    "connected_components": (
        (MASK,),
        {},
        {
            "connectivity": 4,
            "min_size": 3,
            "outputs": ("labels", "component_size"),
            "dtype": "int32",
            "nodata": 1,
        },
    ),
    "fill_depressions": (
        (HEIGHTS,),
        {},
        {
            "connectivity": 4,
            "max_depth": 1.0,
            "gradient": 0.5,
            "nodata": 3.0,
            "outlets": POINTS,
            "outputs": ("filled", "depth"),
        },
    ),
    "flood_level": ((HEIGHTS, POINTS), {}, {"connectivity": 4, "nodata": 3.0}),
    "pass_elevation": (
        (HEIGHTS, POINTS),
        {},
        {"connectivity": 4, "nodata": 2.0, "paths": True, "targets": POINTS[:1]},
    ),
    "peaks": ((HEIGHTS,), {}, {"connectivity": 4, "min_prominence": 2.0, "nodata": 2.0}),
    "depressions": (
        (HEIGHTS,),
        {},
        {"connectivity": 4, "min_depth": 1.0, "min_area": 2, "labels": True, "nodata": 2.0},
    ),
    "flow_accumulation": (
        (HEIGHTS,),
        {"method": "d8"},
        {
            "method": "dinf",
            "depressions": "keep",
            "flats": "gradient",
            "weights": FRICTION,
            "cell_size": 5.0,
            "nodata": 2.0,
        },
    ),
    "watersheds": ((DIRECTIONS, POINTS), {}, {"nodata": 3}),
    "drainage_network": (
        (HEIGHTS, 5),
        {},
        {"connectivity": 4, "depressions": "keep", "flats": "gradient", "weights": "area"},
    ),
    "linkages": (
        (FRICTION, POINTS),
        {"width": 1.0},
        {"threshold": 4.0, "alternatives": 1, "width": 2.0, "penalty": 2.0, "share": 0.1},
    ),
    "streams": ((DIRECTIONS, AMOUNTS, 5), {}, {"cell_size": 7.0, "elevation": HEIGHTS}),
    "flow_distance": ((DIRECTIONS, STREAMS), {}, {"cell_size": 7.0, "nodata": 3}),
    "downstream": (
        (DIRECTIONS, HEIGHTS, STREAMS),
        {},
        {"statistics": "mean", "cell_size": 7.0, "nodata": 3},
    ),
    "upstream": (
        (DIRECTIONS, HEIGHTS),
        {},
        {"statistics": "max", "weights": "area", "classes": [2, 3], "nodata": 3},
    ),
    "upstream_length": ((DIRECTIONS,), {}, {"cell_size": 7.0, "nodata": 3}),
    "breach_depressions": (
        (HEIGHTS,),
        {},
        {"max_length": 3, "max_depth": 2.0, "nodata": 2.0},
    ),
    "cost_distance": (
        (FRICTION, POINTS),
        {},
        {
            "cost": "absolute_difference",
            "barriers": BARRIERS,
            "connectivity": 4,
            "max_cost": 9.0,
            "cell_size": 2.0,
            "initial_cost": [1.0, 2.0],
            "source_cost": {"multiplier": [1.0, 2.0]},
            "outputs": ("cost", "allocation"),
            "dtype": "float32",
            "nodata": 1.0,
        },
    ),
    "walking_time": (
        (HEIGHTS, POINTS),
        {},
        {
            "friction": FRICTION,
            "model": "walk",
            "connectivity": 16,
            "max_cost": 100.0,
            "dtype": "float32",
            "barriers": BARRIERS,
        },
    ),
    "catchments": (
        (FRICTION, POINTS),
        {"population": HEIGHTS},
        {
            "population": FRICTION,
            "capacity": 3.0,
            "rank": [2, 1],
            "each": True,
            "cost": "absolute_difference",
            "travel": "from",
            "max_cost": 9.0,
            "barriers": BARRIERS,
            "connectivity": 4,
            "cell_size": 2.0,
            "dtype": "float32",
            "nodata": 1.0,
        },
    ),
    "site": (
        (FRICTION, POINTS),
        {"population": HEIGHTS, "within": 5.0},
        {"population": FRICTION, "within": 6.0, "count": 2, "travel": "from"},
    ),
    "floating_catchments": (
        (FRICTION, POINTS),
        {"population": HEIGHTS, "within": 5.0},
        {"population": FRICTION, "within": 6.0, "supply": [1, 2], "travel": "from"},
    ),
    "hop_distance": ((MASK, POINTS), {"snap": True}, {"connectivity": 4, "max_hops": 3}),
}
VARIED = [(name, argument) for name, (_, _, varied) in CALLS.items() for argument in varied]


@pytest.mark.parametrize(("name", "argument"), VARIED)
def test_an_argument_that_changes_the_result_changes_the_identity(name: str, argument: str) -> None:
    args, kwargs, varied = CALLS[name]
    describe = getattr(og, name).describe
    other = {**kwargs, argument: varied[argument]}
    assert describe(*args, **other).identity() != describe(*args, **kwargs).identity()


@pytest.mark.parametrize("name", CALLS)
def test_the_identity_of_a_call_is_always_the_same(name: str) -> None:
    args, kwargs, _ = CALLS[name]
    first, again = (getattr(og, name).describe(*args, **kwargs).identity() for _ in range(2))
    assert first == again


@dataclass(frozen=True)
class Facts(ProblemFacts):
    """A problem of one field."""

    value: Any
    backend: str = "numba"

    name = "facts"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (0.1, np.float32(0.1)),
        ("1", 1),
        (None, "None"),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros((1, 2)), np.zeros((2, 1))),
        (np.zeros(2), np.array([0.0, 1.0])),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, (2,)), (1, 2)),
        (Facts(1), Facts(2)),
    ],
)
def test_different_values_are_different_facts(one: Any, other: Any) -> None:
    assert facts_of(one) != facts_of(other)


def test_a_nan_is_one_fact_and_a_backend_is_none() -> None:
    nan = np.frombuffer(b"\x01\x00\x00\x00\x00\x00\xf8\x7f")[0]
    assert facts_of(float(nan)) == facts_of(float("nan"))
    assert facts_of(np.float64(0.1)) == facts_of(0.1)
    problem = Facts(np.arange(3))
    assert problem.identity() == on_backend(problem, "cuda").identity()


def test_what_has_no_bytes_is_refused_as_a_fact() -> None:
    with pytest.raises(TypeError, match="function: not a fact"):
        facts_of({"key": lambda: None})
