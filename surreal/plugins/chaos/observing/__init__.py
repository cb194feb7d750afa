"""Snapshots of a run, read from Redis without its processes.

sights.py      the data
reader.py      the stream's entries and counts at one instant; published versions
standing.py    who is alive, and how far the run is
"""
