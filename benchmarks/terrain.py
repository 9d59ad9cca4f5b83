"""Grids for benchmarks: fractal terrain and white noise, and stores of them of any size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orograph.tiles.grid.window import Window
from orograph.tiles.store.create import Layout, Variable, create_store
from orograph.tiles.store.publish import partial_path, publish
from orograph.tiles.store.sink import StoreSink
from orograph.tiles.system import cores

Heights = npt.NDArray[np.float32]


def fractal(side: int, seed: int = 0, beta: float = 2.2) -> Heights:
    """Terrain with a power-law spectrum, heights 0 to 1000, shape (side, side)."""
    rng = np.random.default_rng(seed)
    k = np.fft.fftfreq(side)[:, None] ** 2 + np.fft.rfftfreq(side)[None] ** 2
    k[0, 0] = 1
    spectrum = np.fft.rfft2(rng.standard_normal((side, side)))
    spectrum *= k ** (-beta / 2)
    heights = np.fft.irfft2(spectrum, s=(side, side))
    heights -= heights.min()
    return (heights / heights.max() * 1000).astype(np.float32)


def noise(side: int, seed: int = 0) -> Heights:
    """Independent heights, uniform from 0 to 1000, shape (side, side)."""
    return np.random.default_rng(seed).uniform(0, 1000, (side, side)).astype(np.float32)


def mirrored_store(
    path: str | Path, patch: Heights, shape: int | tuple[int, int], tile: int = 1024
) -> Path:
    """A store paved with mirrored copies of a patch, made shard by shard; ``shape`` or its side."""
    path = Path(path)
    if path.exists():
        return path
    shape = shape if isinstance(shape, tuple) else (shape, shape)
    layout = Layout.default(shape, np.float32, tile)
    partial = create_store(partial_path(path), shape, layout, [Variable("elevation", np.float32)])
    sink = StoreSink(partial)
    size = patch.shape[0]
    fold = np.arange(max(shape)) % (2 * size)
    fold = np.where(fold < size, fold, 2 * size - 1 - fold)

    def write(window: Window) -> None:
        rows, columns = (fold[part] for part in window.slices)
        sink.write("elevation", window, patch[np.ix_(rows, columns)])

    with ThreadPoolExecutor(cores()) as pool:
        for _ in pool.map(write, layout.windows(shape)):
            pass
    publish(partial, path)
    return path
