"""Where transitions are: preallocated columns, observation rows in memory or in Redis, n-step returns, the sum tree.

It knows no other room.
"""
