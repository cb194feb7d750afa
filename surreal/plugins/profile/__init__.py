"""`surreal profile`: how each process of a run spends its time. Extra `profile`, which brings py-spy.

commands.py     the command
recording.py    starts py-spy on a run's processes, reads what it sampled, and writes one timeline
shares.py       the table: shares of acting, environment, update, encoding, waiting
kernels.py      a callback: the learner's kernels, by torch.profiler
"""
