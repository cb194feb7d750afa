"""Who may do what in Redis, and as whom this process comes.

credentials.py   user, password and certificates of this process, from its environment
rights.py        the table of users: what each kind of process does with each kind of key
"""
