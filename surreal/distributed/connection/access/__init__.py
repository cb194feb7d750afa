"""Who may do what in Redis, and as whom this process comes.

credentials.py   user, password and certificates of this process, from its environment
holders.py       tokens of the processes that hold a lease or a name, and when one is void
spoiled.py       what is said where somebody has written what nobody of a run writes
rights.py        the table of users: what each kind of process does with each kind of key
"""
