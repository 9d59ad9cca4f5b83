"""Grids, quadtrees, stores and edge costs: everything about tiles that needs neither Dask nor CuPy."""
