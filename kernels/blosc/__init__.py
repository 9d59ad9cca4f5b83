"""Blosc frames of tiles, decoded and encoded by a GPU."""
