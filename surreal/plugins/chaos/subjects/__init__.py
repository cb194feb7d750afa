"""Runs that can be disturbed, and the Redis servers that they use.

subject.py     a run and its servers
starting.py    a run that is started for the test
joining.py     a run in progress, which continues afterwards
"""
