"""Flow over the terrain: directions and accumulation."""
