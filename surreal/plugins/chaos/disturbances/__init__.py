"""Ways to disturb a run. Each begins, lasts for a while, and ends.

processes.py     the base class; SIGKILL; SIGSTOP, and SIGCONT later
servers.py       Redis: killed and started again, emptied, filled, all connections of the run broken repeatedly
guard.py         a process that undoes the disturbances if chaos is killed
guarding.py      starts that process and tells it what to undo
"""
