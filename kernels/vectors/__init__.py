"""Vector instructions and functions of vectors, for kernels of several subjects."""
