"""A run as lines of text for a terminal: pure functions, of what is known and how much room there is.

bars.py        bars, sparklines and bands, in Unicode or ASCII
words.py       numbers, durations and texts, short enough for a line
processes.py   a line for each process, or for many
frame.py       all of it: what `surreal run` and `surreal top` show
"""
