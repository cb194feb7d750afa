"""`surreal chaos`: disturbs a run on this machine, and checks the invariants that must hold.

command.py      the whole test of a run, up to the report
campaign.py     disturbs by a plan, watches, heals
choosing.py     targets of planned disturbances
plan.py         options, and times and kinds of disturbances, drawn from a seed
audit.py        reads the run, and checks the invariants
observing.py    snapshots of a run, read from Redis without its processes
leftovers.py    processes and keys that must be gone
report.py       the disturbances, and the invariants that held
invariants/     the invariants, pure functions of snapshots
disturbances/   ways to disturb
subjects/       runs that are started or joined
"""
