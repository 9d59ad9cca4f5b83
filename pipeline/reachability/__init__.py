"""Whether two cells are connected, by bidirectional breadth-first search over tiles."""
