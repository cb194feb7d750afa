"""A run that goes on: what its processes say of themselves, and which setting would help.

look.py      heartbeats, and the metrics of the last minutes, from Redis
processes.py who is alive, dead, restarted, hanging, behind
waiting.py   who waits for whom
counts.py    what is dropped, refused, skipped
replay.py    its size, the samples-per-insert band, and where Redis' memory goes
clocks.py    clocks of the machines that the processes are on
"""
