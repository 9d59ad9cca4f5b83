"""Min-plus products and closures of dense matrices."""
