"""Environments for a plain loop of one's own: `reset`, `step`, wrappers, a monitor, a window."""
