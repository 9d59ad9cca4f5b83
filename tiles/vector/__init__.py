"""Vector layers: read from what users have, brought to a grid, and written."""
