"""Distances in the plane, by the eikonal equation, as a problem of the frontier engine."""
