"""Chaos: a run of this machine is disturbed, and held against what must stay true of it.

Only the command line imports this part.
"""
