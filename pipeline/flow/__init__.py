"""Directions in which water flows over the terrain, and how much flows."""
