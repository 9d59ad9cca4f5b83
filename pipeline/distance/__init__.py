"""Least-cost and hop distances, allocation, and paths."""
