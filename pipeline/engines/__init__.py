"""Engines that solve problems over tiles: sweep, delta-stepping, tiles with a halo, stages."""
