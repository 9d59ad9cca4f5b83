"""Graphs: their arrays, reading them from files, and storing them."""
