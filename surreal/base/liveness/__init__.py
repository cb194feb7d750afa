"""Liveness: whether a process works, waits, hangs or has ended; see docs/liveness.md.

Any component may report here. The heartbeat, the watchdog and `surreal health` read it.
"""
