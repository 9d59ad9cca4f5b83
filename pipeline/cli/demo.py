"""The command ``demo``: process a real elevation model on a local cluster, and draw the result."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import orograph as og
from orograph.cli.files import compile_kernels_of
from orograph.plotting.results import cost_picture, forest_picture
from orograph.tiles.errors import OrographError, report_missing


def jacksboro_fault() -> xr.DataArray:
    """Return the elevation model of the Jacksboro fault that ships with matplotlib.

    Returns
    -------
    xarray.DataArray
        Heights in metres, int16, shape (344, 403), in geographic coordinates (WGS 84), cells of
        about 90 m (SRTM, public domain).
    """
    import rioxarray  # noqa: F401  (registers .rio)

    with report_missing("demo", "matplotlib", "plot"):
        from matplotlib.cbook import get_sample_data
    stored: Any = get_sample_data("jacksboro_fault_dem.npz")
    with stored as data:
        heights = data["elevation"]
        dx, dy = float(data["dx"]), float(data["dy"])
        x = float(data["xmin"]) + dx * (0.5 + np.arange(heights.shape[1]))
        y = float(data["ymax"]) - dy * (0.5 + np.arange(heights.shape[0]))
    elevation = xr.DataArray(
        heights, {"y": y, "x": x}, ("y", "x"), "elevation", {"units": "m", "long_name": "height"}
    )
    placed: xr.DataArray = elevation.rio.write_crs("EPSG:4326")
    return placed


# longitude and latitude: a place in the valley, and some to be reached from it
TRAILHEAD = (-84.17, 36.305)
SUMMITS = [(-84.40, 36.43), (-84.38, 36.22), (-84.10, 36.42), (-84.28, 36.18)]


def steepness(elevation: xr.DataArray) -> xr.DataArray:
    """Return a friction surface: 1 on flat ground, 11 where the slope is one to one."""
    heights = elevation.values.astype(np.float64)
    # Metres from cell to cell, north to south and west to east, at 36 degrees north.
    rise_y, rise_x = np.gradient(heights, 93.0, 75.0)
    friction = elevation.astype(np.float64)
    friction.values = 1 + 10 * np.hypot(rise_y, rise_x)
    friction.attrs = {"long_name": "friction"}
    return friction.rename("friction")


def demo(folder: str | Path, *, workers: int = 2) -> None:
    """Compute a forest and least-cost paths of a real elevation model, and draw both."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()

    def say(what: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {what}", flush=True)

    source = jacksboro_fault()
    raster = folder / "jacksboro.tif"
    source.rio.to_raster(raster)
    say(f"elevation model  {raster}: {source.shape[0]} x {source.shape[1]} cells, {source.dtype}")

    store, out = folder / "jacksboro.zarr", folder / "forest.zarr"
    # What a demo that was killed has left would be in the way of this one.
    shutil.rmtree(folder / "forest.zarr.partial", ignore_errors=True)
    elevation = og.ingest(raster, store, tile=16, shard=64, overwrite=True)
    say(f"ingested         {store}: tiles of 16 x 16 cells, shards of 64 x 64, in z-order")
    print(og.minimum_spanning_forest.plan(store))

    # Before the cluster starts: its workers find the kernels in the cache.
    compile_kernels_of("minimum_spanning_forest", str(source.dtype))
    compile_kernels_of("cost_distance", "float64", ["friction"])
    say("kernels          compiled, or found where an earlier run has left them")
    with og.cluster(n_workers=workers) as client:
        say(f"cluster          {workers} workers; dashboard: {client.dashboard_link or 'none'}")
        start = time.perf_counter()
        forest = og.minimum_spanning_forest(store, out=out, overwrite=True, client=client)
        seconds = time.perf_counter() - start
        slow = steepness(source)
        start = time.perf_counter()
        crossing = og.cost_distance.submit(
            slow,
            [TRAILHEAD],
            outputs=("cost", "back_direction"),
            tile=64,
            out=folder / "cost.zarr",
            overwrite=True,
            client=client,
        )
        cost = crossing.result()
        cost_seconds = time.perf_counter() - start
    attributes = forest.attrs
    say(
        f"forest           {out}: {attributes['vertex_count']:,} cells, "
        f"{attributes['edge_count']:,} edges, {attributes['tree_count']} tree(s), "
        f"total weight {attributes['total_weight']:,.0f} m, "
        f"in {seconds:.2f} s"
    )
    again = og.minimum_spanning_forest(source, tile=max(source.shape))
    if not np.array_equal(again["edges"].values, forest["edges"].values):
        raise OrographError("demo: the forest in tiles differs from the forest of the whole grid")
    say("checked          the forest of the whole grid at once has the same bits")
    picture = forest_picture(
        elevation,
        forest["edges"],
        folder / "forest.png",
        title="Jacksboro fault, Tennessee: minimum spanning forest",
    )
    say(f"picture          {picture}")
    paths = og.least_cost_path(cost, SUMMITS)
    say(
        f"cost distance    {cost.attrs['reached_cells']:,} cells reached in {cost_seconds:.2f} s, "
        f"{crossing.statistics()['tile_visits']} visits of tiles; paths of "
        + ", ".join(f"{len(path.cells)}" for path in paths)
        + " cells"
    )
    picture = cost_picture(
        source,
        cost["cost"].assign_attrs(units="m on flat ground"),
        paths,
        folder / "cost.png",
        title="Jacksboro fault, Tennessee: least-cost distance and paths",
    )
    say(f"picture          {picture}")
