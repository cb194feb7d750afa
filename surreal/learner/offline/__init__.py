"""Learners for experience that others recorded: behavior cloning, TD3+BC, IQL and CQL.

Imports only the files next to this package; used through `surreal.learner`.
"""
