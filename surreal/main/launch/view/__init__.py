"""What a person sees of a run: `surreal run` shows it on the console, and `surreal status` from anywhere.

snapshot.py        one look at the run, put together from its processes' heartbeats
describe.py        a snapshot in words: the phase of a run, its numbers, what it waits for
progress.py        the live table of `surreal run`, or its lines
child_warnings.py  what the launcher's children warn of, on the launcher's own console
"""
