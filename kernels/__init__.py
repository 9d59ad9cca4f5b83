"""Numba kernels and their CUDA counterparts; they know arrays, and neither Dask nor Zarr."""
