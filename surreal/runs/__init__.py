"""Runs that are over or going on, seen from outside.

The command line uses it; nothing here takes part in a run.
"""
