"""Chaos: a run of this machine is disturbed, and held against what must stay true of it.

Only the command line imports this part.

command.py      the whole test of a run, up to the report
campaign.py     disturbs by a plan, watches, heals
choosing.py     targets of planned disturbances
plan.py         times and kinds of disturbances, drawn from a seed
options.py      what was asked for
audit.py        looks, and holds what it sees against the invariants
leftovers.py    processes and keys that must be gone
report.py       what was done, and what held
observing/      what a run looks like from outside
invariants/     what must stay true; pure
disturbances/   ways to disturb
subjects/       runs that are started or joined
"""
