"""`surreal sweep FILE`: many runs over settings and seeds, as many at once as fit.

schema.py          the settings in FILE
definition.py      reads FILE, and checks it like a configuration
folder.py          the sweep's folder: its files, its lock, its runs, and its trials, from which it continues
proposing.py       the settings of the next trial, from a grid or from Optuna; its score, and whether it has ended
processes.py       one `surreal run`: starting, watching and ending it; how many fit at once
sweeping.py        the loop around all of these
view.py            the sweep's output on the console
command.py         a whole sweep, from its file to its results
"""
