"""Connected components of tiles and of edge lists."""
