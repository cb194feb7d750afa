"""Which settings the next trial has, and how good the last ones were.

proposing.py       all combinations of a grid, or
optuna_search.py   what Optuna suggests
scoring.py         from rounds of evaluations to the score of a trial
judging.py         whether a trial has ended, and with which score
"""
