"""What the terrain says: depressions, flood levels, passes, peaks."""
