"""Public functions as operations: how they are called, described and planned."""
