"""A learner that is several processes, its ranks, which do each update together.

group.py     starting the other ranks, forming the group, and the loss of a rank
replay.py    a rank's replay: a batch when all ranks have one, and rank 0's decisions
leading.py   the process of rank 0, which leads the run, and those of the others, which follow it
"""
