"""Vector layers: read from what users have, burnt onto a grid, and written."""
