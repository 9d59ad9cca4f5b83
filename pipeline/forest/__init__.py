"""Minimum spanning forests of rasters."""
