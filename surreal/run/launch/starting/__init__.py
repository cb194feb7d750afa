"""How a launcher starts the processes of a run: forked off a helper that has imported what they need, or one by one.

Either way a process is a child of the launcher, in a session of its own so that Ctrl-C reaches the launcher alone; what
it writes to its console lands in a file. From the main thread only: a child is told to end when the *thread* that is
its parent ends.

starter.py        what starting means, and a Python for each process
forking.py        the launcher's side of the fork server
fork_server.py    the fork server's own process
orphans.py        waiting for what killed processes leave behind
"""
