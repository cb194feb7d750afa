"""The launcher, `surreal run`: starts and watches everything a run needs on this machine, from Redis to its result.

It knows the roles and the rooms below them.
"""
