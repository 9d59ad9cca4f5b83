"""Rasters as they are read: arrays, files, masks, nodata."""
