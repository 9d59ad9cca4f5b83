"""Rasters that operations read: arrays, files, stores, layers, masks; points on them."""
