"""`surreal doctor`: what is wrong with an installation, a Redis, an environment, a model or a run, and what helps.

frame/        findings, faults, checks with time limits, also in their own process
machine/      the installation, and the resources that a run needs
server/       Redis
environment/  the environment of a configuration
model/        its model, agent and learner
run/          a run in progress
subject.py    what was asked about
examination.py the sections, in order
report.py     for people; reference.py the table of all faults in docs/doctor.md

Imported by the command line alone. A further check is a function that yields findings, its faults in `faults.py` of its
room, and a line in `examination.py`.
"""
