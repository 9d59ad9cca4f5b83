"""Numba kernels and their CUDA twins; they know arrays, and neither Dask nor Zarr."""
