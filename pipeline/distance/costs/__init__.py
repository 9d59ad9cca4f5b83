"""Costs of steps that are chosen by a value with rasters of its own."""
