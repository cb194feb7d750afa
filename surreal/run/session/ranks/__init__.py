"""A learner that is several processes, its ranks, which do each update together.

processes.py   the other ranks as children of rank 0, and how they ended
group.py       how ranks meet, and what becomes of them when one is gone
replay.py      a rank's replay: a batch when all ranks have one, and rank 0's word for what they must agree on
following.py   what ranks other than rank 0 do
"""
