"""How many agents and servers learning needs: a run's figures for Prometheus, and what follows from them.

figures.py   the table of all figures, and how each comes from what a run's processes say
collector.py what a scrape gets
serving.py   `surreal metrics`: a port, until Ctrl-C
"""
