"""How many agents and servers learning needs: a run's figures for Prometheus, and what follows from them.

reading.py   the runs of a Redis, in one round trip
figures.py   the table of all figures, and how each comes from what a run's processes say
collector.py what a scrape gets
serving.py   `surreal metrics`: a port, until Ctrl-C
"""
