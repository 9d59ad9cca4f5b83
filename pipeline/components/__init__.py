"""Connected components of rasters."""
