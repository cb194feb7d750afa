"""Environments for a plain loop: `reset` and `step`, frame stacks, a monitor, a window. It imports no pools."""
