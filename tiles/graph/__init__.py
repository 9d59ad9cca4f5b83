"""Graphs: reading them from files and memory, and storing them."""
