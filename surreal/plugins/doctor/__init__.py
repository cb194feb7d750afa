"""`surreal doctor`: diagnoses an installation, a Redis, an environment, a model or a run, and suggests fixes.

frame/         findings, faults, checks with time limits, also in a separate process
machine/       the installation, and the resources that a run needs
server/        Redis
environment/   the environment of a configuration
model/         its model, agent and learner
run/           a run in progress or ended
subject.py     the run, configuration or machine to examine
examination.py the sections, in order
report.py      output on the console, and the table of all faults in docs/doctor.md

A new check is a function that yields findings, its faults in `faults.py` of its subpackage, and a line in
`examination.py`.
"""
