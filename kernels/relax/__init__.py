"""Shortest paths within a tile."""
