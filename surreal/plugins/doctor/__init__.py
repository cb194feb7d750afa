"""`surreal doctor`: what is wrong with an installation, a Redis, an environment, a model or a run, and what helps.

frame/        findings, faults, checks with time limits; checks in a process of their own
machine/      the installation, and what a run needs of this machine
server/       Redis
environment/  the environment of a configuration
model/        its model, agent and learner
run/          a run that goes on
subject.py    what was asked about
examination.py the sections, in order
report.py     for people; reference.py the table of all faults in docs/doctor.md

Imported by the command line alone. A further check is a function that yields findings, its faults in `faults.py` of its
room, and a line in `examination.py`.
"""
