"""Invariants of a run under disturbances: pure functions from snapshots to sentences about violations.

verdict.py      verdicts, and the chunks that agents report as acknowledged
experience.py   one shard: nothing is lost or doubled, the count of env steps is exact
scores.py       versions rise, and evaluation continues
recovery.py     learning continues after each disturbance
"""
