"""Surreal: distributed reinforcement learning with Redis in the middle.

The package imports nothing heavy by itself: `import surreal` costs no torch, no Redis, no gymnasium.
"""

__version__ = "0.1.0"
