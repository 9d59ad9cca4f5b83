"""Connectivity of pairs of cells, by bidirectional breadth-first search over tiles."""
