"""Roads: lines as graphs between the cells of a raster."""
