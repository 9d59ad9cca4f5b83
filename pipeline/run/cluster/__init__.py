"""Clusters of Dask, and what a run puts on them."""
