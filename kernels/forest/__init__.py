"""Minimum spanning forests of tiles and their contraction."""
