"""Real rasters on a GPU: every operation's bits beside those of the Numba kernels; run by gpu.py.

ORO_TEST_DATA names the folder: rasters that rasterio reads, or ``.npz`` files of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import orograph as og
from orograph.tiles.grid.window import Window
from orograph.tiles.raster.raster import open_raster

TILE = 512
MODELS = ("tobler", "walk")


def rasters() -> Iterator[tuple[str, np.ndarray]]:
    """The first band of each raster of the folder, NaN where it has no data and can say so."""
    folder = Path(os.environ["ORO_TEST_DATA"])
    for path in sorted((*folder.rglob("*.tif"), *folder.rglob("*.npz"))):
        if path.suffix == ".npz":
            yield path.stem, np.load(path)["arr_0"]
            continue
        raster = open_raster(path)
        cells = raster.read(Window(0, 0, *raster.shape))
        if raster.nodata is not None and cells.dtype.kind == "f":
            cells = np.where(cells == cells.dtype.type(raster.nodata), np.nan, cells)
        yield path.stem, cells


def calls(cells: np.ndarray) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield operations on a raster, by name."""
    centre = [(cells.shape[1] // 2, cells.shape[0] // 2)]
    near = {"snap": 1e9, "tile": TILE, "cell_size": 1}
    for weight in ("max", "mean", "absolute_difference"):
        for connectivity in (8, 4):
            yield (
                f"forest {weight} {connectivity}",
                lambda w=weight, c=connectivity, **how: og.minimum_spanning_forest(
                    cells, weight=w, connectivity=c, tile=TILE, **how
                ),
            )
    for connectivity in (8, 4):
        yield (
            f"filling {connectivity}",
            lambda c=connectivity, **how: og.fill_depressions(
                cells,
                connectivity=c,
                outputs=("filled", "depth", "depression"),
                tile=TILE,
                **how,
            ),
        )
        yield (
            f"peaks {connectivity}",
            lambda c=connectivity, **how: og.peaks(cells, connectivity=c, tile=TILE, **how),
        )
    valid = np.isfinite(cells)
    classes = np.where(valid, np.where(valid, cells, 0).astype(np.int32) // 8 * 2 + 1, 0)
    yield "components", lambda **how: og.connected_components(classes, tile=TILE, **how)
    yield "hops", lambda **how: og.hop_distance(classes, centre, snap=True, tile=TILE, **how)
    friction = np.where(np.isfinite(cells) & (cells >= 0), cells, np.nan)
    for dtype in ("float64", "float32"):
        for connectivity in (4, 8, 16):
            yield (
                f"friction {dtype} {connectivity}",
                lambda d=dtype, c=connectivity, **how: og.cost_distance(
                    friction, centre, dtype=d, connectivity=c, **near, **how
                ),
            )
    for model in MODELS:
        yield (
            model,
            lambda m=model, **how: og.walking_time(
                cells,
                centre,
                friction=np.where(np.isfinite(cells), 1.0, np.nan),
                model=m,
                **near,
                **how,
            ),
        )
    yield (
        "absolute_difference",
        lambda **how: og.cost_distance(cells, centre, cost="absolute_difference", **near, **how),
    )


def bits(side: int) -> None:
    """The middle of all rasters, cropped to ``side``; raises at the first cell that differs."""
    for name, whole in rasters():
        top, left = (max(0, (n - side) // 2) for n in whole.shape)
        cells = np.ascontiguousarray(whole[top : top + side, left : left + side])
        done = []
        for what, call in calls(cells):
            found, expected = call(backend="cuda"), call(backend="numba")
            for variable in expected.variables:
                one, other = found[variable].values, expected[variable].values
                if one.dtype != other.dtype or one.tobytes() != other.tobytes():
                    raise AssertionError(f"{name} {cells.shape}, {what}: {variable} differs")
            if found.attrs != expected.attrs:
                raise AssertionError(f"{name} {cells.shape}, {what}: attributes differ")
            done.append(what)
        print(f"{name} {cells.shape} {cells.dtype}: the same bits in {', '.join(done)}", flush=True)
