"""Grids, rasters and stores; importing them needs neither Dask nor CuPy."""
