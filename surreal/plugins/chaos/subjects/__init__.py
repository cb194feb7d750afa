"""Runs that can be disturbed, and the Redis servers that they use.

subject.py     what both kinds are
starting.py    one that is started for the time of it
joining.py     one that goes on here, and goes on afterwards
"""
