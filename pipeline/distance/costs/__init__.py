"""Costs of steps: the rasters of a cost model, and costs of terrain."""
