"""Input rasters: arrays, files, masks, nodata values."""
