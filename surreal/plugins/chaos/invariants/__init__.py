"""Invariants of a run under disturbances. The code is pure: it takes snapshots and returns sentences about violations.

verdict.py      verdicts, and invariants of what senders report
experience.py   one shard: nothing lost, nothing doubled, the count of env steps exact
senders.py      what the agents took for acknowledged, against what all shards hold
versions.py     published versions, and those that processes hold
scores.py       evaluation continues
recovery.py     learning continues after each disturbance
"""
