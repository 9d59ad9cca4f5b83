"""Boundaries of regions of equal cells."""
