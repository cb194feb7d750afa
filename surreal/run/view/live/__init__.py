"""What a person sees of a run: `surreal run` shows it on the console, `surreal top` and `surreal status` from anywhere.

snapshot.py        one look at the run, put together from its processes' heartbeats
onlooker.py        what is known of it, from one look to the next
history.py         what was seen before: curves of returns, the pace, restarts
estimate.py        when it will end
describe.py        a snapshot in words: the phase of a run, its numbers, what it waits for
drawing/           all of it as a picture
progress.py        the picture on a terminal, which steady_live.py keeps whole, or lines
child_warnings.py  what the launcher's children warn of, on the launcher's own console
"""
