"""Distance indices: preprocess a raster once, ask for distances many times."""
