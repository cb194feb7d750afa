"""`surreal profile`: how each process of a run spends its time. Extra `profile`, which brings py-spy.

commands.py     the command
recording.py    starts py-spy on a run's processes, and reads what it sampled
shares.py       the table: shares of acting, environment, update, encoding, waiting
"""
