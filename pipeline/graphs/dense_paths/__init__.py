"""All-pairs shortest paths by dense matrices."""
