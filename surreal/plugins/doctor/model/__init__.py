"""The model: a rehearsal of acting and learning on real observations, in one process and without Redis.

examining.py  the checks, for a configuration; run in a separate process
"""
