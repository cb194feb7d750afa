"""How a process ends: signals, a launcher that is gone, an output that was closed, and what is said of it afterwards.

Imported by the rest of `process`, and by all roles; imports nothing of it.
"""
