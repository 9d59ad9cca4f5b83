"""Flow over a surface: directions, accumulation, watersheds."""
