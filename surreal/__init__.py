"""Surreal: distributed reinforcement learning with Redis in the middle.

`import surreal` alone imports nothing heavy: no torch, no Redis, no gymnasium.
"""

__version__ = "0.1.0"
