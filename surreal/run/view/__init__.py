"""Read runs, in progress or finished, and show them.

`listing.py` finds runs; everything else here starts from it.
"""
