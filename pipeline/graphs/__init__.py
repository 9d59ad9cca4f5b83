"""Operations on graphs that are no grids."""
