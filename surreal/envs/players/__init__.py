"""Games of several players: their interface, PettingZoo's behind it, and views of one player.

`make.py` finds one by its id. It knows nothing of `surreal.envs` but how actions are masked; pools know it.
"""
