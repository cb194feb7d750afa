"""Settings and learning curves from the folders of runs: no commands, but what plot and dashboard share."""
