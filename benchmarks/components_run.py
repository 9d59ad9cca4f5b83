"""Connected components of a mask, from Zarr to Zarr on a cluster, beside dask-image.

    pip install dask-image
    python benchmarks/components_run.py --side 8192 --workers 2

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
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import dask
import dask.array as da
import numpy as np
from record import Record, add_option
from scipy import ndimage

import orograph as og

EIGHT = np.ones((3, 3), bool)
MASKS = ("noise", "blobs")


def patch_of(name: str, side: int) -> np.ndarray:
    """White noise, 60 % of it ones, or blobs some 30 cells wide; uint8."""
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
    add_option(parser)
    options = parser.parse_args()
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
                result = og.connected_components(store, out=out, overwrite=True, client=client)
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
