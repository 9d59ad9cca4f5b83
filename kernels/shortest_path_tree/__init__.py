"""Shortest-path trees of tiles whose distances are known: pairs (label, hops), and work on GPUs."""
