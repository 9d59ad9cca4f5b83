"""The two engines, the quadtree sweep and delta-stepping over tiles, and executors."""
