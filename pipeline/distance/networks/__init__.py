"""Networks of least-cost links between regions."""
