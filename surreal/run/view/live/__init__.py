"""The live view of a run: `surreal run` shows it on the console, `surreal top` from any machine.

describe.py        a run in words: phase, numbers, what it waits for
trend.py           curves, pace and restarts since the view began; when the run will end
text.py            bars, numbers and durations as text
processes.py       processes as lines
frame.py           the whole picture
progress.py        shows pictures on a terminal, otherwise lines
top.py             `surreal top`
child_warnings.py  warnings of the launcher's children
"""
