"""Graphs in compressed rows: shortest paths, hops, forests, components."""
