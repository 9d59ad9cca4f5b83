"""From arguments to a run: options, workspace, checkpoints, clusters, progress."""
