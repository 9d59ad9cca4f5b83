"""Basins of tiles, and the merge tree of basins."""
