"""Grids, quadtrees, stores, edge costs: all about tiles that needs neither Dask nor CuPy."""
