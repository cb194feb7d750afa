"""Redis, as a run needs it: reachable, fast, with enough memory, without evictions, and with rights for this user.

health.py   version, role, memory, persistence, limits, latency and clock
rights.py   the rights of this user
"""
