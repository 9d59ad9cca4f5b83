"""Bytes of a store: metadata, checksums, codec, arrays outside shards."""
