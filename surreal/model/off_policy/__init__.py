"""Models for learning off-policy: Q-functions, and actor-critics, whose actor and critics share nothing.

Agents compute the actor alone. Knows the files beside this room; used by learners and configurations through
`surreal.model`.
"""
