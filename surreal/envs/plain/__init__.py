"""Environments for a loop of your own: `reset` and `step`, frame stacks, a monitor, a window.

It knows everything in `surreal.envs` except `pools`.
"""
