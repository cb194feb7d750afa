"""A run: what its processes report, or what they left, and which setting would help.

look.py      heartbeats, and the metrics of the last minutes, from Redis
processes.py who is alive, dead, restarted, hanging, behind
waiting.py   waits of agents and learner for each other
counts.py    what is dropped, refused, skipped
replay.py    its size, the samples-per-insert band, and where Redis' memory goes
ended.py     a run that has ended: its result, scores and logs
clocks.py    clocks of the machines that the processes are on
"""
