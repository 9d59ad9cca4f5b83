"""Breach depressions: dig trenches from pits to lower ground."""
