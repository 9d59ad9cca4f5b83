"""Shortest paths between all pairs of vertices, through dense matrices."""
