"""A run: the reports of its processes, or its files, and the settings that would help.

look.py      heartbeats, and the metrics of the last minute, from Redis
processes.py processes that are dead, restarted, hanging or behind, and the files of a run that has ended
waiting.py   waits of agents and learner for each other
counts.py    what is dropped, refused or skipped, and the clocks of the processes' machines
replay.py    its size, the samples-per-insert band, and the memory of Redis
"""
