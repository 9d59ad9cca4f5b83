"""Binary and metadata formats of a store: checksums, compression, arrays outside shards."""
