"""Terrain analysis: depressions, flood levels, passes, peaks."""
