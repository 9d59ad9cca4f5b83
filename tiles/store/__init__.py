"""Zarr stores: layout, codecs, reading, writing, publishing."""
