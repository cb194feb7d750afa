"""The stored transitions: preallocated columns, observation rows in memory or in Redis, n-step returns, the sum tree.

It imports no other subpackage of the replay.
"""
