"""Ways to disturb a run. Each begins, lasts for a while, and ends.

processes.py     the base class; SIGKILL; SIGSTOP, and SIGCONT later, also by a guard, no memory
servers.py       Redis: killed and started again, emptied, filled, all connections broken repeatedly; clock and disk
failover.py      Redis dies, and a replica takes its place
guard.py         the process that undoes the disturbances if chaos is killed
"""
