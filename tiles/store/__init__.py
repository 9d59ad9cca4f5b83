"""Zarr stores: layout, shards, reading, writing, publishing, verification."""
