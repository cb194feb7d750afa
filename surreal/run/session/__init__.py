"""Parts next to a role's loop: the scores of evaluation, checkpoints and publications of a learner.

It knows `process` and `build`.
"""
