"""`surreal chaos`: disturbs a run on this machine, and checks the invariants that must hold.

command.py      the whole test of a run, up to the report
campaign.py     disturbs by a plan, watches, heals
plan.py         options, times, kinds and targets of disturbances, drawn from a seed
disturbances/   ways to disturb
subject.py      the run, and joining one in progress
starting.py     starting one
audit.py        reads the run, and checks the invariants, and what must be gone
observing.py    snapshots of a run, read from Redis without its processes
experience.py   one shard: nothing is lost or doubled, the count of env steps is exact
verdicts.py     verdicts on versions that rise, and on evaluation and learning that continue
report.py       the disturbances, and the invariants that held
"""
