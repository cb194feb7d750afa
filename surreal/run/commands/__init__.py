"""The other commands: look at runs, play policies, move replays to files and back, serve Redis.

This room knows all others.
"""
