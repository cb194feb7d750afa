"""What drives every replay: one thread that inserts, samples and gathers, and the queue of batches.

It knows `store` and `stream`; the replays are built on it.
"""
