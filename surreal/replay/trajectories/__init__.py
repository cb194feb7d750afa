"""Which step follows which across chunks: lanes, trajectories of fixed length, and the ledger of consumed steps.

It knows `store`.
"""
