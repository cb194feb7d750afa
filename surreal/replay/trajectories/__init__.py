"""Which step follows which, across chunks: lanes, trajectories of fixed length, the ledger of what was consumed.

It knows `store`.
"""
