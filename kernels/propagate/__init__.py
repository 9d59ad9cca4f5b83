"""Costs carried over the borders of blocks on a GPU: for tables of a distance index."""
