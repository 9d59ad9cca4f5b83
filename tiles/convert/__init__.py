"""From stores to files and layers, and back: ingest, export, rasterisation."""
