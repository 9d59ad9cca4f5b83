"""Conversion between stores, files and layers: ingest, export, rasterisation."""
