"""Watersheds, streams, lengths and heights along the flow."""
