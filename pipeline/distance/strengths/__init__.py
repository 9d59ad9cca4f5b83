"""Distances from sources of different strengths: one run for each, and the least of all."""
