"""Settings, learning curves and logs from the folders of runs. Plot and dashboard share it; it has no commands."""
