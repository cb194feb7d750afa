"""What runs beside a role's loop: the scores of evaluation, the saved priorities of a learner.

It knows `process` and `build`.
"""
