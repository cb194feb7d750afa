"""The environment: some episodes of random actions, seeds, leaks, and gymnasium's checker.

play.py          the episodes, which watchers look at
observations.py  the watcher of observations
watchers.py      the watchers of rewards, masks, ends and speed
examining.py     the checks, for a configuration; run in a separate process
"""
