"""A learner that is several processes, its ranks, which do each update together.

processes.py   the other ranks as children of rank 0, and how they ended
group.py       forming the group of ranks, and the loss of a rank
replay.py      a rank's replay: a batch when all ranks have one, and rank 0's decisions
following.py   what ranks other than rank 0 do
"""
