"""The actor-critic, and what only policies have: heads for every kind of action, filters, orthogonal initial values.

It knows the files of `model`, which do not know it.
"""
