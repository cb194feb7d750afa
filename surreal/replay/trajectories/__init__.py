"""The order of steps across chunks: lanes, trajectories of fixed length, and the ledger of consumed steps.

It imports `store`.
"""
