"""Operations on graphs other than grids."""
