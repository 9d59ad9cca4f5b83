"""Graphs in the memory of a GPU."""
