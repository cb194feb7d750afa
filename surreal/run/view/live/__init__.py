"""The live view of a run: `surreal run` and the plugin of `surreal top` show it.

trend.py           curves, pace and restarts since the view began; when the run will end
text.py            a run in words, numbers and durations as text, bars and sparklines
processes.py       processes as lines
frame.py           the whole picture
progress.py        shows pictures on a terminal, otherwise lines
child_warnings.py  warnings of the launcher's children
"""
