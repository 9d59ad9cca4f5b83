"""First-order distances of the eikonal equation, in integers."""
