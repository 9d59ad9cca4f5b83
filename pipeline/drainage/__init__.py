"""What is read from flow directions: watersheds, distances, heights above streams."""
