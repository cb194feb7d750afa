"""`surreal sweep FILE`: many runs over settings and seeds, as many at once as fit.

definition/        what FILE says, checked like a configuration
trials.py          the trials of a sweep and their file, from which an interrupted one goes on
folder.py          the sweep's folder: its files, its lock, where its runs are
scoring.py         from rounds of evaluations to the score of a trial
proposing.py       which settings the next trial has: all of a grid, or
optuna_search.py   what Optuna suggests
judging.py         whether a trial has ended, and with which score
packing.py         how many runs fit at once
processes.py       one `surreal run`: started, watched, ended
sweeping.py        the loop around all of these
view.py            what a person sees of it
command.py         all of it put together: what the command line calls
"""
