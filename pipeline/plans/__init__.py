"""Plans of runs: tasks, memory and disk space before they start."""
