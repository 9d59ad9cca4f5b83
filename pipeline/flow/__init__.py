"""Flow over the terrain: directions, accumulation, watersheds."""
