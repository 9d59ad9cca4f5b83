"""Runs of jobs: problems, options, checkpoints, progress, results."""
