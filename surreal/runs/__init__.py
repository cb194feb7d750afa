"""Runs that are over or going on: which there are, and what can be done with many of them.

Only the command line imports this part. `listing.py` is what everything else here begins with.
"""
