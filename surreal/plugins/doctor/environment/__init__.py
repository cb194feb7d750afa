"""The environment: what it shows over some episodes of random actions, seeds, leaks, and gymnasium's own checker.

play.py      the episodes, which watchers look at
watchers/    one question about what is shown each: observations, rewards, masks, ends, speed
repeating.py does a seed repeat an episode?
leaking.py   does memory grow with the episodes?
checker.py   what gymnasium's checker says, in plain words
examining.py the checks, for a configuration; run in a separate process
"""
