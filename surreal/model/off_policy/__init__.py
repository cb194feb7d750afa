"""Models for learning off-policy: Q-functions, and actor-critics, whose actor and critics share nothing.

Agents compute the actor alone. Imports only the files next to this package; used by learners and configurations through
`surreal.model`.
"""
