"""Arrays of a GPU go in, and come back as they came: CuPy, Dask of CuPy, and PyTorch if it is here.

    python benchmarks/gpu_arrays.py --side 1000

Each result is compared, to the bit, with that of the same cells as NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import cupy
import dask.array as da
import numpy as np
import xarray as xr

import orograph as og

CALLS: dict[str, Callable[..., xr.Dataset]] = {
    "cost_distance": lambda cells, **o: og.cost_distance(cells, [(5, 5)], **o),
    "minimum_spanning_forest": lambda cells, **o: og.minimum_spanning_forest(cells, **o),
    "connected_components": lambda cells, **o: og.connected_components(cells, **o),
}


def given(cells: np.ndarray) -> dict[str, Any]:
    """Return the cells as each library has them."""
    on_gpu = cupy.asarray(cells)
    found = {
        "CuPy": on_gpu,
        "xarray of CuPy": xr.DataArray(on_gpu, dims=("y", "x")),
        "Dask of CuPy": da.from_array(on_gpu, chunks=512, asarray=False),
    }
    if find_spec("torch") is not None:
        import torch

        found |= {
            "PyTorch, GPU": torch.asarray(cells, device="cuda"),
            "PyTorch": torch.asarray(cells),
        }
    return found


def main() -> None:
    """Print a row for each operation, backend and kind of array."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=1000)
    cells = np.random.default_rng(0).integers(1, 9, (parser.parse_args().side,) * 2)
    cells = cells.astype(np.float32)
    print(f"{'operation':26}{'backend':9}{'array':16}{'result':10}{'bits':7}{'seconds':>8}")
    for name, call in CALLS.items():
        expected = call(cells, backend="numba")
        for backend in ("numba", "cuda"):
            for kind, array in given(cells).items():
                start = time.perf_counter()
                found = call(array, backend=backend)
                seconds = time.perf_counter() - start
                data = next(iter(found.data_vars.values())).data
                bits = np.array_equal(cupy.asnumpy(data), next(iter(expected.values())))
                module = type(data).__module__.partition(".")[0]
                said = "same" if bits else "OTHER"
                print(f"{name:26}{backend:9}{kind:16}{module:10}{said:7}{seconds:8.2f}", flush=True)


if __name__ == "__main__":
    main()
