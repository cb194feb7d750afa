"""`surreal doctor`: diagnoses an installation, a Redis, an environment, a model or a run, and suggests fixes.

subject.py     the run, configuration or machine to examine
examination.py the sections, in order
machine.py, server.py, environment.py (with watchers.py and observations.py), model.py, run.py, look.py: their checks
apart.py       checks of environments and models in a separate process
finding.py     findings, checks with time limits, their output
faults.yaml    all faults, by section, which docs/doctor.md lists

A new check is a function that yields findings, its faults in faults.yaml, and a line in `examination.py`.
"""
