"""Ways to disturb a run. Each begins, lasts for a while, and ends.

processes.py     the base class; SIGKILL; SIGSTOP, and SIGCONT later, also by a guard
servers.py       Redis: killed and started again, emptied, filled, all connections of the run broken repeatedly
guard.py         the process that undoes the disturbances if chaos is killed
"""
