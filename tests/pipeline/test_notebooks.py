"""What notebooks show of each public class: well-formed HTML that says what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse
from shapely import Point

import orograph as og

GRID = np.arange(1.0, 13).reshape(3, 4)


def result() -> Any:
    return og.cost_distance(GRID, [(0, 0)], outputs=("cost", "back_direction"))


def damaged(folder: Path) -> og.StoreReport:
    og.ingest(GRID, folder / "grid.zarr")
    (shard,) = (folder / "grid.zarr").glob("*/c/0/0")
    shard.write_bytes(shard.read_bytes()[:-9])
    return og.verify(folder / "grid.zarr")


CASES: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "DistanceIndex": (
        lambda folder: og.DistanceIndex.build(GRID, folder / "i.zarr", block=2, levels=0),
        ("3 x 4", "bytes"),
    ),
    "Graph": (
        lambda folder: og.read_graph(sparse.csr_array(np.eye(5, k=1)), directed=True),
        ("Graph", ">5<", "4, directed"),
    ),
    "LeastCostPath": (
        lambda folder: og.least_cost_path(result(), [(3, 2)])[0],
        ("Least-cost path", "<polyline"),
    ),
    "LeastCostPaths": (
        lambda folder: og.least_cost_path(result(), [(x % 4, x // 4) for x in range(12)]),
        ("12 least-cost paths", "from (3, 0) to (0, 0)", "2 more"),
    ),
    "Operation": (
        lambda folder: og.peaks,
        ("Operation peaks", "prominence", "min_prominence", "out"),
    ),
    "Plan": (
        lambda folder: og.peaks.plan(og.RasterSpec((30, 40))),
        ("30 x 40 cells", "memory"),
    ),
    "Progress": (
        lambda folder: og.Progress(3, 12, waiting="no workers < 1"),
        ("3 / 12", "no workers &lt; 1"),
    ),
    "RasterSpec": (lambda folder: og.RasterSpec((30, 40)), ("30 x 40", "float32")),
    "TerrainCost": (
        lambda folder: og.TerrainCost(surface=GRID, vertical_factor="tobler"),
        ("Terrain cost", "surface", "tobler"),
    ),
    "Reach": (
        lambda folder: og.is_connected(np.ones((3, 4)), [(0, 0)] * 2, [(3, 2), (1, 0)], hops=True),
        ("connected", ">2<", "most hops", ">3<"),
    ),
    "Run": (lambda folder: og.peaks.submit(GRID), ("status", "<progress")),
    "StoreReport": (damaged, ("grid.zarr", "DAMAGED, problems: 1", "problem 1")),
    "VectorLayer": (
        lambda folder: og.VectorLayer(
            np.array([Point(7, 46)]), {"<name>": np.array(["spring"])}, "EPSG:4326"
        ),
        ("1 (Point)", "WGS 84", "&lt;name&gt;"),
    ),
}


def test_every_public_class_is_here() -> None:
    values = {name: getattr(og, name) for name in og.__all__}
    classes = {
        name
        for name, value in values.items()
        if isinstance(value, type) and not issubclass(value, BaseException)
    }
    assert classes == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_html_of(name: str, tmp_path: Path) -> None:
    make, words = CASES[name]
    made = make(tmp_path)
    assert type(made).__name__ == name
    text = made._repr_html_()
    ElementTree.fromstring(text.replace("<br>", ""))  # well formed
    assert [word for word in words if word not in text] == []
