"""A page of Dask's dashboard that shows the tiles of runs."""
