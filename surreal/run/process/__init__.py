"""The frame that all processes of a run share: arguments, signals, registration, error reports.

It knows no other room.
"""
