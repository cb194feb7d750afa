"""Where transitions are: preallocated columns, observation rows here or in Redis, n-step returns, the sum tree.

It knows no room beside it.
"""
