"""The two engines, the quadtree sweep and delta-stepping over tiles, and what carries out their tasks."""
