"""Lines cut at the borders of cells, and shortest paths through vertices without access."""
