"""Games of several players: their interface, PettingZoo's behind it, and views of one player. `make.py` finds one by id.

Pools and the configuration know it; it knows nothing of `surreal.envs` but how actions are masked.
"""
