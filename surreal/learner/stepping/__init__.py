"""One step down a gradient: optimizers by name, and the count of steps that were not done.

Used by `learner.gradients`; knows no file of `learner`.
"""
