"""Ways to disturb a run. Each begins, lasts, and is ended again; what outlives chaos itself is ended by the guard.

base.py          what a disturbance is
processes.py     SIGKILL; SIGSTOP, and SIGCONT later
connections.py   all connections of the run, broken again and again
servers.py       Redis killed and started again, emptied, filled up
guard.py         a process that ends what was begun, should chaos be killed itself
guarding.py      our side of it
"""
