"""Redis, as a run needs it: there, quick, with room that it does not make by forgetting, and open to this user.

health.py   version, role, memory, policy, persistence: what `INFO` says
rights.py   whether this user may do all that Surreal does
speed.py    latency and throughput from here
clocks.py   this machine's clock against the server's
"""
