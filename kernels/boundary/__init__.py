"""Distances between the border cells of blocks."""
