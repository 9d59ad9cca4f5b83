"""Convert between stores, files and vector layers."""
