"""`surreal sweep FILE`: many runs over settings and seeds, as many at once as fit.

definition/    what FILE says, checked like a configuration
trials.py      the trials of a sweep and their file, from which an interrupted one continues
folder.py      the sweep's folder: its files, its lock, where its runs are
search/        which settings the next trial has, and how good the last ones were
packing.py     how many runs fit at once
processes.py   one `surreal run`: started, watched, ended
sweeping.py    the loop around all of these
view.py        what a person sees of it
command.py     all of it put together: what the command line calls
"""
