"""Environment pools, which agents drive, in this process or in worker processes. `base.py` defines the interface.

It knows everything in `surreal.envs` except `plain`.
"""
