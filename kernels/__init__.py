"""Numba kernels and their CUDA counterparts; they use arrays, and neither Dask nor Zarr."""
