"""Execution of runs: options, workspace, checkpoints, clusters, progress."""
