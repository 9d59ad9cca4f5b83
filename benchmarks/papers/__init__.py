"""Tables and figures of five documents, repeated with orograph: ``python benchmarks/papers``."""
