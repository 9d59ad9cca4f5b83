"""Grid geometry: windows, quadtree, borders, coordinates, step lengths."""
