"""Check the arguments of public functions."""
