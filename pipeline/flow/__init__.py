"""Flow over the terrain: trenches, directions, accumulation, and what is read from them."""
