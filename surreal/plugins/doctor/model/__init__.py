"""The model: a rehearsal of acting and learning on real observations, in one process and without Redis.

probes.py     watch the model while it is used
examining.py  the checks, for a configuration; run in a separate process
"""
