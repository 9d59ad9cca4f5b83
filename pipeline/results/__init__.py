"""Values that operations return, and how notebooks show them."""
