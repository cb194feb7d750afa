"""Parts of an update: optimizers by name, the count of steps not done, networks compiled, histograms.

Used by `learner.base` and `learner.gradients`; knows no file of `learner`.
"""
