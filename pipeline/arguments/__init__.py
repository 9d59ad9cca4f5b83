"""Arguments of public functions: keywords that they share, settings, and checks."""
