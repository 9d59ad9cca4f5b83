"""Connected components: arrays in memory beside cc3d, and Zarr to Zarr beside dask-image.

    pip install dask-image connected-components-3d
    python benchmarks/components_run.py --memory --side 4096
    python benchmarks/components_run.py --side 8192 --workers 2

With ``--memory`` whole calls on one thread are compared, on noise, blobs and terrain of 8 classes:
labels of 32 bits (cc3d writes 16 or 32), the same with the table of sizes and boxes, which cc3d
does not make, and labels of 64 bits. Figures are medians, ratios those of cc3d's time to ours, by
the clock and by the processor's time, which other programs disturb less.

Both label the same store on the same workers, dask-image in chunks of our tiles. Our time is that
of the whole run: reading, labelling, sizes, boxes, and labels written to a store. Dask-image's is
kinder: it reads and labels, and each chunk of its labels is dropped where it was made, so that it
neither writes nor gathers anything (`--chunks` lets it choose larger ones). Runs are interleaved
after a rehearsal; figures are medians. Without dask-image, ours is printed alone.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import dask
import dask.array as da
import numpy as np
from record import Record, add_option
from scipy import ndimage
from terrain import fractal

import orograph as og

EIGHT = np.ones((3, 3), bool)
MASKS = ("noise", "blobs")
ALL = ("labels", "component_size", "component_box")


def patch_of(name: str, side: int) -> np.ndarray:
    """White noise, 60 % of it ones, or blobs about 30 cells wide; uint8."""
    rng = np.random.default_rng(0)
    if name == "noise":
        return (rng.random((side, side)) < 0.6).astype(np.uint8)
    waves = ndimage.gaussian_filter(rng.standard_normal((side, side)).astype(np.float32), 8)
    return (waves > 0).astype(np.uint8)


def dask_image() -> ModuleType | None:
    """Dask-image's measures, if it is installed."""
    try:
        from dask_image import ndmeasure
    except ImportError:
        print("dask-image is not installed: `pip install dask-image` to compare", flush=True)
        return None
    return ndmeasure


def label_by_dask_image(measure: ModuleType, store: Path, chunks: int) -> int:
    """Label a store; every chunk of labels is computed, and only its largest label is kept."""
    labels, count = measure.label(da.from_zarr(str(store), "elevation", chunks=chunks), EIGHT)
    largest = [dask.delayed(np.max)(chunk) for chunk in labels.to_delayed().ravel()]
    number, greatest = dask.compute(count, largest)
    assert max(greatest) == number
    return int(number)


def rasters(side: int) -> Iterator[tuple[str, np.ndarray]]:
    """Masks and classes in memory, uint8."""
    rng = np.random.default_rng(0)
    chance = rng.random((side, side), np.float32)
    for percent in (10, 30, 50, 60, 90):
        yield f"noise {percent} %", (chance < percent / 100).astype(np.uint8)
    yield "blobs", patch_of("blobs", side)
    heights = fractal(side)
    bounds = np.quantile(heights, np.linspace(0, 1, 9)[1:-1])
    yield "terrain", (np.digitize(heights, bounds) + 1).astype(np.uint8)


def compare_in_memory(side: int, repeat: int) -> None:
    """Print million cells a second of whole calls, and their ratio to cc3d's."""
    calls: dict[str, Callable[[np.ndarray], object]] = {
        "int32": lambda cells: og.connected_components(cells, dtype="int32"),
        "int32, table": lambda cells: og.connected_components(cells, outputs=ALL, dtype="int32"),
        "int64": lambda cells: og.connected_components(cells),
    }
    try:
        import cc3d
    except ImportError:
        print("cc3d is not installed: `pip install connected-components-3d` to compare", flush=True)
    else:
        calls["cc3d"] = lambda cells: cc3d.connected_components(cells, connectivity=8)
    with og.config.set(threads=1, progress=False):
        for call in calls.values():
            call(np.ones((8, 8), np.uint8))
        for name, cells in rasters(side):
            spent: dict[str, list[tuple[float, float]]] = {who: [] for who in calls}
            for _ in range(repeat):
                for who, call in calls.items():
                    begin, busy = time.perf_counter(), time.process_time()
                    call(cells)
                    spent[who].append((time.perf_counter() - begin, time.process_time() - busy))
            took = {who: np.median(times, axis=0) for who, times in spent.items()}
            for who, (clock, busy) in took.items():
                line = f"{name:12s}{who:14s}{cells.size / clock / 1e6:8.0f} Mcell/s"
                if "cc3d" in took and who != "cc3d":
                    peer = took["cc3d"]
                    line += f"   {peer[0] / clock:.2f} by the clock, {peer[1] / busy:.2f} busy"
                print(line, flush=True)


def seconds(call: Callable[[], int]) -> tuple[float, int]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    count = call()
    return time.perf_counter() - start, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--side", type=int, default=8192)
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--chunks", type=int, help="dask-image's chunks, if not our tiles")
    parser.add_argument("--masks", nargs="+", choices=MASKS, default=MASKS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--memory", action="store_true", help="arrays on one thread, beside cc3d")
    add_option(parser)
    options = parser.parse_args()
    if options.memory:
        compare_in_memory(options.side, options.repeat)
        return
    record = Record(options.record)
    chunks = options.chunks or options.tile
    measure = dask_image()
    out = options.folder / "orograph-labels.zarr"
    with og.cluster(n_workers=options.workers, dashboard_address=None) as client:
        for name in options.masks:
            patch = patch_of(name, min(options.side, 4096))
            store = options.folder / f"orograph-mask-{name}-{options.side}-{options.tile}.zarr"
            if not store.exists():
                folded = np.pad(patch, (0, options.side - len(patch)), mode="symmetric")
                og.ingest(folded, store, tile=options.tile)

            def ours(store: Path = store) -> int:
                result = og.connected_components(
                    store, outputs=ALL, out=out, overwrite=True, client=client
                )
                return int(result.attrs["component_count"])

            calls: dict[str, Callable[[], int]] = {"orograph": ours}
            if measure is not None:
                calls["dask-image"] = lambda store=store: label_by_dask_image(
                    measure, store, chunks
                )
            spent: dict[str, list[float]] = {who: [] for who in calls}
            counts = set()
            for turn in range(options.repeat + 1):
                for who, call in calls.items():
                    took, count = seconds(call)
                    counts.add(count)
                    print(f"  {name}, turn {turn}, {who}: {took:.2f} s", flush=True)
                    # the first is a rehearsal: workers load their kernels in it
                    if turn:
                        spent[who].append(took)
            assert len(counts) == 1, f"numbers of components differ: {counts}"
            print(
                f"{name} {options.side}^2, tiles {options.tile}, {options.workers} workers, "
                f"{counts.pop()} components",
                flush=True,
            )
            for who, times in spent.items():
                speeds = [options.side**2 / t / 1e6 for t in times]
                ran = f"{who}, {options.workers} workers"
                what = f"components, Zarr to Zarr, {name} {options.side}²"
                record.add(what, ran, "Mcell/s", speeds, peer=who != "orograph")
                print(
                    f"  {who:12s}{statistics.median(speeds):8.1f} Mcell/s "
                    f"(spread {min(speeds):.1f}-{max(speeds):.1f}), "
                    f"{statistics.median(times):.2f} s",
                    flush=True,
                )
            if measure is not None:
                ratio = statistics.median(spent["dask-image"]) / statistics.median(
                    spent["orograph"]
                )
                print(f"  orograph is {ratio:.1f} times as fast", flush=True)
    record.write()


if __name__ == "__main__":
    main()
