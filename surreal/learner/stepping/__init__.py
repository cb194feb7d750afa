"""What a step down a gradient takes: optimizers by name, the count of steps not done, networks compiled.

Used by `learner.gradients`; knows no file of `learner`.
"""
