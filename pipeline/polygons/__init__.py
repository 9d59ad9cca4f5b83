"""Areas of equal cells as polygons."""
