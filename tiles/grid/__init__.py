"""Geometry: windows, quadtree, borders, coordinates, step lengths."""
