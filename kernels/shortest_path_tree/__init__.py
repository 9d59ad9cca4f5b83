"""Shortest-path trees of tiles whose distances are known, on a GPU."""
