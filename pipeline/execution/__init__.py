"""Run execution: options, settings, checkpoints, clusters, progress."""
