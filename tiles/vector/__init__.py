"""Vector layers: read from files or objects, rasterized onto a grid, and written."""
