"""The model: a rehearsal of acting and learning on real observations, in one process and without Redis.

rehearsal.py  environments, agent, replay and learner of a configuration, made small
probes.py     look into the model while it is used
examining.py  the checks, for a configuration; run in a process of its own
"""
