"""Methods that one process of a run calls by name in another, through Redis. Knows `connection` only.

message.py    values as bytes
server.py     the methods that may be called, and the turn in which they are
caller.py     what stands for the other process
"""
