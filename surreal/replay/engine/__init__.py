"""What turns the wheels of every replay: one thread that inserts, samples and gathers, and the queue of batches.

It knows `store` and `stream`; the replays on top are composed of it.
"""
