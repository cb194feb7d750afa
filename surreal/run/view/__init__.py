"""Read runs, in progress or finished, and show them. `reader.py` reads Redis, `listing.py` and `files.py` folders."""
