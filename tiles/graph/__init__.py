"""Graphs that are no grids: what they hold, how they are read and stored."""
