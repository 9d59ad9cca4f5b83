"""Integrity of stores: metadata, checksums, verification."""
