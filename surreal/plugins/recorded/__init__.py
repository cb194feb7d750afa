"""Lists of runs, settings, learning curves and logs. Dashboard, plot, runs and sweep share it; it has no commands."""
