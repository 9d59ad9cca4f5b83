"""Delta-stepping over tiles."""
