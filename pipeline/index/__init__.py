"""Distance indices: preprocess a raster once, then query least-cost distances many times."""
